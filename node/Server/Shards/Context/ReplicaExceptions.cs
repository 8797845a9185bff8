namespace KvCluster.Node.Shards.Context;

/// <summary>This replica was taken out of service because its contents are not trusted. A new replica replaces it.</summary>
internal sealed class QuarantinedException(string why) : Exception($"Quarantined: {why}.");

/// <summary>The protocol's core found a broken invariant. The replica stops; the process and its other shards continue.</summary>
internal sealed class ReplicaHaltedException(string reason) : Exception(reason);
