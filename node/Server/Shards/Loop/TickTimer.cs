namespace KvCluster.Node.Shards.Loop;

/// <summary>
/// Wakes a replica when its core's next tick is due. Its timer fires on any thread; everything else is called on the shard's writer executor.
/// </summary>
internal sealed class TickTimer : IAsyncDisposable
{
    // Divides the heartbeat interval, and is short compared to any timeout.
    private const long GridUs = 20_000;

    // For ticks more than FarUs away: heartbeats of quiescent leaders, and the timeouts of their followers.
    private const long FarGridUs = 500_000;
    private const long FarUs = 2_000_000;

    private readonly ITimer _timer;
    private long _dueUs;

    // The core's first event is a tick.
    private int _hasFired = 1;

    /// <param name="clock">The boot clock.</param>
    /// <param name="wake">Any thread. Must not block.</param>
    public TickTimer(TimeProvider clock, Action wake) => _timer = clock.CreateTimer(
        _ =>
        {
            Volatile.Write(ref _hasFired, 1);
            wake();
        },
        null,
        Timeout.InfiniteTimeSpan,
        Timeout.InfiniteTimeSpan);

    /// <summary>Whether it has fired since the last call.</summary>
    public bool TryTake()
    {
        if (Interlocked.Exchange(ref _hasFired, 0) == 0)
            return false;
        _dueUs = long.MaxValue;
        return true;
    }

    /// <summary>Has it fire by the time of the next tick. That is rounded up, so that the replicas of an idle node wake it rarely and together.</summary>
    public void Arm(long tickUs, long nowUs)
    {
        var dueUs = tickUs <= nowUs ? tickUs : RoundedUp(tickUs, tickUs - nowUs < FarUs ? GridUs : FarGridUs);
        if (dueUs >= _dueUs)
            return;
        _dueUs = dueUs;
        _timer.Change(TimeSpan.FromMicroseconds(Math.Max(0, dueUs - nowUs)), Timeout.InfiniteTimeSpan);
    }

    public ValueTask DisposeAsync() => _timer.DisposeAsync();

    private static long RoundedUp(long dueUs, long gridUs) => dueUs > long.MaxValue - gridUs ? long.MaxValue : (dueUs + gridUs - 1) / gridUs * gridUs;
}
