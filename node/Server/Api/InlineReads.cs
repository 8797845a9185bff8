// Whether the loop of an exchange may read trees itself. All calls of a stream wait for the loop, and a router's stream has many callers: 128 Gets of pages that the disk needed 200 ms for held
// everything behind them up for 25 seconds, one after the other, while the threads for reads had nothing to do. Nobody knows beforehand whether a page is in memory; so the loop reads until the disk
// had it wait, and stays away for a multiple of that time. Asking what the kernel has counted costs as
// much as a small read; so that is asked after a call that took long, and at the begin of each message for a second after that, and the first call that waits is let pass. Used by that loop only.
namespace KvCluster.Node.Api;

/// <summary>Judges the calls that a loop has run, one after the other.</summary>
/// <param name="timestampFrequency">Of the timestamps that are told.</param>
/// <param name="diskWaits">How often the thread that asks has waited for the disk. A call that took long without that had no processor.</param>
internal sealed class InlineReads(long timestampFrequency, Func<long> diskWaits)
{
    /// <summary>A call that takes longer is a slow one, in microseconds: some reads of a fast disk, and a change of threads many times over.</summary>
    private const int SlowUs = 250;

    /// <summary>The loop stays away from trees for so many times what it waited: waiting takes a seventeenth of its time at most.</summary>
    private const int RestShare = 16;

    /// <summary>For so long after a slow call the kernel's count is known for each call, in seconds.</summary>
    private const int WatchSeconds = 1;

    /// <summary>It stays away no longer, in seconds: only then does it learn that the disk is well again.</summary>
    private const int RestMaxSeconds = 10;

    private readonly long _slow = timestampFrequency * SlowUs / 1_000_000;
    private readonly long _restMax = timestampFrequency * RestMaxSeconds;

    // The greatest number: nothing runs.
    private long _begun = long.MaxValue;
    private long _restsUntil;
    private long _watchesUntil;
    private long _waitsBefore;

    // It is this thread's, of this message.
    private bool _isKnown;

    /// <summary>The loop is to begin calls, on this thread until <see cref="Ended"/>.</summary>
    public void Starts(long now)
    {
        _isKnown = now < _watchesUntil;
        if (_isKnown)
            _waitsBefore = diskWaits();
    }

    /// <summary>A call begins, which ends the one before. False: it is not to read trees on this thread.</summary>
    public bool Begun(long now)
    {
        Judge(now);
        _begun = now;
        return now >= _restsUntil;
    }

    /// <summary>The last call has ended, and the loop waits for others.</summary>
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
