namespace KvCluster.Simulation.Cluster;

/// <summary>
/// One queue of timed events, and a clock that jumps from each event to the next. Only the thread that made it may use it: what goes on on another thread does
/// so at another moment in each run, so that two runs of a seed differ.
/// </summary>
internal sealed class VirtualTime(Action<long> stepped) : TimeProvider
{
    private readonly PriorityQueue<Action, (long DueUs, long Order)> _due = new();
    private readonly int _thread = Environment.CurrentManagedThreadId;
    private long _order;
    private bool _isOver;

    public long NowUs { get; private set; } = 1;

    public override long TimestampFrequency => TimeSpan.TicksPerSecond;

    /// <exception cref="Violation">Called on another thread.</exception>
    public void After(long delayUs, Action action)
    {
        if (_isOver)
            return;
        if (Environment.CurrentManagedThreadId != _thread)
            throw new Violation(Rule.Contract, "something of the run goes on on another thread");
        _due.Enqueue(action, (NowUs + delayUs, _order++));
    }

    /// <summary>The run is over: nothing happens any more. What the end of its processes begins may be on any thread.</summary>
    public void End() => _isOver = true;

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
