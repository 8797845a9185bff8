namespace KvCluster.Node.Runtime;

/// <summary>Moments that all of a process have in common, so that what may wait wakes it together.</summary>
internal static class CommonMoments
{
    /// <summary>Timers go by whole milliseconds and may fire one early; what is so near is the moment that has just been.</summary>
    private static readonly TimeSpan Slack = TimeSpan.FromMilliseconds(5);

    /// <summary>Until the next multiple of an interval, counted from when the machine was started, as the replicas' own times are.</summary>
    /// <param name="interval">Far above the slack of 5 ms.</param>
    public static TimeSpan Until(TimeSpan interval)
    {
        var left = interval.Ticks - BootClock.Instance.GetElapsedTime(0).Ticks % interval.Ticks;
        if (left < Slack.Ticks)
            left += interval.Ticks;
        return TimeSpan.FromMilliseconds(Math.Ceiling(TimeSpan.FromTicks(left).TotalMilliseconds));
    }
}
