using KvCluster.Cli;
using KvCluster.Client;

namespace KvCluster.Tests.Cli;

/// <summary>What `kv top` shows.</summary>
public sealed class ShardActivityTests
{
    [Fact]
    public void Shards_AreOrderedByTheirChangesSinceTheLookBefore()
    {
        var first = ShardActivity.Of(StatusOf((1, Replica(0, "leader", 100)), (1, Replica(1, "leader", 1_000))), [], TimeSpan.FromSeconds(1));
        Assert.Equal([0u, 1u], first.Select(static shard => shard.Shard));
        Assert.All(first, static shard => Assert.Null(shard.ChangesPerSecond));
        var second = ShardActivity.Of(
            StatusOf((1, Replica(0, "leader", 110)), (1, Replica(1, "leader", 1_050)), (1, Replica(2, "leader", 7))), first, TimeSpan.FromSeconds(2));
        Assert.Equal([1u, 0u, 2u], second.Select(static shard => shard.Shard));
        Assert.Equal([25d, 5d, null], second.Select(static shard => shard.ChangesPerSecond));
    }

    [Fact]
    public void Shard_HasTheNewestLeader_TheGreatestLag_AndCountsWhatServes()
    {
        var shard = Assert.Single(ShardActivity.Of(
            StatusOf((1, Replica(0, "leader", 90, epoch: 4)), (2, Replica(0, "leader", 100, epoch: 5)), (3, Replica(0, "failed", 40, epoch: 4))), [], default));
        Assert.Equal((2u, 60ul, 3, 2), (shard.Leader, shard.Lag, shard.Replicas, shard.Serving));
    }

    [Fact]
    public void Shard_OfARestoredCluster_HasNoRate()
    {
        var before = ShardActivity.Of(StatusOf((1, Replica(0, "leader", 100))), [], default);
        Assert.Null(Assert.Single(ShardActivity.Of(StatusOf((1, Replica(0, "leader", 50))), before, TimeSpan.FromSeconds(1))).ChangesPerSecond);
    }

    private static ClusterStatus StatusOf(params (uint Node, ReplicaStatus Replica)[] replicas) => new("test", [.. replicas
        .GroupBy(static one => one.Node)
        .Select(static node => new NodeStatus(node.Key, "", "", "", [.. node.Select(static one => one.Replica)]))]);

    private static ReplicaStatus Replica(uint shard, string role, ulong change, ulong epoch = 1)
    {
        var etag = new Etag(epoch, change);
        return new ReplicaStatus(shard, default, default, role, epoch, 1, etag, etag, etag, etag, 3, 0, 0, 0, default, default, "", null);
    }
}
