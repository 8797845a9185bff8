// Decides when an idle process returns memory to the system, and in which steps. Called by MemoryReturn.cs with the garbage collector's figures, on its
// timer's thread; it only decides.
namespace KvCluster.ServiceDefaults.Memory;

/// <summary>
/// The figures of the last collection may be out of date, because after a burst of calls it was made during the burst. So once the process is idle, memory in
/// use is measured first, by a background collection. If little is in use, the heap is compacted. Free memory is then returned in steps, each a collection
/// that has almost nothing to do, because returning gigabytes at once stops the process for a tenth of a second per gigabyte.
/// </summary>
internal sealed class IdleMemory
{
    /// <summary>With less committed, nothing is measured, and only memory outside the garbage collector's heap is returned.</summary>
    public const long CommittedBytesMin = 32L << 20;

    /// <summary>
    /// To compact the heap and to trim it is worth it from this much memory that is committed and not in use: a tenth of what an idle node takes.
    /// </summary>
    public const long TrimBytesMin = 16L << 20;

    /// <summary>To return all of the rest at once is worth it from this much.</summary>
    public const long UnusedBytesMin = 64L << 20;

    /// <summary>The most that is returned at once, which takes about 50 ms.</summary>
    public const long ReturnBytesMax = 512L << 20;

    /// <summary>A process that allocates less than this between two looks is idle.</summary>
    public const long IdleBytesMax = 8L << 20;

    /// <summary>With more than this in use, a compacting collection would stop the process for more than 100 ms, so the heap is not compacted.</summary>
    public const long LiveBytesMax = 256L << 20;

    /// <summary>A step that returned less than this had no effect.</summary>
    public const long GainBytesMin = 8L << 20;

    /// <summary>
    /// The minimum time between two measurements, in milliseconds. Buffers that servers keep for their connections are released some seconds after the
    /// connections. Doubled after each measurement until the process is busy again.
    /// </summary>
    public const long PauseMs = 15_000;

    /// <summary>The maximum time between two measurements, so that memory released after a long idle time is returned some minutes later.</summary>
    public const long PauseMaxMs = 240_000;

    private Phase _phase;
    private long _allocatedBytes;
    private long _measuredFrom;
    private long _measuredBytes;
    private long _committedBytes;
    private long _pauseMs = PauseMs;
    private long _nextMs = long.MinValue;

    private enum Phase
    {
        Waits,
        Measures,
        Compacted,
        Trims,
    }

    /// <summary>Decides what to do now.</summary>
    public IdleMemoryStep Look(in IdleMemoryReading now)
    {
        var isIdle = now.AllocatedBytes - _allocatedBytes < IdleBytesMax;
        _allocatedBytes = now.AllocatedBytes;
        if (!isIdle)
        {
            _phase = Phase.Waits;
            _nextMs = Math.Min(_nextMs, now.NowMs + PauseMs);
            _pauseMs = PauseMs;
            return IdleMemoryStep.None;
        }
        switch (_phase)
        {
            case Phase.Measures when now.FullCollections > _measuredFrom:
                return Begin(now);
            case Phase.Compacted or Phase.Trims:
                return GoOn(now);
        }
        if (now.NowMs < _nextMs)
            return IdleMemoryStep.None;
        _nextMs = now.NowMs + _pauseMs;
        _pauseMs = Math.Min(_pauseMs * 2, PauseMaxMs);
        if (now.CommittedBytes < CommittedBytesMin)
            return IdleMemoryStep.TrimNative;
        _phase = Phase.Measures;
        (_measuredFrom, _measuredBytes) = (now.FullCollections, now.CommittedBytes);
        return IdleMemoryStep.Measure;
    }

    private IdleMemoryStep Begin(in IdleMemoryReading now)
    {
        // What is committed is told too low after a background collection, until the next one of another kind. So with much committed it is not relied on.
        if (_measuredBytes < UnusedBytesMin && _measuredBytes - now.LiveBytes < TrimBytesMin)
        {
            _phase = Phase.Waits;
            return IdleMemoryStep.None;
        }
        _phase = now.LiveBytes <= LiveBytesMax ? Phase.Compacted : Phase.Trims;
        _committedBytes = long.MaxValue;
        return _phase == Phase.Compacted ? IdleMemoryStep.Compact : IdleMemoryStep.Trim;
    }

    private IdleMemoryStep GoOn(in IdleMemoryReading now)
    {
        var unused = now.CommittedBytes - now.LiveBytes;
        if (unused >= TrimBytesMin && _committedBytes - now.CommittedBytes >= GainBytesMin)
        {
            _committedBytes = now.CommittedBytes;
            return IdleMemoryStep.Trim;
        }
        var isCompacted = _phase == Phase.Compacted;
        _phase = Phase.Waits;
        return isCompacted && unused is >= UnusedBytesMin and <= ReturnBytesMax ? IdleMemoryStep.Return : IdleMemoryStep.None;
    }
}

/// <summary>The garbage collector's figures.</summary>
/// <param name="NowMs">The current time in milliseconds, by any monotonic clock.</param>
/// <param name="AllocatedBytes">Allocated since the process started.</param>
/// <param name="CommittedBytes">Committed after the last collection of any kind.</param>
/// <param name="FullCollections">The number of the last full collection, which increases.</param>
/// <param name="LiveBytes">In use after that collection.</param>
internal readonly record struct IdleMemoryReading(long NowMs, long AllocatedBytes, long CommittedBytes, long FullCollections, long LiveBytes);

/// <summary>A step to return unused memory.</summary>
internal enum IdleMemoryStep
{
    None,

    /// <summary>Returns free memory outside the garbage collector's heap.</summary>
    TrimNative,

    /// <summary>Does that too, and measures how much is in use, without stopping anybody.</summary>
    Measure,

    /// <summary>Compacts the heap.</summary>
    Compact,

    /// <summary>Returns a part of the free memory.</summary>
    Trim,

    /// <summary>Returns all of the rest.</summary>
    Return,
}
