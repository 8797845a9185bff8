namespace KvCluster.Client;

/// <summary>The shard that answered, and the state that the answer was evaluated on.</summary>
/// <param name="Shard">The shard's id.</param>
/// <param name="Etag">The newest etag of that state; for a change, its own etag.</param>
public readonly record struct ShardPosition(uint Shard, Etag Etag);
