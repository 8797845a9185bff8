namespace KvCluster.Node.Shards;

/// <summary>This replica was taken out of service because its content is not believed; a new one takes its place.</summary>
internal sealed class QuarantinedException(string why) : Exception($"Quarantined: {why}.");

/// <summary>The protocol's core found an invariant broken. The replica stops; the process and its other shards go on.</summary>
internal sealed class ReplicaHaltedException(string reason) : Exception(reason);
