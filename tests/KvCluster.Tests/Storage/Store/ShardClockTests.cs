using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// Shard time, with wall clocks that are right, ahead and behind. It once followed the leader's wall clock, at up to twice the pace of real time: after an
/// outage of three minutes a key of 20 s was gone after 10, and a failover to a node whose clock was ahead ended keys at once.
/// </summary>
public sealed class ShardClockTests
{
    private const int DriftPermille = 10;
    private static readonly DateTimeOffset Wall = DateTimeOffset.UnixEpoch.AddDays(20_000);
    private readonly ManualTime _time = new();
    private readonly ShardClock _clock;

    public ShardClockTests()
    {
        _clock = new ShardClock(_time, driftPermille: 0);
        _clock.Open(Wall, default);
    }

    private static long WallUs => (long)(Wall - DateTimeOffset.UnixEpoch).TotalMicroseconds;

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

    [Theory]
    [InlineData(0)]
    [InlineData(10)]
    [InlineData(-10)]
    [InlineData(525_600)]
    public void Step_FollowsTheTimeThatPasses_WhateverTheWallClockSays(int aheadMinutes)
    {
        for (var second = 1; second <= 100; second++)
        {
            _time.Advance(TimeSpan.FromSeconds(1));
            _clock.Step(Wall.AddSeconds(second).AddMinutes(aheadMinutes));
            Assert.Equal(WallUs + (second * 1_000_000L), _clock.Microseconds);
        }
        Assert.Equal(
            WallUs + (long)TimeSpan.FromMinutes(Math.Max(0, aheadMinutes)).TotalMicroseconds + (aheadMinutes < 0 ? 0 : 100_000_000), _clock.WallMicroseconds);
    }

    /// <summary>A store that was closed for a night, or a replica that has heard nothing of its leader.</summary>
    [Fact]
    public void Open_OfAnExistingShard_ContinuesFromItsLastRecord()
    {
        _clock.Open(Wall.AddHours(8), default);
        Assert.Equal(WallUs, _clock.Microseconds);
        _time.Advance(TimeSpan.FromSeconds(3));
        _clock.Step(Wall.AddHours(8));
        Assert.Equal(WallUs + 3_000_000, _clock.Microseconds);
        Assert.Equal(WallUs + (long)TimeSpan.FromHours(8).TotalMicroseconds, _clock.WallMicroseconds);
    }

    /// <summary>The shard was quiescent for an hour, and its leader died.</summary>
    [Fact]
    public void Open_ByAFollower_ContinuesFromWhatItHeardLast()
    {
        _clock.Open(Wall.AddHours(-5), new HeardTime(WallUs + 3_600_000_000, TimeSpan.FromSeconds(4)));
        Assert.Equal(WallUs + 3_604_000_000, _clock.Microseconds);
    }

    [Fact]
    public void Open_WithATimeFromBeforeTheLastRecord_TakesTheRecords()
    {
        _clock.Open(Wall, new HeardTime(WallUs - 1, TimeSpan.FromHours(1)));
        Assert.Equal(WallUs, _clock.Microseconds);
    }

    [Fact]
    public void Now_OfAClockThatMayRunFast_IsSlowerByTheDrift()
    {
        var clock = new ShardClock(_time, DriftPermille);
        clock.Saw(WallUs, 0);
        clock.Open(Wall, new HeardTime(WallUs + 5, TimeSpan.FromSeconds(100)));
        Assert.Equal(WallUs + 5 + 99_000_000, clock.Now);
        var before = clock.Now;
        for (var tick = 0; tick < 1_000; tick++)
        {
            _time.Advance(TimeSpan.FromMicroseconds(7));
            Assert.InRange(clock.Now, before, before + 7);
            before = clock.Now;
        }
        Assert.InRange(clock.Now, WallUs + 5 + 99_000_000 + 6_900, WallUs + 5 + 99_000_000 + 6_930);
        var wait = clock.Until(clock.Now + 1_000_000);
        var end = clock.Now + 1_000_000;
        _time.Advance(wait + TimeSpan.FromMilliseconds(1));
        Assert.InRange(clock.Now, end, end + 2_000);
    }

    /// <summary>The record has both times, and after a restart both continue.</summary>
    [Fact]
    public void Record_HasTheWallTime_BesideTheShardTime()
    {
        using var bench = new ReplicaBench(new(1));
        bench.Lead(3);
        var begun = bench.Store.Pages.Roots.Newest.ShardTime;
        bench.Submit(request => request.Put("a"u8, "v"u8));
        bench.Time.Advance(TimeSpan.FromSeconds(2));
        Assert.True(bench.AppendBatch(ReplicaBench.WallTime.AddHours(9)));
        bench.Commit(bench.Store.Log.Last.Etag);
        bench.Run();
        var body = bench.BodiesAfter(new Etag(3, 1)).Single().Span;
        Assert.Equal(begun + 2_000_000, RecordBody.ShardTimeMicroseconds(body));
        Assert.Equal((long)(ReplicaBench.WallTime.AddHours(9) - DateTimeOffset.UnixEpoch).TotalMicroseconds, RecordBody.WallTimeMicroseconds(body));
        bench.CloseAndReopen();
        bench.Lead(4);
        Assert.Equal(begun + 2_000_000, bench.Store.Pages.Roots.Newest.ShardTime);
        // The wall clock has been set right meanwhile.
        bench.Submit(request => request.Put("b"u8, "v"u8), thenAppend: true);
        body = bench.BodiesAfter(bench.Store.Log.Last.Previous).Single().Span;
        Assert.Equal(begun + 2_000_000, RecordBody.ShardTimeMicroseconds(body));
        Assert.Equal((long)(ReplicaBench.WallTime.AddHours(9) - DateTimeOffset.UnixEpoch).TotalMicroseconds, RecordBody.WallTimeMicroseconds(body));
    }

    /// <summary>The simulation found that such a key was gone by up to a millisecond early.</summary>
    [Fact]
    public void Life_ThatBeginsWithinAMillisecond_IsNotCut()
    {
        using var bench = new ReplicaBench(new(1));
        bench.Lead(3);
        bench.Time.Advance(TimeSpan.FromMicroseconds(300));
        bench.Append(static request => request.Put("k"u8, "v"u8, new PutTerms(1_000, 0, IsNumbered: false)));
        var expiryMs = Convert.ToInt64(Assert.Single(bench.Entries(TreeId.Expiry))[..16], 16);
        Assert.InRange(expiryMs * 1_000, bench.Store.Pages.Roots.Published.ShardTime + 1_000_000, bench.Store.Pages.Roots.Published.ShardTime + 1_001_000);
    }

    /// <summary>In a cluster of format level 1 other nodes may know one time only.</summary>
    [Fact]
    public void Record_AtFormatLevelOne_HasOnlyTheShardTime_UntilTheLevelIsRaised()
    {
        var disk = new Disk.SimulatedDisk();
        long shardTime;
        using (var before = new ReplicaBench(new(1), StoreBench.SmallOptions with { HasShardTimes = false }, disk))
        {
            before.Lead(3);
            before.Submit(request => request.Put("a"u8, "v"u8));
            before.Time.Advance(TimeSpan.FromSeconds(2));
            Assert.True(before.AppendBatch(ReplicaBench.WallTime.AddHours(9)));
            before.Commit(before.Store.Log.Last.Etag);
            before.Run();
            Assert.Equal(RecordFlags.None, before.Store.Log.Last.Flags);
            Assert.Equal(0, before.Store.Pages.Roots.Published.WallTime);
            shardTime = before.Store.Pages.Roots.Published.ShardTime;
            before.CloseAndReopen();
        }
        using var after = new ReplicaBench(new(1), disk: disk);
        after.Lead(4);
        Assert.Equal(RecordFlags.EpochOpen | RecordFlags.ShardTime, after.Store.Log.Last.Flags);
        Assert.Equal(shardTime, after.Store.Pages.Roots.Newest.ShardTime);
        // A record that has no other time shows its shard time.
        Assert.True(after.Store.Pages.Roots.Newest.WallTime >= shardTime);
    }

    /// <summary>
    /// After all replicas have restarted at once, shard time goes on from the last record. So there is one now and then while something is to expire.
    /// </summary>
    [Fact]
    public void Leader_WithAKeyThatExpires_RecordsTheTimeNowAndThen()
    {
        using var bench = new StoreBench();
        bench.Open();
        bench.Write(request => request.Put("k"u8, "v"u8));
        var last = bench.Store.Log.Last.Etag;
        Pass(bench, seconds: 100);
        Assert.Equal(last, bench.Store.Log.Last.Etag);
        bench.Write(request => request.Put("k"u8, "v"u8, new PutTerms(160_000, 0, IsNumbered: false)));
        for (var second = 0; second < 150; second++)
        {
            Pass(bench, seconds: 1);
            var left = 160 - second;
            Assert.InRange(bench.Store.Writes.ShardTime - bench.Store.Pages.Roots.Published.ShardTime, 0, (Math.Max(left / 16, 1) * 1_000_000L) + 1_200_000);
        }
        Assert.Equal("v", bench.Read("k"));
        Assert.True(bench.Store.Log.Last.Etag.Change < last.Change + 100, $"{bench.Store.Log.Last.Etag}");
        Pass(bench, seconds: 11);
        Assert.Null(bench.Read("k"));
        last = bench.Store.Log.Last.Etag;
        Pass(bench, seconds: 100);
        Assert.Equal(last, bench.Store.Log.Last.Etag);
    }

    private static void Pass(StoreBench bench, int seconds)
    {
        for (var step = 0; step < seconds * 5; step++)
        {
            bench.Time.Advance(TimeSpan.FromMilliseconds(200));
            bench.RunUntilIdle();
        }
    }
}
