using KvCluster.Storage.Pages;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>Shard time with wall clocks that are right, ahead and behind.</summary>
public sealed class ShardClockTests
{
    private static readonly DateTimeOffset Wall = DateTimeOffset.UnixEpoch.AddDays(20_000);
    private readonly ManualTime _time = new();
    private readonly ShardClock _clock;
    private TimeSpan _passed;

    public ShardClockTests()
    {
        _clock = new ShardClock(_time);
        _clock.Open(Wall);
    }

    private DateTimeOffset ShardTime => DateTimeOffset.UnixEpoch.AddTicks(_clock.Microseconds * TimeSpan.TicksPerMicrosecond);

    [Fact]
    public void Record_ChangesNoPageForItsShardTime()
    {
        using var bench = new StoreBench();
        bench.Open();
        bench.Write(request => request.Put("key"u8, "a"u8));
        bench.Checkpoint();
        Assert.Equal(0, bench.Store.Pages.ChangedBytes);
        var before = bench.Store.Pages.Roots.Published.ShardTime;
        bench.Time.Advance(TimeSpan.FromSeconds(1));
        bench.Write(request => request.Put("key"u8, "b"u8));
        Assert.True(bench.Store.Pages.Roots.Published.ShardTime > before);
        Assert.Equal(Page.Bytes, bench.Store.Pages.ChangedBytes);
    }

    [Fact]
    public void Step_WithARightClock_FollowsIt()
    {
        Assert.Equal(Wall, ShardTime);
        Pass(TimeSpan.FromSeconds(10), ahead: TimeSpan.Zero);
        Assert.Equal(Wall + TimeSpan.FromSeconds(10), ShardTime);
    }

    [Fact]
    public void Step_WithAClockAYearAhead_RunsTwiceAsFastAtMost()
    {
        for (var record = 0; record < 100; record++)
            Pass(TimeSpan.FromSeconds(1), ahead: TimeSpan.FromDays(365));
        Assert.Equal(Wall + TimeSpan.FromSeconds(200), ShardTime);
    }

    [Fact]
    public void Step_WhileAheadOfTheClock_RunsAtHalfThePace()
    {
        _clock.Saw((long)(Wall.AddDays(365) - DateTimeOffset.UnixEpoch).TotalMicroseconds);
        Pass(TimeSpan.FromMinutes(10), ahead: TimeSpan.Zero);
        Assert.Equal(Wall.AddDays(365).AddMinutes(5), ShardTime);
    }

    [Theory]
    [InlineData(30, 30)]
    [InlineData(3_600, 60)]
    [InlineData(-3_600, 0)]
    public void Open_ByANewLeader_CatchesUpByABound(int aheadSeconds, int stepSeconds)
    {
        _clock.Open(Wall.AddSeconds(aheadSeconds));
        Assert.Equal(Wall.AddSeconds(stepSeconds), ShardTime);
    }

    private void Pass(TimeSpan time, TimeSpan ahead)
    {
        _time.Advance(time);
        _passed += time;
        _clock.Step(Wall + _passed + ahead);
    }
}
