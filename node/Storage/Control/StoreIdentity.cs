namespace KvCluster.Storage.Control;

/// <summary>Whose a directory is, as its control file tells.</summary>
/// <param name="ReplicaId">The replica's id.</param>
/// <param name="Shard">The shard it belongs to.</param>
/// <param name="ClusterHash">Hash of the cluster's name and creation.</param>
internal readonly record struct StoreIdentity(ulong ReplicaId, uint Shard, ulong ClusterHash);
