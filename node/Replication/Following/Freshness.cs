namespace KvCluster.Replication.Following;

/// <summary>
/// How long ago a follower had everything that its leader had committed, for reads that may be stale and report by how much. One committed etag of the leader
/// that the follower has not reached yet is remembered until it has. Otherwise a follower under steady load would seem not to advance.
/// </summary>
internal sealed class Freshness
{
    private Etag _awaited;
    private long _awaitedSinceUs = long.MinValue;

    /// <summary>
    /// The last time at which everything that the leader had reported as committed was committed here; <see cref="long.MinValue"/> if not since the start.
    /// </summary>
    public long CurrentUs
    {
        get;
        private set
        {
            Invariant.Check(value >= field, $"The state was current at {field}, and now it is so only at {value}.");
            field = value;
        }
    } = long.MinValue;

    /// <summary>A leader that serves its own epoch reported its committed etag. One that does not serve yet may know less than was acknowledged.</summary>
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
