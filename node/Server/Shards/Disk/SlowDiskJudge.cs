namespace KvCluster.Node.Shards.Disk;

/// <summary>
/// Judges the journal's disk by how long records wait to become durable. A disk that is merely slower than those of the other replicas is found by the core
/// (<c>JournalPace</c>), which also decides to whom a leader on a slow disk transfers (<c>Succession</c>). The bounds for slow and healthy are far apart, so
/// that leaderships do not oscillate. A shard without writes learns nothing of its disk and keeps the last judgement. Runs on the shard's writer executor.
/// </summary>
internal sealed class SlowDiskJudge
{
    /// <summary>Average wait above which the disk is slow: far above an ordinary sync under load, and noticeable to writers.</summary>
    private const long SlowUs = 250_000;

    private const long HealthyUs = 80_000;

    /// <summary>A single wait of this length makes the disk slow. Shorter than the time after which callers give up.</summary>
    private const long StuckUs = 1_500_000;

    /// <summary>Each wait contributes one part in this many to the moving average, so that a single slow sync does not make a disk slow.</summary>
    private const int Weight = 8;

    /// <summary>
    /// So long must records have waited while the average was above its bound, without becoming healthy between. Longer than a burst, as when a thousand shards
    /// that began to be written together need their next segments together: to move their leaderships then would only add to it.
    /// </summary>
    private const long SlowAfterUs = 3_000_000;

    private long _averageUs;
    private long _waitsSinceUs = -1;
    private long _waitedAboveUs;

    /// <summary>Whether the disk is judged slow.</summary>
    public bool IsSlow { get; private set; }

    /// <summary>Observes the journal after a turn.</summary>
    /// <param name="nowUs">The boot clock.</param>
    /// <param name="roseUs">
    /// When more became durable, if it did since the last call. That is the time of the write and not of this turn, which on busy processors comes long
    /// after it and tells nothing of the disk.
    /// </param>
    /// <param name="waits">Whether records wait to become durable.</param>
    /// <returns>Whether the judgement changed.</returns>
    public bool Observe(long nowUs, long? roseUs, bool waits)
    {
        var rose = roseUs is not null;
        var waitedUs = _waitsSinceUs < 0 ? 0 : Math.Max(0, (roseUs ?? nowUs) - _waitsSinceUs);
        if (rose && _waitsSinceUs >= 0)
            _averageUs += (waitedUs - _averageUs) / Weight;
        if (rose || !waits || _waitsSinceUs < 0)
            _waitsSinceUs = waits ? nowUs : -1;
        var was = IsSlow;
        var stuck = !rose && waits && waitedUs > StuckUs;
        if (stuck)
            _averageUs = Math.Max(_averageUs, SlowUs + 1);
        // An average that swings around the bound adds up, too.
        if (_averageUs <= HealthyUs)
            _waitedAboveUs = 0;
        else if (rose && _averageUs > SlowUs)
            _waitedAboveUs += waitedUs;
        IsSlow = IsSlow ? _averageUs > HealthyUs : stuck || _waitedAboveUs >= SlowAfterUs;
        return IsSlow != was;
    }
}
