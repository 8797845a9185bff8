using KvCluster.Replication.State;

namespace KvCluster.Tests.Replication;

/// <summary>Moments that shards of a node share.</summary>
public sealed class SharedIntervalsTests
{
    private const long IntervalUs = 100_000;

    [Theory]
    [InlineData(1)]
    [InlineData(3)]
    [InlineData(10)]
    public void NextUs_OfEachShard_IsOneMomentInSoMany(int every)
    {
        for (var shard = 0u; shard < 20; shard++)
        {
            var firstUs = SharedIntervals.NextUs(0, IntervalUs, every, new ShardId(shard));
            // Also before the first interval has passed since the boot.
            for (var nowUs = 0L; nowUs < 3 * every * IntervalUs; nowUs += 7_001)
            {
                var nextUs = SharedIntervals.NextUs(nowUs, IntervalUs, every, new ShardId(shard));
                Assert.InRange(nextUs - nowUs, 1, every * IntervalUs);
                Assert.Equal(0, nextUs % IntervalUs);
                Assert.Equal(firstUs % (every * IntervalUs), nextUs % (every * IntervalUs));
                Assert.Equal(nextUs + (every * IntervalUs), SharedIntervals.NextUs(nextUs, IntervalUs, every, new ShardId(shard)));
            }
        }
    }

    /// <summary>On three nodes each leads every third shard.</summary>
    [Theory]
    [InlineData(2, 2)]
    [InlineData(3, 2)]
    [InlineData(3, 3)]
    [InlineData(4, 200)]
    public void NextUs_OfTheShardsOfANode_AreSpreadOverTheMoments(int nodes, int every)
    {
        const int Shards = 10_000;
        var counts = Enumerable.Range(0, Shards).Select(index => SharedIntervals.NextUs(0, IntervalUs, every, new ShardId((uint)(index * nodes))))
            .CountBy(static nextUs => nextUs).ToArray();
        Assert.Equal(every, counts.Length);
        Assert.All(counts, count => Assert.InRange(count.Value, Shards / every * 2 / 3, Shards / every * 3 / 2));
    }
}
