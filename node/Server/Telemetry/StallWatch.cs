// Watches the node's own threads, its timers and its thread pool: a leader whose writer stands still for a second loses its shards without a fault. A thread of its own looks every
// 50 ms and reads what kernel and runtime count twice a second, a thousandth of a core; what it reports is a warning in the log, a metric, and what kv doctor shows.
// Threads of the journal and of checkpoints are not watched: they wait for the disk, which is their work.
using System.Diagnostics;
using System.Globalization;
using System.Runtime.InteropServices;
using KvCluster.Storage.Threads;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Telemetry;

/// <summary>What there is to say of a node's stalls.</summary>
/// <param name="Text">The last one, for people.</param>
/// <param name="Length">Its length.</param>
/// <param name="At">When it ended.</param>
/// <param name="Count">So many since the process began.</param>
internal sealed record LastStall(string Text, TimeSpan Length, DateTimeOffset At, long Count);

/// <summary>Looks for stalls, until it is disposed.</summary>
internal sealed partial class StallWatch : IAsyncDisposable
{
    /// <summary>Two and a half heartbeats; a follower stands after six.</summary>
    public static readonly TimeSpan Threshold = TimeSpan.FromMilliseconds(250);

    private static readonly TimeSpan Interval = TimeSpan.FromMilliseconds(50);

    /// <summary>Between two readings of what is counted, in looks.</summary>
    private const int ReadEvery = 10;

    private readonly Watched[] _watched;
    private readonly NodeMetrics _metrics;
    private readonly ILogger _log;
    private readonly PoolProbe _pool = new();
    private readonly Thread _thread;
    private readonly ManualResetEventSlim _stopping = new();
    private readonly TaskCompletionSource _ended = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly long _began = Stopwatch.GetTimestamp();
    private readonly Lock _gate = new();
    private Vitals _own = Vitals.Read(0);
    // What was counted before the probe was queued.
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
            Report(Stall.Of("timers", "", late, Own, Vitals.Read(0)));
    }

    /// <summary>The last one, and how many there were since the start; null: none. Any thread.</summary>
    public LastStall? Last => _last;

    public async ValueTask DisposeAsync()
    {
        _stopping.Set();
        await _ended.Task.ConfigureAwait(false);
        _stopping.Dispose();
    }

    private void Run()
    {
        var looked = Now;
        _beforePool = Own;
        _pool.Queue();
        for (var look = 0; !_stopping.Wait(Interval); look++)
        {
            var now = Now;
            var late = now - looked - Interval;
            looked = now;
            if (late >= Threshold)
            {
                Report(Stall.Of("process", "", late, Own, Vitals.Read(0)));
                // What they did meanwhile nobody knows; that all stood still is told.
                foreach (var watched in _watched)
                    watched.Judge.Forget();
            }
            LookAtPool();
            foreach (var watched in _watched)
                Look(watched, now);
            if (look % ReadEvery != 0)
                continue;
            Own = Vitals.Read(0);
            foreach (var watched in _watched)
                watched.Read(now);
        }
        _ended.SetResult();
    }

    private void LookAtPool()
    {
        if (_pool.Waited is not { } waited)
            return;
        if (waited >= Threshold)
            Report(Stall.Of("thread pool", string.Create(CultureInfo.InvariantCulture, $"{ThreadPool.ThreadCount} threads"), waited, _beforePool, Vitals.Read(0)));
        _beforePool = Own;
        _pool.Queue();
    }

    private void Look(Watched watched, TimeSpan now)
    {
        var (turn, item) = watched.Thread.Turn;
        var stood = watched.Judge.Look(turn, watched.Thread.HasWork, now);
        if (stood >= Threshold)
        {
            var where = $"{watched.Thread.Name}, {(watched.Item is null ? "which had work and did not begin" : $"at {watched.Item}")}";
            Report(Stall.Of("writer", where, stood, watched.Before, Vitals.Read(watched.Id)));
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

    // Written by the watch, read by timers, too, and larger than what is read in one go.
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

    /// <summary>One thread under watch.</summary>
    private sealed class Watched
    {
        private int _id;

        public Watched(WorkThread thread)
        {
            Thread = thread;
            Before = Vitals.Read(0);
            if (OperatingSystem.IsLinux())
                thread.Post(new WorkAction(() => Volatile.Write(ref _id, ThreadId())));
        }

        public WorkThread Thread { get; }

        public StallJudge Judge { get; } = new();

        /// <summary>What it ran at the last look; null: nothing.</summary>
        public IWorkItem? Item { get; set; }

        /// <summary>The system's id of it; 0: not known.</summary>
        public int Id => Volatile.Read(ref _id);

        /// <summary>What was counted before whatever it does now began, or soon after.</summary>
        public Vitals Before { get; private set; }

        // Not while it stands still: what counts then is what is different afterwards.
        public void Read(TimeSpan now)
        {
            if (Judge.StandsFor(now) <= 2 * Interval)
                Before = Vitals.Read(Id);
        }
    }
}
