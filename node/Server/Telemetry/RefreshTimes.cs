namespace KvCluster.Node.Telemetry;

/// <summary>Decides what each turn of <c>MetricsRefresh</c> does. Has no clock of its own; called by one loop.</summary>
internal sealed class RefreshTimes
{
    /// <summary>The least time between two turns.</summary>
    public static readonly TimeSpan TurnInterval = TimeSpan.FromSeconds(1);

    /// <summary>
    /// Between two looks at the replicas while somebody listens to the metrics. What is exported is as old at most, which is less than the time between two
    /// exports; with a hundred shards each second a tenth of what an idle node does was to read. Together with the samples of the history there are two in
    /// five seconds.
    /// </summary>
    public static readonly TimeSpan ReadInterval = TimeSpan.FromSeconds(3);

    // A turn may begin a little early.
    private static readonly TimeSpan Slack = TimeSpan.FromMilliseconds(100);

    private TimeSpan? _readAt;
    private TimeSpan? _sampledAt;

    /// <summary>Begins a turn.</summary>
    /// <param name="now">The time by any clock.</param>
    /// <param name="isWatched">Whether somebody listens to the metrics.</param>
    /// <returns>
    /// Whether calls are measured from now on until the next turn, whether the replicas are read, and whether that becomes a sample of the history.
    /// </returns>
    public (bool Measures, bool Reads, bool Samples) Next(TimeSpan now, bool isWatched)
    {
        var samples = HasPassed(RecentHistory.Interval, _sampledAt, now);
        // The second before a sample. Calls are not measured all the time, because that costs each of them.
        var measures = !samples && HasPassed(RecentHistory.Interval - TurnInterval, _sampledAt, now);
        var reads = samples || (isWatched && HasPassed(ReadInterval, _readAt, now));
        if (samples)
            _sampledAt = now;
        if (reads)
            _readAt = now;
        return (measures, reads, samples);
    }

    private static bool HasPassed(TimeSpan interval, TimeSpan? since, TimeSpan now) => since is not { } then || now - then >= interval - Slack;
}
