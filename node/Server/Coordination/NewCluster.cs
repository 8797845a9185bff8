namespace KvCluster.Node.Coordination;

/// <summary>What a cluster is created with.</summary>
/// <param name="Nodes">Ids, at least one, without repetition.</param>
/// <param name="ReplicationFactor">Replicas of a shard, at most the nodes.</param>
/// <param name="SplitKeys">Where a new shard begins: not empty, strictly rising.</param>
internal sealed record NewCluster(IReadOnlyList<uint> Nodes, int ReplicationFactor, IReadOnlyList<ReadOnlyMemory<byte>> SplitKeys);
