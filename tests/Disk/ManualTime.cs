namespace KvCluster.Disk;

/// <summary>A clock that a test moves; timers run when it is moved. One thread.</summary>
internal sealed class ManualTime : TimeProvider
{
    private readonly List<ManualTimer> _timers = [];
    private long _ticks = TimeSpan.TicksPerDay;

    public override long TimestampFrequency => TimeSpan.TicksPerSecond;

    /// <summary>Passes by itself at each look at the clock.</summary>
    public TimeSpan PerLook { get; set; }

    public override long GetTimestamp() => _ticks += PerLook.Ticks;

    public override DateTimeOffset GetUtcNow() => DateTimeOffset.UnixEpoch.AddDays(20_000).AddTicks(_ticks);

    public override ITimer CreateTimer(TimerCallback callback, object? state, TimeSpan dueTime, TimeSpan period)
    {
        var timer = new ManualTimer(this, () => callback(state));
        timer.Change(dueTime, period);
        return timer;
    }

    public void Advance(TimeSpan time)
    {
        _ticks += time.Ticks;
        foreach (var timer in _timers.FindAll(timer => timer.DueTicks <= _ticks))
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
            time._timers.Remove(this);
            _period = period;
            if (dueTime == Timeout.InfiniteTimeSpan)
                return true;
            DueTicks = time._ticks + dueTime.Ticks;
            time._timers.Add(this);
            return true;
        }

        public void Dispose() => time._timers.Remove(this);

        public ValueTask DisposeAsync()
        {
            Dispose();
            return ValueTask.CompletedTask;
        }
    }
}
