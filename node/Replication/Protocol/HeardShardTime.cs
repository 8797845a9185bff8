namespace KvCluster.Replication.Protocol;

/// <summary>A shard time that a leader has sent. The default value: none was heard.</summary>
/// <param name="Microseconds">The leader's shard time when it sent it.</param>
/// <param name="AgoUs">The time since it was heard, by this replica's clock.</param>
internal readonly record struct HeardShardTime(long Microseconds, long AgoUs);
