using KvCluster.ServiceDefaults.Memory;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>
/// How a process returns memory that it no longer uses. After floods of 2 to 4 GB, nodes and a router kept all of it for a quarter of an hour and
/// longer. The memory in use was taken from the last full collection, made during the flood, and with that much in use nothing was returned. Nothing
/// else collects in an idle process.
/// </summary>
public sealed class IdleMemoryTests
{
    private const long Mebibyte = 1L << 20;
    private const long LookMs = 2_000;

    private readonly IdleMemory _rule = new();
    private readonly List<IdleMemoryStep> _steps = [];
    private long _nowMs = 1_000_000;
    private long _allocated;
    private long _collections = 7;
    private long _committed = 40 * Mebibyte;
    private long _live = 30 * Mebibyte;

    /// <summary>The value that the next measurement will find.</summary>
    private long _reallyLive = 30 * Mebibyte;

    [Fact]
    public void Look_IdleAfterAFlood_ReturnsTheMemoryInSteps()
    {
        Flood(committed: 4_040, live: 3_900);
        LookWhileIdle(25);
        Assert.Equal([IdleMemoryStep.Measure, IdleMemoryStep.Compact], _steps.Take(2));
        Assert.Equal(IdleMemoryStep.Return, _steps.SkipWhile(step => step != IdleMemoryStep.Trim).SkipWhile(step => step == IdleMemoryStep.Trim).First());
        Assert.InRange(_committed, 0, 40 * Mebibyte);
        // With so little committed it is not measured any more.
        _steps.Clear();
        LookWhileIdle(1_000);
        Assert.All(_steps, static step => Assert.Equal(IdleMemoryStep.TrimNative, step));
    }

    // A node that had opened 100 shards kept for ever what that had taken, because it was less than 64 MiB.
    [Fact]
    public void Look_IdleAfterASmallStart_CompactsAndTrimsOnce()
    {
        _reallyLive = 20 * Mebibyte;
        Flood(committed: 60, live: 50);
        LookWhileIdle(25);
        Assert.Equal([IdleMemoryStep.Measure, IdleMemoryStep.Compact, IdleMemoryStep.Trim], _steps.Take(3));
        Assert.DoesNotContain(IdleMemoryStep.Return, _steps);
    }

    // The C library keeps what was freed, above all of the compiler's memory, also where the garbage collector's heap is small.
    [Fact]
    public void Look_WithLittleCommitted_ReturnsNativeMemoryNowAndThen()
    {
        Flood(committed: 20, live: 15);
        LookWhileIdle(1_000);
        Assert.All(_steps, static step => Assert.Equal(IdleMemoryStep.TrimNative, step));
        Assert.InRange(_steps.Count, 2, 15);
    }

    [Fact]
    public void Look_WithLittleUnused_StopsNobody()
    {
        _reallyLive = 50 * Mebibyte;
        Flood(committed: 60, live: 50);
        LookWhileIdle(1_000);
        Assert.All(_steps, static step => Assert.Equal(IdleMemoryStep.Measure, step));
        Assert.InRange(_steps.Count, 2, 15);
    }

    [Fact]
    public void Look_WithMuchMemoryInUse_NeverPausesTheProcessForLong()
    {
        _reallyLive = 2_000 * Mebibyte;
        Flood(committed: 4_000, live: 3_900);
        LookWhileIdle(1_000);
        Assert.DoesNotContain(IdleMemoryStep.Compact, _steps);
        Assert.DoesNotContain(IdleMemoryStep.Return, _steps);
        Assert.Contains(IdleMemoryStep.Trim, _steps);
        // Nor does it measure repeatedly: a dozen times in half an hour at most.
        Assert.InRange(_steps.Count(step => step == IdleMemoryStep.Measure), 2, 15);
        // The memory belonged to idle connections, which now end.
        _reallyLive = 30 * Mebibyte;
        LookWhileIdle((int)(IdleMemory.PauseMaxMs / LookMs) + 25);
        Assert.InRange(_committed, 0, 40 * Mebibyte);
    }

    [Fact]
    public void Look_WhileBusy_DoesNothing()
    {
        Flood(committed: 1_000, live: 900);
        for (var look = 0; look < 100; look++)
            Flood(committed: 1_000, live: 900);
        Assert.Empty(_steps);
        // Steps already begun do not continue either.
        LookWhileIdle(2);
        Assert.Equal(2, _steps.Count);
        Flood(committed: 1_000, live: 900);
        LookWhileIdle(1);
        Assert.Equal(2, _steps.Count);
    }

    [Fact]
    public void Look_WithRepeatedBursts_MeasuresOncePerPause()
    {
        const int rounds = 100;
        for (var round = 0; round < rounds; round++)
        {
            Flood(committed: 200, live: 100);
            LookWhileIdle(1);
        }
        Assert.All(_steps, step => Assert.Equal(IdleMemoryStep.Measure, step));
        Assert.InRange(_steps.Count, 2, (int)(rounds * 2 * LookMs / IdleMemory.PauseMs) + 1);
    }

    [Fact]
    public void Look_StepsReturnNothing_EndsThem()
    {
        Flood(committed: 1_000, live: 900);
        _reallyLive = 400 * Mebibyte;
        LookWhileIdle(2);
        Assert.Equal(IdleMemoryStep.Trim, _steps[^1]);
        _steps.Clear();
        for (var look = 0; look < 3; look++)
            Look(allocated: 0, obeys: false);
        Assert.Equal([IdleMemoryStep.Trim], _steps);
    }

    private void Flood(long committed, long live)
    {
        _committed = committed * Mebibyte;
        _live = live * Mebibyte;
        Look(allocated: 1_000 * Mebibyte);
    }

    private void LookWhileIdle(int looks)
    {
        for (var look = 0; look < looks; look++)
            Look(allocated: Mebibyte);
    }

    // Also simulates what the collector does then.
    private void Look(long allocated, bool obeys = true)
    {
        _nowMs += LookMs;
        _allocated += allocated;
        var step = _rule.Look(new IdleMemoryReading(_nowMs, _allocated, _committed, _collections, _live));
        if (step == IdleMemoryStep.None)
            return;
        _steps.Add(step);
        if (!obeys)
            return;
        if (step is IdleMemoryStep.Measure or IdleMemoryStep.Compact)
        {
            _collections++;
            _live = _reallyLive;
        }
        if (step is IdleMemoryStep.Trim or IdleMemoryStep.Compact)
            _committed = Math.Max(Math.Min(_committed, _live + (100 * Mebibyte)), _committed - (320 * Mebibyte));
        if (step == IdleMemoryStep.Return)
            _committed = _live;
    }
}
