namespace KvCluster.Replication.Following;

/// <summary>
/// How long ago a follower's committed state was its leader's: for reads that may be stale and say how stale. One statement of the leader that the
/// follower has not reached yet is kept until it has, so that one under steady load is not taken for one that stands still.
/// </summary>
internal sealed class Freshness
{
    private Etag _awaited;
    private long _awaitedSinceUs = long.MinValue;

    /// <summary>When all was committed here that the leader said was; <see cref="long.MinValue"/>: not since the start.</summary>
    public long CurrentUs { get; private set; } = long.MinValue;

    /// <summary>A leader that serves its own epoch said what it has committed. One that does not serve yet may know less than was acknowledged.</summary>
    public void Heard(Etag leaderCommitted, Etag ownCommitted, long nowUs)
    {
        if (ownCommitted >= leaderCommitted)
        {
            CurrentUs = nowUs;
            _awaitedSinceUs = long.MinValue;
            return;
        }

        if (_awaitedSinceUs != long.MinValue && ownCommitted >= _awaited)
        {
            CurrentUs = _awaitedSinceUs;
            _awaitedSinceUs = long.MinValue;
        }

        if (_awaitedSinceUs == long.MinValue)
            (_awaited, _awaitedSinceUs) = (leaderCommitted, nowUs);
    }
}
