// Watches the node's own threads, timers and thread pool, because a leader whose writer stalls for a second loses its shards without a fault elsewhere. A
// dedicated thread looks every 50 ms and reads the counters of kernel and runtime twice a second, and half as often while the node is idle, at a thousandth of
// a core. It wakes no other thread as long as nothing waits. A stall is reported as a warning in the log, as a metric, and in kv doctor. Journal and checkpoint
// threads are not watched, because waiting for the disk is their work.
using System.Diagnostics;
using System.Globalization;
using System.Runtime.InteropServices;
using KvCluster.Storage.Threads;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Telemetry;

/// <summary>The stalls of a node, with details of the last one.</summary>
/// <param name="Text">The last stall, for people.</param>
/// <param name="Length">Its duration.</param>
/// <param name="At">When it ended.</param>
/// <param name="Count">Number of stalls since the process began.</param>
internal sealed record LastStall(string Text, TimeSpan Length, DateTimeOffset At, long Count);

/// <summary>Watches for stalls until it is disposed.</summary>
internal sealed partial class StallWatch : IAsyncDisposable
{
    /// <summary>Two and a half heartbeat intervals; a follower campaigns after six.</summary>
    public static readonly TimeSpan Threshold = TimeSpan.FromMilliseconds(250);

    internal static readonly TimeSpan Interval = TimeSpan.FromMilliseconds(50);

    /// <summary>
    /// The interval while nothing runs. What stalls for <see cref="Threshold"/> is still seen at two looks, and from the first of them on the interval is the
    /// ordinary one.
    /// </summary>
    internal static readonly TimeSpan IdleInterval = TimeSpan.FromMilliseconds(120);

    /// <summary>A process that used less than this part of one processor since the last look is idle.</summary>
    private const int IdleShare = 20;

    /// <summary>The counters are read once per this many looks.</summary>
    private const int ReadEvery = 10;

    private readonly Watched[] _watched;
    private readonly NodeMetrics _metrics;
    private readonly ILogger _log;
    private readonly PoolProbe _pool = new();
    private readonly Thread _thread;
    // Does not spin before it waits: that would be much of what a look costs.
    private readonly ManualResetEventSlim _stopping = new(initialState: false, spinCount: 0);
    private readonly TaskCompletionSource _ended = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly long _began = Stopwatch.GetTimestamp();
    private readonly Lock _gate = new();
    private Vitals _own = Vitals.Read(thread: null);
    // The counters before the probe was queued.
    private Vitals _beforePool;
    private volatile LastStall? _last;

    /// <param name="writers">The threads to watch.</param>
    public StallWatch(IEnumerable<WorkThread> writers, NodeMetrics metrics, ILogger log)
    {
        _watched = [.. writers.Select(static writer => new Watched(writer))];
        _metrics = metrics;
        _log = log;
        _thread = new Thread(Run) { Name = "kv-stalls", IsBackground = true };
        _thread.Start();
    }

    /// <summary>Timers of the node fired this late. Any thread.</summary>
    public void TimersWereLate(TimeSpan late)
    {
        if (late >= Threshold)
            Report(Stall.Of("timers", "", late, Own, Vitals.Read(thread: null)));
    }

    /// <summary>The last stall and the number since the start; null if there was none. Any thread.</summary>
    public LastStall? Last => _last;

    public async ValueTask DisposeAsync()
    {
        _stopping.Set();
        await _ended.Task.ConfigureAwait(false);
        _stopping.Dispose();
        foreach (var watched in _watched)
            watched.Dispose();
    }

    /// <summary>The time until the next look.</summary>
    /// <param name="passed">Since the last look.</param>
    /// <param name="used">The processor time that the process used since then.</param>
    /// <param name="stands">Whether anything that is watched works on one thing or waits, as it does when it stalls.</param>
    internal static TimeSpan IntervalAfter(TimeSpan passed, TimeSpan used, bool stands) => stands || used >= passed / IdleShare ? Interval : IdleInterval;

    private void Run()
    {
        var looked = Now;
        var usedBefore = Environment.CpuUsage.TotalTime;
        var interval = Interval;
        for (var look = 0; !_stopping.Wait(interval); look++)
        {
            var now = Now;
            var passed = now - looked;
            var late = passed - interval;
            looked = now;
            if (late >= Threshold)
            {
                Report(Stall.Of("process", "", late, Own, Vitals.Read(thread: null)));
                // All threads stalled, which has been reported. It is not known what each of them did meanwhile.
                foreach (var watched in _watched)
                    watched.Judge.Forget();
            }
            LookAtPool();
            var stands = _pool.IsQueued;
            foreach (var watched in _watched)
            {
                Look(watched, now);
                stands |= watched.Judge.Stands;
            }
            var used = Environment.CpuUsage.TotalTime;
            interval = IntervalAfter(passed, used - usedBefore, stands);
            usedBefore = used;
            if (look % ReadEvery != 0)
                continue;
            var own = Own = Vitals.Read(thread: null);
            foreach (var watched in _watched)
                watched.Read(own, now);
        }
        _ended.SetResult();
    }

    private void LookAtPool()
    {
        if (_pool.IsQueued)
        {
            if (_pool.Take() is not { } waited)
                return;
            if (waited >= Threshold)
                Report(Stall.Of(
                    "thread pool", string.Create(CultureInfo.InvariantCulture, $"{ThreadPool.ThreadCount} threads"), waited, _beforePool,
                    Vitals.Read(thread: null)));
        }
        if (_pool.TryQueue())
            _beforePool = Own;
    }

    private void Look(Watched watched, TimeSpan now)
    {
        var (turn, item) = watched.Thread.Turn;
        var stood = watched.Judge.Look(turn, watched.Thread.HasWork, now);
        if (stood >= Threshold)
        {
            var where = $"{watched.Thread.Name}, {(watched.Item is null ? "which had work and did not start" : $"at {watched.Item}")}";
            Report(Stall.Of("writer", where, stood, watched.Before, Vitals.Read(watched.Counters)));
        }
        watched.Item = (turn & 1) != 0 ? item : null;
    }

    private void Report(Stall stall)
    {
        _metrics.Stalled(stall.Reason);
        var text = stall.ToString();
        lock (_gate)
            _last = new LastStall(text, stall.Length, DateTimeOffset.UtcNow, (_last?.Count ?? 0) + 1);
        LogStall(_log, text);
    }

    private TimeSpan Now => Stopwatch.GetElapsedTime(_began);

    // Written by the watch and also read by timers, and too large for an atomic read.
    private Vitals Own
    {
        get
        {
            lock (_gate)
                return _own;
        }
        set
        {
            lock (_gate)
                _own = value;
        }
    }

    [LoggerMessage(1, LogLevel.Warning, "{Text}")]
    private static partial void LogStall(ILogger log, string text);

    [DllImport("libc", EntryPoint = "gettid")]
    private static extern int ThreadId();

    /// <summary>One watched thread.</summary>
    private sealed class Watched : IDisposable
    {
        private ThreadCounters? _counters;

        public Watched(WorkThread thread)
        {
            Thread = thread;
            Before = Vitals.Read(thread: null);
            if (OperatingSystem.IsLinux())
                thread.Post(new WorkAction(() => Volatile.Write(ref _counters, new ThreadCounters(ThreadId()))));
        }

        public WorkThread Thread { get; }

        public StallJudge Judge { get; } = new();

        /// <summary>The item that ran at the last look; null if none.</summary>
        public IWorkItem? Item { get; set; }

        /// <summary>What the system counts for the thread; null if that is not known.</summary>
        public ThreadCounters? Counters => Volatile.Read(ref _counters);

        /// <summary>The counters from before, or soon after, the beginning of what the thread does now.</summary>
        public Vitals Before { get; private set; }

        // Not updated during a stall, because the difference over the stall is wanted.
        public void Read(in Vitals process, TimeSpan now)
        {
            if (Judge.StandsFor(now) <= 2 * Interval)
                Before = process.With(Counters);
        }

        public void Dispose() => Counters?.Dispose();
    }
}
