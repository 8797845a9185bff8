namespace KvCluster.Storage.Threads;

/// <summary>
/// A clock with timers that share one thread. The replicas of a node are due at common moments, and a hundred separate timers would each wake a
/// thread of the pool. The thread is a dedicated one because heartbeats depend on it, and the pauses of writers and checkpoints: in a full pool they would wait
/// behind all of the callers' work, for longer than followers wait. Callbacks run on it one after the other, must be short and must not throw. Any thread.
/// </summary>
internal sealed class SharedTimers : TimeProvider, IDisposable
{
    /// <summary>Longer than the time between two heartbeats, whose timers fire at their own moments.</summary>
    private static readonly TimeSpan LongTime = TimeSpan.FromMilliseconds(150);

    /// <summary>Timers that are set for longer fire at most this part of a second later than they are due.</summary>
    private const int LongTimersPerSecond = 250;

    private readonly object _lock = new();
    private readonly TimeProvider _clock;

    /// <summary>The timers that are set. A timer that has fired belongs to its owner alone, who need not dispose of it.</summary>
    private readonly HashSet<SharedTimer> _timers = [];
    private readonly Thread _thread;
    private long _armedFor = long.MaxValue;
    private bool _isStopping;

    /// <summary>Called with each timer's delay. Must not block.</summary>
    public Action<TimeSpan> Late { get; set; } = static _ => { };

    /// <summary>Starts the thread.</summary>
    /// <param name="clock">Measures the time until timers are due. Its own timers are not used, and it must run like the system's clocks do.</param>
    public SharedTimers(TimeProvider clock)
    {
        _clock = clock;
        _thread = new Thread(Run) { Name = "kv-timers", IsBackground = true };
        _thread.Start();
    }

    /// <inheritdoc/>
    public override long TimestampFrequency => _clock.TimestampFrequency;

    /// <inheritdoc/>
    public override long GetTimestamp() => _clock.GetTimestamp();

    /// <inheritdoc/>
    public override DateTimeOffset GetUtcNow() => _clock.GetUtcNow();

    /// <summary>Creates a timer that fires once. Periods are not supported.</summary>
    public override ITimer CreateTimer(TimerCallback callback, object? state, TimeSpan dueTime, TimeSpan period)
    {
        ArgumentOutOfRangeException.ThrowIfNotEqual(period, Timeout.InfiniteTimeSpan);
        var timer = new SharedTimer(this, callback, state);
        timer.Change(dueTime, period);
        return timer;
    }

    /// <summary>No timer fires after this has returned, unless it is called from one.</summary>
    public void Dispose()
    {
        lock (_lock)
        {
            _isStopping = true;
            Monitor.Pulse(_lock);
        }
        if (Thread.CurrentThread != _thread)
            _thread.Join();
    }

    /// <summary>False, with nothing set, if the timer is disposed of.</summary>
    private bool TrySet(SharedTimer timer, TimeSpan dueTime)
    {
        lock (_lock)
        {
            if (timer.IsDisposed)
                return false;
            if (dueTime == Timeout.InfiniteTimeSpan)
            {
                _timers.Remove(timer);
                return true;
            }
            _timers.Add(timer);
            timer.DueAt = DueAt(dueTime);
            if (timer.DueAt >= _armedFor)
                return true;
            _armedFor = timer.DueAt;
            Monitor.Pulse(_lock);
            return true;
        }
    }

    // Timers that are meant for the same moment are set one after the other, for whole milliseconds. Each would wake the thread once more.
    private long DueAt(TimeSpan dueTime)
    {
        var dueAt = GetTimestamp() + (long)(dueTime.TotalSeconds * TimestampFrequency);
        var step = TimestampFrequency / LongTimersPerSecond;
        return dueTime < LongTime ? dueAt : (dueAt + step - 1) / step * step;
    }

    private void Remove(SharedTimer timer)
    {
        lock (_lock)
        {
            timer.IsDisposed = true;
            _timers.Remove(timer);
        }
    }

    private void Run()
    {
        var due = new List<SharedTimer>();
        while (AwaitDue(due, out var late))
        {
            foreach (var timer in due)
                timer.Callback(timer.State);
            due.Clear();
            Late(late);
        }
    }

    // False after disposal.
    private bool AwaitDue(List<SharedTimer> due, out TimeSpan late)
    {
        lock (_lock)
        {
            for (; !_isStopping; WaitLocked())
            {
                var now = GetTimestamp();
                if (_armedFor > now)
                    continue;
                late = TimeSpan.FromSeconds((double)(now - _armedFor) / TimestampFrequency);
                TakeDueLocked(due, now);
                return true;
            }
        }
        late = default;
        return false;
    }

    // Waits whole milliseconds. A wake-up that comes too early finds nothing due and waits again.
    private void WaitLocked()
    {
        Invariant.CheckHeld(_lock);
        if (_armedFor == long.MaxValue)
            Monitor.Wait(_lock);
        else
            Monitor.Wait(_lock, (int)Math.Min(int.MaxValue, Math.Ceiling(Math.Max(0, _armedFor - GetTimestamp()) * 1e3 / TimestampFrequency)));
    }

    private void TakeDueLocked(List<SharedTimer> due, long now)
    {
        Invariant.CheckHeld(_lock);
        _armedFor = long.MaxValue;
        foreach (var timer in _timers)
        {
            if (timer.DueAt > now)
                _armedFor = Math.Min(_armedFor, timer.DueAt);
            else
                due.Add(timer);
        }
        foreach (var timer in due)
            _timers.Remove(timer);
    }

    private sealed class SharedTimer(SharedTimers owner, TimerCallback callback, object? state) : ITimer
    {
        public TimerCallback Callback => callback;

        public object? State => state;

        /// <summary>While it is set, when it is due by the owner's clock; under the owner's lock.</summary>
        public long DueAt { get; set; }

        /// <summary>Whether the timer can no longer be set; under the owner's lock.</summary>
        public bool IsDisposed { get; set; }

        public bool Change(TimeSpan dueTime, TimeSpan period)
        {
            ArgumentOutOfRangeException.ThrowIfNotEqual(period, Timeout.InfiniteTimeSpan);
            return owner.TrySet(this, dueTime);
        }

        public void Dispose() => owner.Remove(this);

        public ValueTask DisposeAsync()
        {
            Dispose();
            return ValueTask.CompletedTask;
        }
    }
}
