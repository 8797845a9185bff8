namespace KvCluster.Node.Telemetry;

/// <summary>Detects from observations of a thread whether it stalled: it worked on one item, or had work and did not begin. Has no clock of its own.</summary>
internal sealed class StallJudge
{
    private long _turn = -1;
    private bool _stands;
    private TimeSpan _since;
    private TimeSpan _lookedAt;

    /// <summary>Whether the thread worked on an item or had work at the last observation.</summary>
    public bool Stands => _stands;

    /// <summary>Makes another observation.</summary>
    /// <param name="turn">Increases when an item begins and when it ends, so it is odd while one runs.</param>
    /// <param name="hasWork">Whether items wait.</param>
    /// <param name="now">The time of the observation.</param>
    /// <returns>The length of a stall that ended since the last observation, to within half of the interval between observations; otherwise zero.</returns>
    public TimeSpan Look(long turn, bool hasWork, TimeSpan now)
    {
        var stands = (turn & 1) != 0 || hasWork;
        var before = _turn < 0 ? now : _lookedAt;
        _lookedAt = now;
        if (_stands && stands && turn == _turn)
            return TimeSpan.Zero;
        // What ended and what began did so at an unknown time between the two observations.
        var between = (before + now) / 2;
        var stood = _stands ? between - _since : TimeSpan.Zero;
        (_turn, _stands, _since) = (turn, stands, between);
        return stood;
    }

    /// <summary>How long the thread has stalled so far.</summary>
    public TimeSpan StandsFor(TimeSpan now) => _stands ? now - _since : TimeSpan.Zero;

    /// <summary>Discards what was observed, because the observer stalled as well.</summary>
    public void Forget() => (_turn, _stands) = (-1, false);
}
