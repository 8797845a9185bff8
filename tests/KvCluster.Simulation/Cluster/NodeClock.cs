namespace KvCluster.Simulation.Cluster;

/// <summary>A node's clocks: the boot clock is the run's time, the wall clock is what somebody set it to.</summary>
internal sealed class NodeClock(VirtualTime time) : TimeProvider
{
    public TimeSpan WallOffset { get; set; }

    public override long TimestampFrequency => time.TimestampFrequency;

    public override long GetTimestamp() => time.GetTimestamp();

    public override DateTimeOffset GetUtcNow() => time.GetUtcNow() + WallOffset;

    public override ITimer CreateTimer(TimerCallback callback, object? state, TimeSpan dueTime, TimeSpan period) => time.CreateTimer(callback, state, dueTime, period);
}
