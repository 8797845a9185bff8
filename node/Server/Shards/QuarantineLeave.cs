namespace KvCluster.Node.Shards;

/// <summary>
/// A leader's word that a majority stays without a replica. It counts while that leadership is the newest that the replica has promised: a later leader may
/// have let another one go.
/// </summary>
/// <param name="Epoch">The leadership that gave it.</param>
/// <param name="UsableUntil">Timestamp of the boot clock; the leader counts the replica out for longer.</param>
internal readonly record struct QuarantineLeave(ulong Epoch, long UsableUntil);
