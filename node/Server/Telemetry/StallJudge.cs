namespace KvCluster.Node.Telemetry;

/// <summary>Tells from looks at a thread whether it stood still: it worked on one item, or had work and did not begin. Has no clock of its own.</summary>
internal sealed class StallJudge
{
    private long _turn = -1;
    private bool _stands;
    private TimeSpan _since;
    private TimeSpan _lookedAt;

    /// <summary>Looks again.</summary>
    /// <param name="turn">Rises when an item begins and when it ends: odd while one runs.</param>
    /// <param name="hasWork">Items wait.</param>
    /// <param name="now">The time of the look.</param>
    /// <returns>How long it stood still, if that has ended since the last look, give or take half of the time between two looks; otherwise zero.</returns>
    public TimeSpan Look(long turn, bool hasWork, TimeSpan now)
    {
        var stands = (turn & 1) != 0 || hasWork;
        var before = _turn < 0 ? now : _lookedAt;
        _lookedAt = now;
        if (_stands && stands && turn == _turn)
            return TimeSpan.Zero;
        // What ended, and what began, did so at some time between two looks.
        var between = (before + now) / 2;
        var stood = _stands ? between - _since : TimeSpan.Zero;
        (_turn, _stands, _since) = (turn, stands, between);
        return stood;
    }

    /// <summary>For how long it has stood still so far.</summary>
    public TimeSpan StandsFor(TimeSpan now) => _stands ? now - _since : TimeSpan.Zero;

    /// <summary>Forgets what it saw: who looks stood still as well.</summary>
    public void Forget() => (_turn, _stands) = (-1, false);
}
