namespace KvCluster.Client;

/// <summary>The answer to a delete.</summary>
/// <param name="Existed">Whether the key was there.</param>
/// <param name="Position">The change's place in its shard.</param>
public readonly record struct DeleteResult(bool Existed, ShardPosition Position);
