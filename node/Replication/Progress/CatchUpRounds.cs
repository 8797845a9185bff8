namespace KvCluster.Replication.Progress;

/// <summary>
/// How far a follower is behind its leader in time. A round begins with what the leader's journal has at that moment, and ends when the follower has
/// acknowledged that; then the next one begins. So the duration of a round is the lag. It is short for a follower that keeps up, however much is written, and
/// rounds become shorter while a follower catches up. From section 4.2.1 of Ongaro's dissertation on Raft.
/// </summary>
internal struct CatchUpRounds()
{
    private long _tookUs = long.MaxValue;
    private long _beganUs;

    // The etag that the present round has to reach; none if there is no round, because the follower lacks nothing.
    private Etag _goal;

    /// <summary>The follower has acknowledged more, or the leader's journal has more.</summary>
    /// <param name="acknowledged">What the follower has.</param>
    /// <param name="last">The end of the leader's journal.</param>
    /// <param name="nowUs">The boot clock.</param>
    public void Advance(Etag acknowledged, Etag last, long nowUs)
    {
        if (_goal != Etag.None && acknowledged >= _goal)
            (_tookUs, _goal) = (nowUs - _beganUs, Etag.None);
        if (acknowledged >= last)
            _tookUs = 0;
        else if (_goal == Etag.None)
            (_goal, _beganUs) = (last, nowUs);
    }

    /// <summary>The duration of the last round, or of the present one if that takes longer; <see cref="long.MaxValue"/> before the first has ended.</summary>
    public readonly long LagUs(long nowUs) => Math.Max(_tookUs, _goal == Etag.None ? 0 : nowUs - _beganUs);
}
