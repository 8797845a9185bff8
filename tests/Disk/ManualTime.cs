namespace KvCluster.Disk;

/// <summary>A clock that a test moves.</summary>
internal sealed class ManualTime : TimeProvider
{
    private long _ticks = TimeSpan.TicksPerDay;

    public override long TimestampFrequency => TimeSpan.TicksPerSecond;

    public override long GetTimestamp() => _ticks;

    public override DateTimeOffset GetUtcNow() => DateTimeOffset.UnixEpoch.AddDays(20_000).AddTicks(_ticks);

    public void Advance(TimeSpan time) => _ticks += time.Ticks;
}
