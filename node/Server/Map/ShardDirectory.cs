// What this node knows of the cluster's shards and nodes. It lists, then watches, and lists again when the watch breaks and at an interval. One loop writes;
// replicas contribute what they learn of their leaders, on their writer executors. While the coordinator is away the last known state is kept.
using System.Collections.Immutable;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Runtime;
using KvCluster.ServiceDefaults.Logs;
using KvCluster.V1;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Map;

/// <summary>Keeps a <see cref="ShardDirectorySnapshot"/> up to date.</summary>
internal sealed partial class ShardDirectory : IAsyncDisposable
{
    /// <summary>Maximum time between lists. A watch only accelerates updates and is not trusted for longer.</summary>
    private static readonly TimeSpan ListInterval = TimeSpan.FromSeconds(60);

    private const int RecoveryShift = 40;

    private static readonly TimeSpan RetryPause = TimeSpan.FromMilliseconds(500);

    private readonly Lock _gate = new();
    private readonly ICoordinator _coordinator;
    private readonly CoordinatorKeys _keys;
    private readonly Func<RecoveryNumber> _recovery;
    private readonly ILogger _log;
    private readonly CancellationTokenSource _stopping = new();
    private readonly Task _running;
    private volatile ShardDirectorySnapshot _snapshot = ShardDirectorySnapshot.Empty;

    // The value in the coordinator; null if there is none. Written by the loop.
    private volatile string? _coordinatorSaved;

    /// <param name="coordinator">The coordinator.</param>
    /// <param name="keys">The cluster's keys.</param>
    /// <param name="recovery">The recovery whose records this node goes by.</param>
    /// <param name="log">Receives why the map is read again.</param>
    public ShardDirectory(ICoordinator coordinator, CoordinatorKeys keys, Func<RecoveryNumber> recovery, ILogger log)
    {
        _coordinator = coordinator;
        _keys = keys;
        _recovery = recovery;
        _log = log;
        _running = Task.Run(RunAsync);
    }

    public ShardDirectorySnapshot Snapshot => _snapshot;

    /// <summary>
    /// When the coordinator's data was last saved, according to the coordinator; null if it knows of no snapshot. While it is away, what it said last.
    /// </summary>
    public DateTimeOffset? CoordinatorSavedAt => SnapshotTime.Parse(_coordinatorSaved);

    /// <summary>The snapshot, once there was a first list.</summary>
    public async Task<ShardDirectorySnapshot> FirstAsync(CancellationToken cancellationToken)
    {
        while (true)
        {
            var snapshot = _snapshot;
            if (!snapshot.Records.IsEmpty)
                return snapshot;
            await snapshot.Replaced.WaitAsync(cancellationToken).ConfigureAwait(false);
        }
    }

    /// <summary>Adds what a replica here knows of its shard's leader. Any thread.</summary>
    public void Fold(ShardRoute route) =>
        Replace(snapshot => new ShardDirectorySnapshot(snapshot.Records, snapshot.OwnRoutes.SetItem(route.ShardId, route), snapshot.Nodes, snapshot.Revision));

    /// <summary>Removes what a replica here knew, because it has stopped and no longer updates it. Any thread.</summary>
    public void Forget(ShardId shard) =>
        Replace(snapshot => new ShardDirectorySnapshot(snapshot.Records, snapshot.OwnRoutes.Remove(shard), snapshot.Nodes, snapshot.Revision));

    public async ValueTask DisposeAsync()
    {
        await _stopping.CancelAsync().ConfigureAwait(false);
        await _running.ConfigureAwait(false);
        _stopping.Dispose();
    }

    private async Task RunAsync()
    {
        var failures = new OncePerMinute(BootClock.Instance);
        while (!_stopping.IsCancellationRequested)
        {
            using var interval = CancellationTokenSource.CreateLinkedTokenSource(_stopping.Token);
            try
            {
                var list = await _coordinator.ListAsync(_keys.Root, _stopping.Token).ConfigureAwait(false);
                TakeList(list);
                failures.Forget();
                interval.CancelAfter(ListInterval);
                await foreach (var changes in _coordinator.WatchAsync(_keys.Root, list.Revision + 1, interval.Token).ConfigureAwait(false))
                    TakeChanges(changes);
            }
            catch (OperationCanceledException) when (interval.IsCancellationRequested)
            {
                // Time to list again, or to end; the loop's condition decides.
                continue;
            }
            catch (CoordinatorCompactedException failure)
            {
                LogDirectoryListsAgain(_log, failure.Message);
            }
            catch (Exception failure)
            {
                // Including a record that cannot be read: the map must not stop being updated for good.
                if (failures.MaySay(failure.Message))
                    LogDirectoryListsAgain(_log, failure.Message);
                await Task.Delay(RetryPause, _stopping.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            }
        }
    }

    // What was known stays, because leaders go on without the coordinator.
    private void TakeList(CoordinatorList list)
    {
        if (list.Entries.All(entry => entry.Key != _keys.Cluster))
            throw new CoordinatorUnavailableException(
                "The coordinator has no record of the cluster; its data is lost. See 'The coordinator's data is lost' in deploy/OPERATIONS.md.");
        _coordinatorSaved = list.Entries.FirstOrDefault(entry => entry.Key == _keys.Snapshot).Value;
        var records = list.Entries.Select(ParseShard).OfType<(ShardRecord Record, long Revision)>().ToImmutableDictionary(entry => entry.Record.ShardId);
        var nodes = list.Entries.Select(ParseNode).OfType<NodeRecord>().ToList();
        var registered = nodes.Select(node => node.NodeId).ToHashSet();
        Replace(snapshot => new ShardDirectorySnapshot(
            records, snapshot.OwnRoutes, snapshot.Nodes.RemoveRange(snapshot.Nodes.Keys.Where(node => !registered.Contains(node) && HasLeft(node, records)))
                .SetItems(nodes.Select(KeyValue)), Math.Max(snapshot.Revision, PlaceOf(list.Revision))));
    }

    // Orders maps across recoveries, after which the coordinator's revisions begin anew. Nobody has 2^40 changes of records.
    private long PlaceOf(long revision) => ((long)_recovery().Number << RecoveryShift) + revision;

    private void TakeChanges(IReadOnlyList<CoordinatorChange> changes)
    {
        foreach (var saved in changes.Where(change => change.Key == _keys.Snapshot))
            _coordinatorSaved = saved.Value;
        Replace(snapshot => Changed(snapshot, changes));
    }

    private ShardDirectorySnapshot Changed(ShardDirectorySnapshot snapshot, IReadOnlyList<CoordinatorChange> changes)
    {
        var (records, nodes, readUpTo) = (snapshot.Records, snapshot.Nodes, snapshot.Revision);
        foreach (var change in changes)
        {
            readUpTo = Math.Max(readUpTo, PlaceOf(change.ModRevision));
            if (change.Value is null && (change.Key == _keys.Cluster || CoordinatorKeys.TryParseId(change.Key, _keys.Shards, out _)))
                throw new CoordinatorUnavailableException($"The record {change.Key} was deleted from the coordinator.");
            else if (change.Value is null && CoordinatorKeys.TryParseId(change.Key, _keys.Nodes, out var unregistered))
                nodes = HasLeft(new(unregistered), records) ? nodes.Remove(new(unregistered)) : nodes;
            else if (ParseShard(change) is var (record, revision))
                records = records.SetItem(record.ShardId, (record, revision));
            else if (ParseNode(change) is { } node)
                nodes = nodes.SetItem(node.NodeId, node);
        }
        return new ShardDirectorySnapshot(records, snapshot.OwnRoutes, nodes, readUpTo);
    }

    // Decides about a node that is not registered. One with a replica is only away; one without is not part of the cluster.
    private static bool HasLeft(NodeId node, ImmutableDictionary<ShardId, (ShardRecord Record, long Revision)> records) =>
        !records.Values.Any(entry => entry.Record.Replicas.Any(replica => replica.NodeId == node));

    private static KeyValuePair<NodeId, NodeRecord> KeyValue(NodeRecord node) => new(node.NodeId, node);

    private (ShardRecord Record, long Revision)? ParseShard(CoordinatorChange change)
    {
        if (change.Value is null || !CoordinatorKeys.TryParseId(change.Key, _keys.Shards, out _))
            return null;
        var record = RecordText.Parse<ShardRecord>(change.Value);
        return RecoveryNumber.Of(record) == _recovery()
            ? (record, change.ModRevision)
            : throw new CoordinatorUnavailableException($"The record {change.Key} is of recovery {RecoveryNumber.Of(record)} of the coordinator's records, but "
                + $"this node goes by recovery {_recovery()}.");
    }

    private NodeRecord? ParseNode(CoordinatorChange change) =>
        change.Value is not null && CoordinatorKeys.TryParseId(change.Key, _keys.Nodes, out _) ? RecordText.Parse<NodeRecord>(change.Value) : null;

    private void Replace(Func<ShardDirectorySnapshot, ShardDirectorySnapshot> change)
    {
        ShardDirectorySnapshot replaced;
        lock (_gate)
        {
            replaced = _snapshot;
            _snapshot = change(replaced);
        }
        replaced.SetReplaced();
    }

    [LoggerMessage(2, LogLevel.Warning, "The shard map is being read again: {Reason}")]
    private static partial void LogDirectoryListsAgain(ILogger log, string reason);
}
