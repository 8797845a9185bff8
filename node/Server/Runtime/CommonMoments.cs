namespace KvCluster.Node.Runtime;

/// <summary>Moments shared by everything in a process, so that work that may wait wakes it together.</summary>
internal static class CommonMoments
{
    /// <summary>Timers count in whole milliseconds and may fire one too early. A moment this close is considered to have passed.</summary>
    private static readonly TimeSpan Slack = TimeSpan.FromMilliseconds(5);

    /// <summary>The time until the next multiple of an interval, counted from the machine's start like the replicas' own times.</summary>
    /// <param name="interval">Much longer than the slack of 5 ms.</param>
    public static TimeSpan Until(TimeSpan interval)
    {
        var left = interval.Ticks - BootClock.Instance.GetElapsedTime(0).Ticks % interval.Ticks;
        if (left < Slack.Ticks)
            left += interval.Ticks;
        return TimeSpan.FromMilliseconds(Math.Ceiling(TimeSpan.FromTicks(left).TotalMilliseconds));
    }
}
