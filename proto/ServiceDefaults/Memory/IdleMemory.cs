// When a process that has become idle gives memory back, and by which steps. Asked by MemoryReturn.cs with what the collector says, on its timer's thread; does
// nothing itself.
namespace KvCluster.ServiceDefaults.Memory;

/// <summary>
/// What was in use at the last collection says nothing about now: after a flood that one was made during it. So what is in use is measured first, by a collection in the
/// background, once the process is idle. Where it is little, it is compacted. What is free then goes in steps, each a collection of next to nothing: to give back
/// gigabytes at once stops the process for a tenth of a second each.
/// </summary>
internal sealed class IdleMemory
{
    /// <summary>Committed and not in use at which a collection is worth it.</summary>
    public const long UnusedBytesLeast = 64L << 20;

    /// <summary>Given back at once at most; it takes some 50 ms.</summary>
    public const long ReturnBytesMost = 512L << 20;

    /// <summary>Allocated between two looks: less is a process that does little.</summary>
    public const long IdleBytesMost = 8L << 20;

    /// <summary>A heap with so much in use would be stopped for more than 100 ms by a whole compacting collection; it is not compacted.</summary>
    public const long LiveBytesMost = 256L << 20;

    /// <summary>A step that gave back less was in vain.</summary>
    public const long GainBytesLeast = 8L << 20;

    /// <summary>
    /// Between two measurements at least, in milliseconds: buffers that servers keep for their connections are let go some seconds after those. Doubled by each until the
    /// process is busy again.
    /// </summary>
    public const long PauseMs = 15_000;

    /// <summary>At most: what stands idle for long is given back some minutes after it ended.</summary>
    public const long PauseMaxMs = 240_000;

    private Phase _phase;
    private long _allocatedBytes;
    private long _measuredFrom;
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

    /// <summary>What to do now.</summary>
    public IdleMemoryStep Look(in IdleMemoryReading now)
    {
        var isIdle = now.AllocatedBytes - _allocatedBytes < IdleBytesMost;
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
                _phase = now.LiveBytes <= LiveBytesMost ? Phase.Compacted : Phase.Trims;
                // Told too low after a collection in the background, until the next one of another kind.
                _committedBytes = long.MaxValue;
                return _phase == Phase.Compacted ? IdleMemoryStep.Compact : IdleMemoryStep.Trim;
            case Phase.Compacted or Phase.Trims:
                return GoOn(now);
        }
        if (now.NowMs < _nextMs || now.CommittedBytes < UnusedBytesLeast)
            return IdleMemoryStep.None;
        _phase = Phase.Measures;
        _measuredFrom = now.FullCollections;
        _nextMs = now.NowMs + _pauseMs;
        _pauseMs = Math.Min(_pauseMs * 2, PauseMaxMs);
        return IdleMemoryStep.Measure;
    }

    private IdleMemoryStep GoOn(in IdleMemoryReading now)
    {
        var unused = now.CommittedBytes - now.LiveBytes;
        if (unused >= UnusedBytesLeast && _committedBytes - now.CommittedBytes >= GainBytesLeast)
        {
            _committedBytes = now.CommittedBytes;
            return IdleMemoryStep.Trim;
        }
        var isCompacted = _phase == Phase.Compacted;
        _phase = Phase.Waits;
        return isCompacted && unused is >= UnusedBytesLeast and <= ReturnBytesMost ? IdleMemoryStep.Return : IdleMemoryStep.None;
    }
}

/// <summary>What the collector says.</summary>
/// <param name="NowMs">A clock.</param>
/// <param name="AllocatedBytes">Since the process began.</param>
/// <param name="CommittedBytes">After the last collection of any kind.</param>
/// <param name="FullCollections">The number of the last collection of everything; it rises.</param>
/// <param name="LiveBytes">In use after that one.</param>
internal readonly record struct IdleMemoryReading(long NowMs, long AllocatedBytes, long CommittedBytes, long FullCollections, long LiveBytes);

/// <summary>What a process does about its unused memory.</summary>
internal enum IdleMemoryStep
{
    None,

    /// <summary>Finds out how much is in use, without stopping anybody.</summary>
    Measure,

    /// <summary>Moves what is in use together.</summary>
    Compact,

    /// <summary>Gives a part back.</summary>
    Trim,

    /// <summary>Gives all of the rest back.</summary>
    Return,
}
