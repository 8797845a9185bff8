namespace KvCluster.Node.Hosting;

/// <summary>A replica cannot be opened for a reason that its operator has to know; no failure of the program.</summary>
internal sealed class ReplicaNotUsableException(string reason) : Exception(reason);
