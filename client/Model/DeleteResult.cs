namespace KvCluster.Client;

/// <summary>The answer to a delete.</summary>
/// <param name="Existed">Whether the key existed.</param>
/// <param name="Position">The change's position in its shard.</param>
public readonly record struct DeleteResult(bool Existed, ShardPosition Position);
