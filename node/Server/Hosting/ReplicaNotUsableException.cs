namespace KvCluster.Node.Hosting;

/// <summary>A replica cannot be opened for a reason that its operator has to know; no failure of the program.</summary>
/// <param name="reason">For people.</param>
/// <param name="isLost">What it held is gone for good: it is to be replaced by a new one.</param>
internal sealed class ReplicaNotUsableException(string reason, bool isLost = false) : Exception(reason)
{
    public bool IsLost => isLost;
}
