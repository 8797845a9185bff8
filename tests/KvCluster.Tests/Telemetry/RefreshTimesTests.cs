using KvCluster.Node.Telemetry;

namespace KvCluster.Tests.Telemetry;

/// <summary>When a node reads the state of its replicas.</summary>
public sealed class RefreshTimesTests
{
    private readonly RefreshTimes _times = new();

    // Every second all replicas were asked, on their writer threads, also where a scrape came every five or fifteen seconds.
    [Fact]
    public void Next_WhileSomebodyListens_ReadsEveryThirdSecondAndForEachSample()
    {
        Assert.Equal((false, true, true), At(0, isWatched: true));
        Assert.Equal([3, 5, 8, 10, 13, 15], Enumerable.Range(1, 15).Where(second => At(second, isWatched: true).Reads));
    }

    [Fact]
    public void Next_WhileNobodyListens_ReadsForSamplesOnly()
    {
        Assert.Equal((false, true, true), At(0, isWatched: false));
        Assert.All(Enumerable.Range(1, 20), second =>
            Assert.Equal((second % 5 == 4, second % 5 == 0, second % 5 == 0), At(second, isWatched: false)));
    }

    [Fact]
    public void Next_WhenSomebodyBeginsToListen_ReadsWhatIsOlderThanTheInterval()
    {
        for (var second = 0; second < 3; second++)
            At(second, isWatched: false);
        Assert.True(At(3, isWatched: true).Reads);
        Assert.False(At(4, isWatched: true).Reads);
    }

    // Each turn is a little late or early.
    private (bool Measures, bool Reads, bool Samples) At(int second, bool isWatched) =>
        _times.Next(TimeSpan.FromMilliseconds((second * 1_000) + (second * 7 % 5)), isWatched);
}
