namespace KvCluster.Client;

/// <summary>Where in which shard's history an answer was made.</summary>
/// <param name="Shard">The shard's id.</param>
/// <param name="Etag">The newest etag that the answer was evaluated on; of a change, its own.</param>
public readonly record struct ShardPosition(uint Shard, Etag Etag);
