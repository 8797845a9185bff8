namespace KvCluster.ClusterTests.Faults;

/// <summary>A shared cluster of sixteen shards, split between b and p. The clients' keys are in three of them.</summary>
public sealed class ManyShardsCluster : SharedCluster
{
    public const uint Shards = 16;

    protected override string SplitAt { get; } = string.Join(',', Enumerable.Range(0, (int)Shards - 1).Select(shard => $"{(char)('b' + shard)}"));
}
