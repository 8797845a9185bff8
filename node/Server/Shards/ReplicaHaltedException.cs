namespace KvCluster.Node.Shards;

/// <summary>The protocol's core found an invariant broken. The replica stops; the process and its other shards go on.</summary>
internal sealed class ReplicaHaltedException(string reason) : Exception(reason);
