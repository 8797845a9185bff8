namespace KvCluster.Client.Transport;

/// <summary>How the response of a read comes. By default over the connection of all calls, whatever it has.</summary>
/// <param name="Lane">Over which connection.</param>
/// <param name="BytesMax">On <see cref="ReplyLane.Large"/>: what the caller keeps for the response. The node refuses a larger one as REPLY_LARGE.</param>
/// <param name="Turn">On <see cref="ReplyLane.Large"/>: how often the read has been there before. Of reads at any replica every other one goes to the leader.</param>
/// <param name="PartBytesMax">Of a GetMany on <see cref="ReplyLane.Large"/>: the same as <paramref name="BytesMax"/> for each shard's part, by shard.</param>
internal readonly record struct ReplyWay(ReplyLane Lane, int BytesMax = 0, int Turn = 0, IReadOnlyDictionary<uint, int>? PartBytesMax = null)
{
    // So that a value that grows a little all the time does not have its read begin anew each time.
    private const int GrowthBytes = 1 << 10;

    // No response is nearly as large.
    private const int RoomBytesMax = 1 << 30;

    /// <summary>What to keep for a response of so many bytes: some more, as it may have grown until it is brought.</summary>
    public static int RoomFor(long bytes) => (int)Math.Min(bytes + (bytes / 8) + GrowthBytes, RoomBytesMax);

    /// <summary>What to keep for a response of several parts.</summary>
    public static int RoomFor(IEnumerable<int> partBytesMax) => (int)Math.Min(partBytesMax.Sum(static bytes => (long)bytes), RoomBytesMax);
}
