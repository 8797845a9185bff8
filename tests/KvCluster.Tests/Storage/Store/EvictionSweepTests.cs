using KvCluster.Storage.Maintenance;

namespace KvCluster.Tests.Storage.Store;

/// <summary>When the stores of a node look for pages that have left memory.</summary>
public sealed class EvictionSweepTests
{
    // Each of the hundred shards of an idle node woke two threads every half minute, at a time of its own.
    [Fact]
    public void Aligned_LongRests_EndAtTheSameMoments()
    {
        var moments = new HashSet<TimeSpan>();
        for (var begunMs = 100_000; begunMs < 105_000; begunMs += 37)
        {
            var begun = TimeSpan.FromMilliseconds(begunMs);
            var end = begun + EvictionSweep.Aligned(TimeSpan.FromSeconds(30), begun);
            Assert.InRange(end - begun, TimeSpan.FromSeconds(27.5), TimeSpan.FromSeconds(32.5));
            moments.Add(end);
        }
        Assert.Equal([TimeSpan.FromSeconds(130), TimeSpan.FromSeconds(135)], moments.Order());
    }

    // Those that begin soon after a moment do not drift from it.
    [Theory]
    [InlineData(100_000, 30_000, 130_000)]
    [InlineData(100_003, 30_000, 130_000)]
    [InlineData(100_003, 34_000, 135_000)]
    [InlineData(100_003, 1_000, 101_003)]
    [InlineData(100_003, 8_000, 108_003)]
    public void Aligned_TakesTheNearestMoment_AndLeavesShortRestsAsTheyAre(int begunMs, int restMs, int endMs) => Assert.Equal(
        TimeSpan.FromMilliseconds(endMs - begunMs), EvictionSweep.Aligned(TimeSpan.FromMilliseconds(restMs), TimeSpan.FromMilliseconds(begunMs)));
}
