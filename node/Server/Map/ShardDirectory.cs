// What this node knows of the cluster's shards and nodes: lists, then watches, and lists again when the watch breaks off and now and then
// besides. One loop writes; replicas fold in what they hear of their leaders, on their writer executors. Without the coordinator what
// was known last stays.
using System.Collections.Immutable;
using KvCluster.Node.Coordination;
using KvCluster.V1;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Map;

/// <summary>Keeps a <see cref="ShardDirectorySnapshot"/> up to date.</summary>
internal sealed partial class ShardDirectory : IAsyncDisposable
{
    /// <summary>A watch is an accelerator: it is not trusted for longer than this without a list.</summary>
    private static readonly TimeSpan ListInterval = TimeSpan.FromSeconds(60);

    private static readonly TimeSpan RetryPause = TimeSpan.FromMilliseconds(500);

    private readonly Lock _gate = new();
    private readonly ICoordinator _coordinator;
    private readonly CoordinatorKeys _keys;
    private readonly ILogger _log;
    private readonly CancellationTokenSource _stopping = new();
    private readonly Task _running;
    private volatile ShardDirectorySnapshot _snapshot = ShardDirectorySnapshot.Empty;

    public ShardDirectory(ICoordinator coordinator, CoordinatorKeys keys, ILogger log)
    {
        _coordinator = coordinator;
        _keys = keys;
        _log = log;
        _running = Task.Run(RunAsync);
    }

    public ShardDirectorySnapshot Snapshot => _snapshot;

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

    /// <summary>Takes over what a replica here knows of its shard's leader. Any thread.</summary>
    public void Fold(ShardRoute route) => Replace(snapshot => new ShardDirectorySnapshot(snapshot.Records, snapshot.OwnRoutes.SetItem(route.Shard, route), snapshot.Nodes));

    /// <summary>A replica here has stopped; what it knew is not kept up to date any more. Any thread.</summary>
    public void Forget(uint shard) => Replace(snapshot => new ShardDirectorySnapshot(snapshot.Records, snapshot.OwnRoutes.Remove(shard), snapshot.Nodes));

    public async ValueTask DisposeAsync()
    {
        await _stopping.CancelAsync().ConfigureAwait(false);
        await _running.ConfigureAwait(false);
        _stopping.Dispose();
    }

    private async Task RunAsync()
    {
        var said = "";
        while (!_stopping.IsCancellationRequested)
        {
            using var interval = CancellationTokenSource.CreateLinkedTokenSource(_stopping.Token);
            try
            {
                var list = await _coordinator.ListAsync(_keys.Root, _stopping.Token).ConfigureAwait(false);
                TakeList(list);
                said = "";
                interval.CancelAfter(ListInterval);
                await foreach (var changes in _coordinator.WatchAsync(_keys.Root, list.Revision + 1, interval.Token).ConfigureAwait(false))
                    TakeChanges(changes);
            }
            catch (OperationCanceledException) when (interval.IsCancellationRequested)
            {
                // Time to list again, or to end: the loop's condition tells.
                continue;
            }
            catch (CoordinatorCompactedException failure)
            {
                LogDirectoryListsAgain(_log, failure.Message);
            }
            catch (Exception failure)
            {
                // Also a record that cannot be read: the map must not stand still for good.
                if (failure.Message != said)
                    LogDirectoryListsAgain(_log, failure.Message);
                said = failure.Message;
                await Task.Delay(RetryPause, _stopping.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            }
        }
    }

    private void TakeList(CoordinatorList list)
    {
        var records = list.Entries.Select(ParseShard).OfType<(ShardRecord Record, long Revision)>().ToImmutableDictionary(entry => entry.Record.Shard);
        var nodes = list.Entries.Select(ParseNode).OfType<NodeRecord>().ToList();
        var registered = nodes.Select(node => node.Node).ToHashSet();
        Replace(snapshot => new ShardDirectorySnapshot(
            records, snapshot.OwnRoutes, snapshot.Nodes.RemoveRange(snapshot.Nodes.Keys.Where(node => !registered.Contains(node) && HasLeft(node, records))).SetItems(nodes.Select(KeyValue))));
    }

    private void TakeChanges(IReadOnlyList<CoordinatorChange> changes) => Replace(snapshot =>
    {
        var (records, nodes) = (snapshot.Records, snapshot.Nodes);
        foreach (var change in changes)
        {
            if (change.Value is null && CoordinatorKeys.TryParseId(change.Key, _keys.Shards, out var gone))
                records = records.Remove(gone);
            else if (change.Value is null && CoordinatorKeys.TryParseId(change.Key, _keys.Nodes, out var unregistered))
                nodes = HasLeft(unregistered, records) ? nodes.Remove(unregistered) : nodes;
            else if (ParseShard(change) is var (record, revision))
                records = records.SetItem(record.Shard, (record, revision));
            else if (ParseNode(change) is { } node)
                nodes = nodes.SetItem(node.Node, node);
        }
        return new ShardDirectorySnapshot(records, snapshot.OwnRoutes, nodes);
    });

    // Of a node that is not registered: one with a replica is away and will be back where it was; one without is no part of the cluster.
    private static bool HasLeft(uint node, ImmutableDictionary<uint, (ShardRecord Record, long Revision)> records) =>
        !records.Values.Any(entry => entry.Record.Replicas.Any(replica => replica.Node == node));

    private static KeyValuePair<uint, NodeRecord> KeyValue(NodeRecord node) => new(node.Node, node);

    private (ShardRecord Record, long Revision)? ParseShard(CoordinatorChange change) =>
        change.Value is not null && CoordinatorKeys.TryParseId(change.Key, _keys.Shards, out _)
            ? (RecordText.Parse<ShardRecord>(change.Value), change.ModRevision)
            : null;

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

    [LoggerMessage(2, LogLevel.Warning, "The shard map is listed again: {Reason}")]
    private static partial void LogDirectoryListsAgain(ILogger log, string reason);
}
