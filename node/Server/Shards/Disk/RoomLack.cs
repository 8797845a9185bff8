namespace KvCluster.Node.Shards.Disk;

/// <summary>
/// The disk had no space for what a replica needs in order to be created, opened or rebuilt from its peers. Each time that this is found makes another object,
/// so that whoever has made room can tell whether it was enough.
/// </summary>
/// <param name="reason">What was needed, for people.</param>
/// <param name="atUs">When it was found, by the clock of whoever found it.</param>
internal sealed class RoomLack(string reason, long atUs = 0)
{
    public string Reason => reason;

    public long AtUs => atUs;
}
