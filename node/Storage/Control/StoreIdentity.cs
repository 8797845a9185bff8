namespace KvCluster.Storage.Control;

/// <summary>Which replica a directory belongs to, according to its control file.</summary>
/// <param name="ReplicaId">The replica's id.</param>
/// <param name="Shard">The shard it belongs to.</param>
/// <param name="ClusterHash">Hash of the cluster's name and creation.</param>
internal readonly record struct StoreIdentity(ulong ReplicaId, uint Shard, ulong ClusterHash);
