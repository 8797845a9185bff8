using KvCluster.Node.Shards;

namespace KvCluster.Node.Hosting;

/// <summary>
/// The boot clock with timers that share one of the system's: the replicas of a node are due at common moments, and a hundred timers that fire
/// together would each wake a thread of the pool. Callbacks run one after the other on one pool thread and must be short. Any thread.
/// </summary>
internal sealed class SharedTimers : TimeProvider, IDisposable
{
    private readonly Lock _lock = new();
    private readonly List<SharedTimer> _timers = [];
    private readonly ITimer _timer;
    private long _armedFor = long.MaxValue;

    public SharedTimers() => _timer = BootClock.Instance.CreateTimer(static state => ((SharedTimers)state!).Fire(), this, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);

    public override long TimestampFrequency => BootClock.Instance.TimestampFrequency;

    public override long GetTimestamp() => BootClock.Instance.GetTimestamp();

    public override DateTimeOffset GetUtcNow() => BootClock.Instance.GetUtcNow();

    /// <summary>A timer that fires once; it has no period.</summary>
    public override ITimer CreateTimer(TimerCallback callback, object? state, TimeSpan dueTime, TimeSpan period)
    {
        ArgumentOutOfRangeException.ThrowIfNotEqual(period, Timeout.InfiniteTimeSpan);
        var timer = new SharedTimer(this, callback, state);
        lock (_lock)
            _timers.Add(timer);
        timer.Change(dueTime, period);
        return timer;
    }

    public void Dispose() => _timer.Dispose();

    private void Set(SharedTimer timer, TimeSpan dueTime)
    {
        lock (_lock)
        {
            timer.DueAt = dueTime == Timeout.InfiniteTimeSpan ? long.MaxValue : GetTimestamp() + (long)(dueTime.TotalSeconds * TimestampFrequency);
            if (timer.DueAt < _armedFor)
                ArmLocked(timer.DueAt);
        }
    }

    private void Remove(SharedTimer timer)
    {
        lock (_lock)
            _timers.Remove(timer);
    }

    // The system's timers count whole milliseconds; one that fires early finds nothing due and is set again.
    private void ArmLocked(long dueAt)
    {
        _armedFor = dueAt;
        var wait = TimeSpan.FromSeconds((double)Math.Max(0, dueAt - GetTimestamp()) / TimestampFrequency);
        _timer.Change(TimeSpan.FromMilliseconds(Math.Ceiling(wait.TotalMilliseconds)), Timeout.InfiniteTimeSpan);
    }

    private void Fire()
    {
        var due = new List<SharedTimer>();
        lock (_lock)
        {
            var now = GetTimestamp();
            var next = long.MaxValue;
            foreach (var timer in _timers)
            {
                if (timer.DueAt > now)
                {
                    next = Math.Min(next, timer.DueAt);
                    continue;
                }
                timer.DueAt = long.MaxValue;
                due.Add(timer);
            }
            _armedFor = long.MaxValue;
            if (next != long.MaxValue)
                ArmLocked(next);
        }
        foreach (var timer in due)
            timer.Callback(timer.State);
    }

    private sealed class SharedTimer(SharedTimers owner, TimerCallback callback, object? state) : ITimer
    {
        public TimerCallback Callback => callback;

        public object? State => state;

        /// <summary>By the owner's clock; under its lock.</summary>
        public long DueAt { get; set; } = long.MaxValue;

        public bool Change(TimeSpan dueTime, TimeSpan period)
        {
            owner.Set(this, dueTime);
            return true;
        }

        public void Dispose() => owner.Remove(this);

        public ValueTask DisposeAsync()
        {
            Dispose();
            return ValueTask.CompletedTask;
        }
    }
}
