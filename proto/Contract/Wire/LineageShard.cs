namespace KvCluster.Wire;

/// <summary>A shard with the lineage of its data: what a position says besides its etag.</summary>
/// <param name="Shard">The shard.</param>
/// <param name="Lineage"><see cref="KvCluster.Lineage.Head"/> of its lineage; 0 if none is known, which is not sent.</param>
internal readonly record struct LineageShard(ShardId Shard, ulong Lineage);
