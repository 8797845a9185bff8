// Decides whether the loop of an exchange may read trees itself. All calls of a stream wait for the loop, and a router's stream has many callers: 128 Gets of
// pages that the disk needed 200 ms for delayed everything behind them by 25 seconds, one after the other, while the read threads were idle. It is not known
// beforehand whether a page is in memory. So the loop reads until it had to wait for the disk, and then avoids reading for a multiple of that time. Asking for
// the kernel's counters costs as much as a small read. So they are read only after a slow call, and for a second after that at the beginning of each message;
// the first call that waits therefore has no consequence. Used by that loop only.
namespace KvCluster.Node.Api;

/// <summary>Judges the calls that a loop runs one after the other.</summary>
/// <param name="timestampFrequency">Ticks per second of the timestamps passed in.</param>
/// <param name="diskWaits">How often the calling thread has waited for the disk. A call that was slow without such a wait was preempted.</param>
internal sealed class InlineReads(long timestampFrequency, Func<long> diskWaits)
{
    /// <summary>A call that takes longer, in microseconds, is slow. This is as long as some reads of a fast disk, and as many thread switches.</summary>
    private const int SlowUs = 250;

    /// <summary>
    /// After waiting for the disk, the loop reads no trees for this many times the length of that wait, so waits take at most a seventeenth of its time.
    /// </summary>
    private const int RestShare = 16;

    /// <summary>For this long after a slow call, in seconds, the kernel's counters are read for each message.</summary>
    private const int WatchSeconds = 1;

    /// <summary>The longest such time, in seconds. Only after it does the loop learn that the disk is fast again.</summary>
    private const int RestMaxSeconds = 10;

    private readonly long _slow = timestampFrequency * SlowUs / 1_000_000;
    private readonly long _restMax = timestampFrequency * RestMaxSeconds;

    // The maximum value means that no call runs.
    private long _begun = long.MaxValue;
    private long _restsUntil;
    private long _watchesUntil;
    private long _waitsBefore;

    // Whether _waitsBefore was read on this thread and for this message.
    private bool _isKnown;

    /// <summary>The loop begins a message's calls, on this thread until <see cref="Ended"/>.</summary>
    public void Starts(long now)
    {
        _isKnown = now < _watchesUntil;
        if (_isKnown)
            _waitsBefore = diskWaits();
    }

    /// <summary>A call begins, which ends the one before. False if it must not read trees on this thread.</summary>
    public bool Begun(long now)
    {
        Judge(now);
        _begun = now;
        return now >= _restsUntil;
    }

    /// <summary>The last call has ended.</summary>
    public void Ended(long now)
    {
        Judge(now);
        _begun = long.MaxValue;
    }

    private void Judge(long now)
    {
        var took = now - _begun;
        if (took < _slow)
            return;
        var waits = diskWaits();
        if (_isKnown && waits != _waitsBefore)
            _restsUntil = now + Math.Min(took * RestShare, _restMax);
        _waitsBefore = waits;
        _isKnown = true;
        _watchesUntil = Math.Max(now, _restsUntil) + (timestampFrequency * WatchSeconds);
    }
}
