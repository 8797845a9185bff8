namespace KvCluster.Node.Shards;

/// <summary>
/// Judges the journal's disk by how long records wait to become durable: slow, or not any more, with a wide gap between, so that leaderships do
/// not go to and fro. A shard without writes says nothing of its disk and keeps the last judgement. On the shard's writer executor.
/// </summary>
internal sealed class DiskPace
{
    /// <summary>On average: far above an ordinary sync under load, and what writers notice.</summary>
    private const long SlowUs = 250_000;

    private const long HealthyUs = 80_000;

    /// <summary>One wait of this length is enough; shorter than what makes callers give up.</summary>
    private const long StuckUs = 1_500_000;

    /// <summary>A wait's weight in the average is one part in this many: a single slow sync is no slow disk.</summary>
    private const int Weight = 8;

    private long _averageUs;
    private long _waitsSinceUs = -1;

    /// <summary>The judgement.</summary>
    public bool IsSlow { get; private set; }

    /// <summary>Takes note of the journal after a turn.</summary>
    /// <param name="nowUs">The boot clock.</param>
    /// <param name="rose">More became durable since the last call.</param>
    /// <param name="waits">Records wait to become durable.</param>
    /// <returns>Whether the judgement changed.</returns>
    public bool Observe(long nowUs, bool rose, bool waits)
    {
        var waitedUs = _waitsSinceUs < 0 ? 0 : nowUs - _waitsSinceUs;
        if (rose && _waitsSinceUs >= 0)
            _averageUs += (waitedUs - _averageUs) / Weight;
        if (rose || !waits || _waitsSinceUs < 0)
            _waitsSinceUs = waits ? nowUs : -1;
        var was = IsSlow;
        var stuck = !rose && waits && waitedUs > StuckUs;
        if (stuck)
            _averageUs = Math.Max(_averageUs, SlowUs + 1);
        IsSlow = IsSlow ? _averageUs > HealthyUs : _averageUs > SlowUs;
        return IsSlow != was;
    }
}
