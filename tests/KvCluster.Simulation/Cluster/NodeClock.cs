namespace KvCluster.Simulation.Cluster;

/// <summary>
/// A node's clocks: the boot clock is the run's time with a drift, and what was skipped of it, and the wall clock has whatever time it was set to.
/// </summary>
internal sealed class NodeClock(ClusterRun run, int driftPermille) : TimeProvider
{
    public TimeSpan WallOffset { get; set; }

    public override long TimestampFrequency => run.Time.TimestampFrequency;

    public override long GetTimestamp()
    {
        var timestamp = run.Time.GetTimestamp() + (run.SkippedUs * (TimestampFrequency / 1_000_000));
        return timestamp + (timestamp * driftPermille / 1000);
    }

    public override DateTimeOffset GetUtcNow() => run.Time.GetUtcNow() + TimeSpan.FromMicroseconds(run.SkippedUs) + WallOffset;

    public override ITimer CreateTimer(TimerCallback callback, object? state, TimeSpan dueTime, TimeSpan period) =>
        new DriftingTimer(run.Time.CreateTimer(callback, state, Run(dueTime), Run(period)), this);

    // Converts an interval of this clock to the run's time.
    private TimeSpan Run(TimeSpan counted) => counted == Timeout.InfiniteTimeSpan ? counted : counted * (1000.0 / (1000 + driftPermille));

    private sealed class DriftingTimer(ITimer timer, NodeClock clock) : ITimer
    {
        public bool Change(TimeSpan dueTime, TimeSpan period) => timer.Change(clock.Run(dueTime), clock.Run(period));

        public void Dispose() => timer.Dispose();

        public ValueTask DisposeAsync() => timer.DisposeAsync();
    }
}
