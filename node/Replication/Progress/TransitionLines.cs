namespace KvCluster.Replication.Progress;

/// <summary>
/// Which changes of a follower's state are logged. One whose disk is full is sent bodies, stalls and is probed, again and again, as long as that lasts: each of
/// these changes is logged once in an interval, with the number of those that were not. One per follower and epoch.
/// </summary>
internal sealed class TransitionLines
{
    /// <summary>Long enough that a follower that stalls for hours fills no log, and short enough to show that it still does.</summary>
    public const long IntervalUs = 60_000_000;

    private readonly Dictionary<(FollowerState From, FollowerSignal Signal), (long SaidUs, int Unsaid)> _said = [];

    /// <summary>Whether a change is to be logged now.</summary>
    /// <param name="from">The state before the signal.</param>
    /// <param name="signal">What caused the change.</param>
    /// <param name="nowUs">The time.</param>
    /// <param name="unsaid">How many of the same kind were not logged since the last one that was.</param>
    public bool MaySay(FollowerState from, FollowerSignal signal, long nowUs, out int unsaid)
    {
        (var said, unsaid) = _said.GetValueOrDefault((from, signal), (nowUs - IntervalUs, 0));
        if (nowUs - said < IntervalUs)
        {
            _said[(from, signal)] = (said, unsaid + 1);
            return false;
        }

        _said[(from, signal)] = (nowUs, 0);
        return true;
    }
}
