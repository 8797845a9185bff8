namespace KvCluster.Replication;

/// <summary>A broken invariant of the protocol: a bug. The replica stops; others go on.</summary>
internal sealed class InvariantException(string message) : Exception(message);
