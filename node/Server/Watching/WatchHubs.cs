using KvCluster.Node.Shards;
using KvCluster.Storage.Context;
using KvCluster.Storage.Threads;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Watching;

/// <summary>The hubs of a node's replicas that have watchers, and the timer of all of them. Any thread.</summary>
/// <param name="options">The bound of the journal.</param>
/// <param name="clock">For bookmarks.</param>
/// <param name="log">Gets what ends watchers, if that is a bug.</param>
/// <param name="pool">Runs the hubs' steps and whoever waits for them; null: the thread pool. The simulation passes a queue of its own.</param>
internal sealed partial class WatchHubs(StoreOptions options, TimeProvider clock, ILogger<WatchHubs> log, ISerialExecutor? pool = null) : IAsyncDisposable
{
    /// <summary>How often hubs look for watchers that were told nothing. A fraction of the second in which each gets a message.</summary>
    private static readonly TimeSpan LookInterval = TimeSpan.FromMilliseconds(200);

    private readonly Lock _lock = new();
    private readonly Dictionary<ShardReplica, WatchHub> _hubs = [];
    private ITimer? _timer;
    private volatile int _count;
    private volatile bool _isStopping;

    /// <summary>Places of those that read the journal.</summary>
    // Whoever waits for a semaphore goes on on the thread pool, so in the simulation there is a place for everybody.
    public SemaphoreSlim CatchUps { get; } = new(pool is null ? WatchLimits.CatchUpsMax : int.MaxValue);

    /// <summary>Whether the node stops.</summary>
    public bool IsStopping => _isStopping;

    /// <summary>How many watchers there are.</summary>
    public long Watchers => All().Sum(static hub => (long)hub.Count);

    /// <summary>How many changes the slowest of them is behind.</summary>
    public long LagMax => All().Select(static hub => hub.Lag).DefaultIfEmpty().Max();

    /// <summary>Adds a watcher of a replica. It must leave again.</summary>
    /// <inheritdoc cref="WatchHub.Join" path="/param"/>
    /// <param name="replica">The replica.</param>
    public Watcher Join(ShardReplica replica, WatchedRange range, Etag? after, bool withSets, bool withPrevious)
    {
        lock (_lock)
        {
            if (!_hubs.TryGetValue(replica, out var hub))
                hub = AddLocked(replica);
            // Under the lock, so that the hub is not disposed of between.
            return hub.Join(range, after, withSets, withPrevious);
        }
    }

    /// <summary>Removes a watcher, and the hub with its last one.</summary>
    public void Leave(ShardReplica replica, Watcher watcher)
    {
        lock (_lock)
        {
            watcher.Hub.Leave(watcher);
            if (watcher.Hub.Count > 0 || !_hubs.TryGetValue(replica, out var hub) || hub != watcher.Hub)
                return;
            _hubs.Remove(replica);
            _count = _hubs.Count;
            replica.Reads.Follow(null);
            hub.Dispose();
            if (_hubs.Count > 0)
                return;
            _timer?.Dispose();
            _timer = null;
        }
    }

    /// <summary>The node stops: ends all watchers.</summary>
    public void Stop()
    {
        _isStopping = true;
        foreach (var hub in All())
            hub.EndAll(WatchEnd.Stopped);
    }

    /// <inheritdoc/>
    public ValueTask DisposeAsync()
    {
        Stop();
        lock (_lock)
            _timer?.Dispose();
        return ValueTask.CompletedTask;
    }

    private WatchHub AddLocked(ShardReplica replica)
    {
        Invariant.CheckHeld(_lock);
        var limits = new WatchLimits(options.WatchedJournalBytes, () => WatchLimits.KeptBytesOf(_count));
        var hub = new WatchHub(() => replica.Store, limits, clock, failure => LogFailed(log, replica.Shard, failure), pool);
        _hubs.Add(replica, hub);
        _count = _hubs.Count;
        if (_isStopping)
            hub.EndAll(WatchEnd.Stopped);
        replica.Reads.Follow(hasEnded =>
        {
            if (hasEnded)
                hub.EndAll(WatchEnd.Stopped);
            else
                hub.Applied();
        });
        _timer ??= clock.CreateTimer(_ => Look(), null, LookInterval, LookInterval);
        return hub;
    }

    private void Look()
    {
        foreach (var hub in All())
            hub.Look();
    }

    private WatchHub[] All()
    {
        lock (_lock)
            return [.. _hubs.Values];
    }

    [LoggerMessage(61, LogLevel.Error, "The watchers of shard {Shard} were ended because an event could not be read")]
    private static partial void LogFailed(ILogger log, ShardId shard, Exception failure);
}
