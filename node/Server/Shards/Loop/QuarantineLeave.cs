namespace KvCluster.Node.Shards.Loop;

/// <summary>
/// A leader's statement that a majority remains without a replica. It is valid while that leadership is the newest that the replica has promised, because a
/// later leader may have released another replica.
/// </summary>
/// <param name="Epoch">The epoch of the leader that gave it.</param>
/// <param name="UsableUntil">Timestamp of the boot clock until which this may be used. The leader excludes the replica for longer.</param>
internal readonly record struct QuarantineLeave(ulong Epoch, long UsableUntil);
