namespace KvCluster.Simulation.Cluster;

/// <summary>One queue of timed events, and a clock that jumps from each event to the next. Single-threaded.</summary>
internal sealed class VirtualTime(Action<long> stepped) : TimeProvider
{
    private readonly PriorityQueue<Action, (long DueUs, long Order)> _due = new();
    private long _order;

    public long NowUs { get; private set; } = 1;

    public override long TimestampFrequency => TimeSpan.TicksPerSecond;

    public void After(long delayUs, Action action) => _due.Enqueue(action, (NowUs + delayUs, _order++));

    public void RunUntil(long endUs, Func<bool> done)
    {
        while (!done() && _due.TryPeek(out _, out var next) && next.DueUs <= endUs)
        {
            NowUs = next.DueUs;
            stepped(NowUs);
            _due.Dequeue()();
        }
    }

    public override long GetTimestamp() => NowUs * TimeSpan.TicksPerMicrosecond;

    public override DateTimeOffset GetUtcNow() => DateTimeOffset.UnixEpoch.AddDays(20_000).AddMicroseconds(NowUs);

    public override ITimer CreateTimer(TimerCallback callback, object? state, TimeSpan dueTime, TimeSpan period)
    {
        var timer = new VirtualTimer(this, () => callback(state));
        timer.Change(dueTime, period);
        return timer;
    }

    private sealed class VirtualTimer(VirtualTime time, Action fire) : ITimer
    {
        private int _version;

        public bool Change(TimeSpan dueTime, TimeSpan period)
        {
            var version = ++_version;
            if (dueTime == Timeout.InfiniteTimeSpan)
                return true;
            time.After(dueTime.Ticks / TimeSpan.TicksPerMicrosecond + 1, () =>
            {
                if (version != _version)
                    return;
                fire();
                if (version == _version && period != Timeout.InfiniteTimeSpan)
                    Change(period, period);
            });
            return true;
        }

        public void Dispose() => _version++;

        public ValueTask DisposeAsync()
        {
            Dispose();
            return ValueTask.CompletedTask;
        }
    }
}
