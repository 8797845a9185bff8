namespace KvCluster.Node.Hosting;

/// <summary>A replica cannot be opened for a reason that an operator has to know. Not a bug.</summary>
/// <param name="reason">The reason, for people.</param>
/// <param name="isLost">Its contents are gone for good; a new replica is to replace it.</param>
internal sealed class ReplicaNotUsableException(string reason, bool isLost = false) : Exception(reason)
{
    /// <summary>Of a replica that its record calls absent.</summary>
    public const string Absent = "lost: the coordinator's records were rebuilt without this node, so nothing of its replicas counts any more. "
        + "The directory is set aside, and a new replica is built from the others.";

    public bool IsLost => isLost;
}
