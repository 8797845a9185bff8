namespace KvCluster.Node.Coordination;

/// <summary>The parameters with which a cluster is created.</summary>
/// <param name="Nodes">Node ids, at least one, without duplicates.</param>
/// <param name="ReplicationFactor">Replicas per shard, at most the number of nodes.</param>
/// <param name="SplitKeys">The keys at which a new shard begins: not empty, strictly increasing.</param>
internal sealed record NewCluster(IReadOnlyList<uint> Nodes, int ReplicationFactor, IReadOnlyList<ReadOnlyMemory<byte>> SplitKeys);
