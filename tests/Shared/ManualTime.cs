namespace KvCluster.Shared;

/// <summary>
/// A clock that advances only when a test tells it to. Due timers then run on the thread that advances it. Any thread may read it and set timers.
/// </summary>
internal sealed class ManualTime : TimeProvider
{
    private readonly Lock _gate = new();
    private readonly List<ManualTimer> _timers = [];
    private long _ticks = TimeSpan.TicksPerDay;

    public override long TimestampFrequency => TimeSpan.TicksPerSecond;

    /// <summary>How much the clock advances by itself whenever it is read.</summary>
    public TimeSpan PerLook { get; set; }

    public override long GetTimestamp() => Interlocked.Add(ref _ticks, PerLook.Ticks);

    public override DateTimeOffset GetUtcNow() => DateTimeOffset.UnixEpoch.AddDays(20_000).AddTicks(Interlocked.Read(ref _ticks));

    public override ITimer CreateTimer(TimerCallback callback, object? state, TimeSpan dueTime, TimeSpan period)
    {
        var timer = new ManualTimer(this, () => callback(state));
        timer.Change(dueTime, period);
        return timer;
    }

    public void Advance(TimeSpan time)
    {
        var now = Interlocked.Add(ref _ticks, time.Ticks);
        List<ManualTimer> due;
        lock (_gate)
            due = _timers.FindAll(timer => timer.DueTicks <= now);
        foreach (var timer in due)
            timer.Fire();
    }

    private sealed class ManualTimer(ManualTime time, Action fire) : ITimer
    {
        private TimeSpan _period;

        public long DueTicks { get; private set; }

        public void Fire()
        {
            Change(_period, _period);
            fire();
        }

        public bool Change(TimeSpan dueTime, TimeSpan period)
        {
            lock (time._gate)
            {
                time._timers.Remove(this);
                _period = period;
                if (dueTime == Timeout.InfiniteTimeSpan)
                    return true;
                DueTicks = Interlocked.Read(ref time._ticks) + dueTime.Ticks;
                time._timers.Add(this);
            }
            return true;
        }

        public void Dispose() => Change(Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);

        public ValueTask DisposeAsync()
        {
            Dispose();
            return ValueTask.CompletedTask;
        }
    }
}
