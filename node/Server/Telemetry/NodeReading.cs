namespace KvCluster.Node.Telemetry;

/// <summary>How a node's replicas and streams stood at one moment. Immutable.</summary>
/// <param name="Replicas">By shard.</param>
/// <param name="Links">Streams to other nodes.</param>
/// <param name="MapShards">Shards of the cluster, by the map that the node has.</param>
/// <param name="FreeBytes">Free space on the data directory's disk; null: the system does not say.</param>
internal sealed record NodeReading(IReadOnlyList<ReplicaReading> Replicas, IReadOnlyList<LinkReading> Links, int MapShards, long? FreeBytes)
{
    public static readonly NodeReading None = new([], [], 0, null);
}
