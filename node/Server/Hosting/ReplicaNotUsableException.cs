namespace KvCluster.Node.Hosting;

/// <summary>A replica cannot be opened for a reason that an operator has to know. Not a bug.</summary>
/// <param name="reason">The reason, for people.</param>
/// <param name="isLost">Its contents are gone for good; a new replica is to replace it.</param>
internal sealed class ReplicaNotUsableException(string reason, bool isLost = false) : Exception(reason)
{
    public bool IsLost => isLost;
}
