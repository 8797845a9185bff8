using KvCluster.Node.Runtime;
using KvCluster.Node.Telemetry;
using KvCluster.Storage.Threads;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Telemetry;

/// <summary>When a node reports that its own threads stalled, and which reason it gives.</summary>
public sealed class StallWatchTests
{
    private readonly StallJudge _judge = new();
    private TimeSpan _now;

    [Fact]
    public void Look_AtAWorkingThread_SeesNoStall()
    {
        for (var turn = 0L; turn < 200; turn++)
            Assert.True(After(50, turn, hasWork: true) <= TimeSpan.FromMilliseconds(50));
    }

    [Fact]
    public void Look_AtAnIdleThread_SeesNoStall()
    {
        for (var look = 0; look < 100; look++)
            Assert.Equal(TimeSpan.Zero, After(50, turn: 2, hasWork: false));
    }

    [Theory]
    [InlineData(3, false)]
    [InlineData(2, true)]
    public void Look_AtAnItemThatDoesNotStartOrEnd_ReportsItsDurationOnceAfterwards(long turn, bool hasWork)
    {
        After(50, turn: 0, hasWork: false);
        for (var look = 0; look < 10; look++)
            Assert.Equal(TimeSpan.Zero, After(50, turn, hasWork));
        Assert.InRange(_judge.StandsFor(_now), TimeSpan.FromMilliseconds(450), TimeSpan.FromMilliseconds(500));
        Assert.InRange(After(50, turn + 1, hasWork: false), TimeSpan.FromMilliseconds(450), TimeSpan.FromMilliseconds(550));
        Assert.Equal(TimeSpan.Zero, After(50, turn + 1, hasWork: false));
    }

    // The thread that looked every 50 ms took a sixth of an idle node's CPU time.
    [Theory]
    [InlineData(120, 2, false, 120)]
    [InlineData(120, 2, true, 50)]
    [InlineData(120, 20, false, 50)]
    [InlineData(50, 1, false, 120)]
    public void IntervalAfter_ALookAtAnIdleProcess_IsLonger(int passedMs, int usedMs, bool stands, int intervalMs) => Assert.Equal(
        TimeSpan.FromMilliseconds(intervalMs), StallWatch.IntervalAfter(TimeSpan.FromMilliseconds(passedMs), TimeSpan.FromMilliseconds(usedMs), stands));

    [Fact]
    public void Look_AtAThreadThatStallsOnAnIdleNode_ReportsItsDurationToWithinHalvesOfTheIntervals()
    {
        var idle = (int)StallWatch.IdleInterval.TotalMilliseconds;
        After(idle, turn: 2, hasWork: false);
        Assert.False(_judge.Stands);
        // It begins halfway between two looks, from the second of which on there is one every 50 ms.
        After(idle, turn: 3, hasWork: false);
        Assert.True(_judge.Stands);
        for (var look = 0; look < 4; look++)
            Assert.Equal(TimeSpan.Zero, After(50, turn: 3, hasWork: false));
        Assert.InRange(After(50, turn: 4, hasWork: false), StallWatch.Threshold, StallWatch.Threshold + StallWatch.Interval);
        // What stalls for the threshold, whenever it begins, is seen at two looks.
        Assert.True(2 * StallWatch.IdleInterval < StallWatch.Threshold);
    }

    [Fact]
    public void Forget_DuringAStall_DoesNotReportIt()
    {
        After(50, 3, hasWork: false);
        After(600, 3, hasWork: false);
        _judge.Forget();
        Assert.Equal(TimeSpan.Zero, After(50, 3, hasWork: false));
        Assert.InRange(After(50, 4, hasWork: false), TimeSpan.Zero, TimeSpan.FromMilliseconds(50));
    }

    [Theory]
    [InlineData(400, 0, 0, 0, 0, 300, Stall.Collection)]
    [InlineData(0, 0, 12, 20, 0, 0, Stall.Faults)]
    [InlineData(0, 0, 0, 20, 450, 450, Stall.Processor)]
    [InlineData(0, 450, 0, 480, 0, 0, Stall.Compiling)]
    [InlineData(0, 0, 0, 480, 0, 300, Stall.Work)]
    [InlineData(0, 0, 0, 20, 0, 300, Stall.Unknown)]
    public void Of_Measurements_NamesTheMainReason(int pausedMs, int compiledMs, int faults, int ranMs, int waitedMs, int pressedMs, string reason)
    {
        var before = Counted(0, 0, 0, 0, 1, 0, 0);
        var after = Counted(500, pausedMs, compiledMs, faults, 1 + ranMs, waitedMs, pressedMs);
        var stall = Stall.Of("writer", "kv-writer-0, at shard 1", TimeSpan.FromMilliseconds(480), before, after);
        Assert.Equal(reason, stall.Reason);
        Assert.StartsWith("the node's writer stalled for 480 ms (kv-writer-0, at shard 1): ", stall.ToString(), StringComparison.Ordinal);
        Assert.Contains(reason, stall.ToString(), StringComparison.Ordinal);
    }

    [Fact]
    public void Parse_ReadsTheFormatsOfLinux()
    {
        Assert.Equal((TimeSpan.FromMicroseconds(1_234), TimeSpan.FromMicroseconds(56)), Vitals.ParseScheduled("1234567 56789 42"));
        Assert.Equal(default, Vitals.ParseScheduled(""));
        Assert.Equal(17, Vitals.ParseMajorFaults("4711 (kv-writer (0)) S 1 4711 4711 0 -1 4194560 900 0 17 0 5 3 0 0 20"));
        Assert.Equal(0, Vitals.ParseMajorFaults(""));
        Assert.Equal(TimeSpan.FromMilliseconds(90.5), Vitals.ParsePressure("some avg10=0.00 avg60=0.12 avg300=0.08 total=90500"));
        Assert.Equal(TimeSpan.Zero, Vitals.ParsePressure("no such line"));
    }

    // They stay open, so each read must begin anew.
    [Fact]
    public void Read_OfTheCountersOfAThread_SeesThemRise()
    {
        if (!OperatingSystem.IsLinux())
            return;
        using var counters = new ThreadCounters(Environment.ProcessId);
        var before = Vitals.Read(counters);
        Assert.True(before.ThreadRan > TimeSpan.Zero);
        using var line = new CounterLine("/proc/uptime");
        var uptime = new char[CounterLine.CharsMax];
        var first = new string(uptime, 0, line.Read(uptime));
        Assert.True(SpinWait.SpinUntil(() => line.Read(uptime) is var length && !uptime.AsSpan(0, length).SequenceEqual(first), Eventually.Limit));
        Assert.Equal(before.ThreadRan, before.With(thread: null).ThreadRan);
        Assert.True(before.With(counters).ThreadRan >= before.ThreadRan);
    }

    [Fact]
    public void Read_OfAFileThatDoesNotExist_IsEmpty()
    {
        using var line = new CounterLine("/proc/no-such-file");
        Assert.Equal(0, line.Read(new char[CounterLine.CharsMax]));
    }

    // A leader's process stalled for more than a second and lost its shard, and nobody could tell why.
    [Fact]
    public async Task Watch_OfAStalledWriter_ReportsThreadItemAndReason()
    {
        await using var metrics = new NodeMetrics(new NodeIdentity("stalls", "", new(1), 1, ""), shardSeriesMax: 0);
        using var writer = new WorkThread("kv-writer-7", TimeProvider.System);
        await using var watch = new StallWatch([writer], metrics, NullLogger.Instance);
        // On a very busy machine the watch itself stalls at times, or the writer at another item, and that is reported.
        await Eventually.TrueAsync(async () =>
        {
            using var go = new ManualResetEventSlim();
            writer.Post(new WorkAction(StandStill));
            writer.Post(new WorkAction(go.Set));
            Assert.True(go.Wait(Eventually.Limit));
            await Task.Delay(200);
            if (watch.Last is not { } last)
                return false;
            Assert.True(last.Length >= StallWatch.Threshold);
            return last.Text.Contains("kv-writer-7", StringComparison.Ordinal) && last.Text.Contains(nameof(StandStill), StringComparison.Ordinal);
        }, "the last stall is that of the writer, at its item");
    }

    private static void StandStill() => Thread.Sleep(500);

    private static Vitals Counted(int atMs, int pausedMs, int compiledMs, int faults, int ranMs, int waitedMs, int pressedMs) => new(
        System.Diagnostics.Stopwatch.Frequency * atMs / 1_000, TimeSpan.FromMilliseconds(pausedMs), TimeSpan.FromMilliseconds(compiledMs), faults, faults,
        TimeSpan.FromMilliseconds(ranMs), TimeSpan.FromMilliseconds(waitedMs), TimeSpan.FromMilliseconds(pressedMs));

    private TimeSpan After(int milliseconds, long turn, bool hasWork) => _judge.Look(turn, hasWork, _now += TimeSpan.FromMilliseconds(milliseconds));
}
