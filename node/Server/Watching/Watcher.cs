using System.Threading.Tasks.Sources;
using KvCluster.Storage.Threads;

namespace KvCluster.Node.Watching;

/// <summary>Why a watcher gets no more.</summary>
internal enum WatchEnd
{
    /// <summary>The watcher has not ended.</summary>
    None,

    /// <summary>The watcher's stream has ended, and it has left its hub.</summary>
    Left,

    /// <summary>The replica has stopped, or failed, or the node stops.</summary>
    Stopped,
}

/// <summary>Where a watcher gets its events from.</summary>
internal enum WatchState
{
    /// <summary>The watcher has to read the journal by itself.</summary>
    Behind,

    /// <summary>The watcher has everything that the hub has, and more; the hub will catch up with it.</summary>
    Ahead,

    /// <summary>The hub gives it the events of each record.</summary>
    Live,
}

/// <summary>
/// A stream's place at the hub of its shard. Its fields are changed under the hub's lock; whoever sends the stream's messages waits with
/// <see cref="WatchHub.WaitAsync"/> and then asks the hub for what there is. One that takes too little is put <see cref="WatchState.Behind"/> at the bounds of
/// <see cref="WatchLimits"/> (<see cref="SlowWatchers"/>).
/// </summary>
internal sealed class Watcher : IValueTaskSource
{
    // Continuations run elsewhere, so that a sender's code never runs in the hub.
    private readonly ISerialExecutor? _pool;
    private ManualResetValueTaskSourceCore<bool> _wake;

    /// <param name="hub">The hub that it belongs to.</param>
    /// <param name="range">What it watches.</param>
    /// <param name="withSets">Whether also sets.</param>
    /// <param name="withPrevious">Whether it wants to know what was replaced.</param>
    /// <param name="pool">Runs its sender; null: the thread pool.</param>
    public Watcher(WatchHub hub, WatchedRange range, bool withSets, bool withPrevious, ISerialExecutor? pool)
    {
        (Hub, Range, WithSets, WithPrevious, _pool) = (hub, range, withSets, withPrevious, pool);
        _wake = new ManualResetValueTaskSourceCore<bool> { RunContinuationsAsynchronously = pool is null };
    }

    public WatchHub Hub { get; }

    public WatchedRange Range { get; }

    public bool WithSets { get; }

    public bool WithPrevious { get; }

    /// <summary>Where it gets its events from.</summary>
    public WatchState State { get; set; } = WatchState.Behind;

    /// <summary>Why it gets no more.</summary>
    public WatchEnd End { get; set; }

    /// <summary>Everything up to here was taken from the hub. What follows is in <see cref="Pending"/>, or still in the journal.</summary>
    public Etag Taken { get; set; }

    /// <summary>Events that wait to be taken, all of them after <see cref="Taken"/>. Only of a live watcher.</summary>
    public Queue<WatchRun> Pending { get; } = new();

    /// <summary>The last of <see cref="Pending"/>, which grows while its events follow each other.</summary>
    public WatchRun Newest { get; set; }

    /// <summary>How many runs of events wait for it.</summary>
    public int Waiting => Pending.Count + (Newest.Count > 0 ? 1 : 0);

    /// <summary>Whether it is time to tell its caller its position.</summary>
    public bool IsBookmarkDue { get; set; }

    /// <summary>When something was last taken, as a timestamp of the hub's clock.</summary>
    public long TakenTimestamp { get; set; }

    /// <summary>Its place in the index of the hub.</summary>
    public RangeIndex.Group? Group { get; set; }

    /// <inheritdoc cref="Group"/>
    public int PlaceInGroup { get; set; }

    /// <summary>Its place in the hub's list.</summary>
    public int PlaceInHub { get; set; }

    /// <summary>Whether its sender waits.</summary>
    public bool IsWaiting { get; set; }

    /// <summary>Whether there was something for it since its sender last waited.</summary>
    public bool IsSignalled { get; set; }

    /// <summary>Begins a wait. Under the hub's lock.</summary>
    public ValueTask Wait()
    {
        if (IsSignalled)
        {
            IsSignalled = false;
            return ValueTask.CompletedTask;
        }
        _wake.Reset();
        IsWaiting = true;
        return new ValueTask(this, _wake.Version);
    }

    /// <summary>Ends the wait. Without a lock, once for each time that <see cref="IsWaiting"/> was reset.</summary>
    public void Wake()
    {
        if (_pool is null)
            _wake.SetResult(true);
        else
            _pool.Post(new WorkAction(() => _wake.SetResult(true)));
    }

    void IValueTaskSource.GetResult(short token) => _wake.GetResult(token);

    ValueTaskSourceStatus IValueTaskSource.GetStatus(short token) => _wake.GetStatus(token);

    void IValueTaskSource.OnCompleted(Action<object?> continuation, object? state, short token, ValueTaskSourceOnCompletedFlags flags) =>
        _wake.OnCompleted(continuation, state, token, flags);
}
