// The replicas of a node. One loop follows the shard records: it opens the replicas that they name for this node and informs replicas of changes.
// Requests look shards up on any thread. An exception while a replica is opened marks that replica as failed and affects no other.
using System.Collections.Concurrent;
using System.Security.Cryptography;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Map;
using KvCluster.Node.Runtime;
using KvCluster.Node.Shards;
using KvCluster.Node.Shards.Context;
using KvCluster.Node.Telemetry;
using KvCluster.Replication.Protocol;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Files;
using KvCluster.V1;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Hosting;

/// <summary>Opens, finds and closes a node's replicas.</summary>
internal sealed class ShardHost : IAsyncDisposable
{
    /// <summary>Number of replicas that are opened at the same time. Each may replay a whole journal.</summary>
    private const int OpeningMax = 4;

    /// <summary>
    /// Delay with which a shard that never had a leader starts on nodes other than its preferred leader's. Less than the shortest election timeout, so that all
    /// replicas run when the preferred one campaigns, and long enough that it usually campaigns first. So a new cluster's leaders are on different nodes.
    /// </summary>
    private static readonly TimeSpan PreferredLead = TimeSpan.FromMilliseconds(400);

    private static readonly TimeSpan RetryPause = TimeSpan.FromSeconds(1);

    private readonly Lock _gate = new();
    private readonly NodeIdentity _identity;
    private readonly NodeDirectory _directory;
    private readonly ShardDirectory _map;
    private readonly ICoordinator _coordinator;
    private readonly CoordinatorKeys _keys;
    private readonly ShardRecords _records;
    private readonly IPeerTransport _peers;
    private readonly ReplicationOptions _replication;
    private readonly NodeMetrics _metrics;
    private readonly ILoggerFactory _logs;
    private readonly ILogger _log;
    private readonly ShardThreads _threads;
    private readonly NodePaces _paces = new();
    private readonly ReplicaOpening _opening;
    private readonly SemaphoreSlim _digestTurn = new(1);
    private readonly CancellationTokenSource _stopping = new();
    private readonly DiskFailure _diskFailure = new();
    private readonly ConcurrentDictionary<ReplicaId, string> _notRetired = new();
    private volatile HostedShards _hosted = HostedShards.None;
    private Task _running = Task.CompletedTask;

    public ShardHost(
        NodeIdentity identity,
        NodeDirectory directory,
        ShardDirectory map,
        ICoordinator coordinator,
        IPeerTransport peers,
        ReplicationOptions replication,
        StoreOptions storage,
        MemoryAccount memory,
        NodeMetrics metrics,
        ILoggerFactory logs)
    {
        _metrics = metrics;
        _identity = identity;
        _directory = directory;
        _map = map;
        _coordinator = coordinator;
        _keys = new CoordinatorKeys(identity.Cluster);
        _peers = peers;
        _replication = replication;
        _logs = logs;
        _log = logs.CreateLogger<ShardHost>();
        _records = new ShardRecords(coordinator, _keys, directory.Known, _log);
        Memory = memory;
        if (storage.SharesJournal)
            directory.DeclareShared();
        _threads = new ShardThreads(storage, directory.Location, memory, metrics, logs, _diskFailure.Note);
        _opening = new ReplicaOpening(identity, directory, coordinator, _threads, metrics, _log, ContextOf, _stopping.Token);
    }

    /// <summary>The threads of all replicas.</summary>
    public ShardThreads Threads => _threads;

    /// <summary>The memory that all of them may use.</summary>
    public MemoryAccount Memory { get; }

    /// <summary>All shards of which this node should have a replica, ordered by start.</summary>
    public IReadOnlyList<HostedShard> All => _hosted.All;

    /// <summary>
    /// Why the coordinator's records are not trusted at the moment: one that was read does not name a replica of this node and is no reason to remove it. Null
    /// if there is no such replica. Any thread.
    /// </summary>
    public string? RecordAlarm =>
        _notRetired.Select(static kept => $"replica {kept.Key} is kept although the record that was read does not name it: {kept.Value}").FirstOrDefault();

    /// <summary>The records that name a replica of this node which is not open yet. Any thread.</summary>
    public IEnumerable<ShardRecord> Missing(ShardDirectorySnapshot snapshot)
    {
        var hosted = All.Select(shard => shard.Shard).ToHashSet();
        return snapshot.Records.Values.Select(entry => entry.Record).Where(record => !hosted.Contains(record.ShardId) && ReplicaHere(record) is not null);
    }

    /// <summary>The status of replicas that are this node's and not open yet. After a start each replays its journal.</summary>
    public IEnumerable<ReplicaStatus> Opening() =>
        Missing(_map.Snapshot).Select(record => new ReplicaStatus
        {
            Route = ShardDirectorySnapshot.RouteOf(record), Replica = ReplicaHere(record)!.Replica, Role = ReplicaStatus.Types.Role.Opening
        });

    /// <summary>
    /// The entries of shards in <c>kv status</c>. Digests are computed one at a time, for all callers together, because each reads a whole tree.
    /// </summary>
    public async Task<IReadOnlyList<ReplicaStatus>> StatusAsync(
        IReadOnlyCollection<HostedShard> asked, bool digest, bool detail, CancellationToken cancellationToken)
    {
        if (!digest)
            return await Task.WhenAll(asked.Select(shard => shard.StatusAsync(digest, detail, cancellationToken))).ConfigureAwait(false);
        var found = new List<ReplicaStatus>(asked.Count);
        foreach (var shard in asked)
        {
            await _digestTurn.WaitAsync(cancellationToken).ConfigureAwait(false);
            try
            {
                found.Add(await shard.StatusAsync(digest, detail, cancellationToken).ConfigureAwait(false));
            }
            finally
            {
                _digestTurn.Release();
            }
        }
        return found;
    }

    /// <inheritdoc cref="DiskFailure.First"/>
    public Task<StorageIoException> DiskFailed => _diskFailure.First;

    /// <summary>Starts to follow the records.</summary>
    public void Start() => _running = Task.Run(RunAsync);

    /// <inheritdoc cref="HostedShards.Find(ShardId)"/>
    public HostedShard? Find(ShardId shard) => _hosted.Find(shard);

    /// <inheritdoc cref="HostedShards.Find(ReadOnlySpan{byte})"/>
    public HostedShard? Find(ReadOnlySpan<byte> key) => _hosted.Find(key);

    /// <inheritdoc cref="HostedShards.FindBefore"/>
    public HostedShard? FindBefore(ReadOnlySpan<byte> key) => _hosted.FindBefore(key);

    /// <summary>The route of the shard that owns a key, as far as this node knows.</summary>
    public ShardRoute? RouteOf(ReadOnlySpan<byte> key) => _map.Snapshot.Find(key);

    /// <summary>A shard's route; null if this node does not know it.</summary>
    public ShardRoute? RouteOf(ShardId shard) => _map.Snapshot.Routes.FirstOrDefault(route => route.ShardId == shard);

    /// <summary>Whether there is no such shard. Also false before this node has read the shards' records.</summary>
    public bool IsUnknown(ShardId shard) => _map.Snapshot.Records is { Count: > 0 } records && !records.ContainsKey(shard);

    /// <summary>The route of the shard that owns the keys just before this one.</summary>
    public ShardRoute? RouteBefore(ReadOnlySpan<byte> key) => _map.Snapshot.FindBefore(key);

    /// <summary>Passes a frame to the replica that it is for, unless its sender is a replica of a different node. Any thread; never waits.</summary>
    /// <param name="node">The node whose stream it came by.</param>
    /// <param name="frame">The frame.</param>
    public void Receive(NodeId node, Frame frame)
    {
        if (MaySpeak(node, frame))
            _hosted.Find(frame.ShardId)?.Replica?.Mailbox.Receive(frame);
    }

    /// <summary>Tells all replicas that a node is silent. Any thread; never waits.</summary>
    public void NodeSilent(NodeId node)
    {
        foreach (var shard in All)
            shard.Replica?.Mailbox.NodeSilent(node);
    }

    /// <summary>Before a stop, writes checkpoints where the next start would have much to replay, as far as time allows. None of them is necessary.</summary>
    public async Task CoverAsync(CancellationToken cancellationToken)
    {
        foreach (var covered in All.Where(shard => shard.Replica is { HasMuchToReplay: true })
            .Select(shard => (shard.Shard, Task: shard.Replica!.CheckpointAsync())).ToList())
        {
            try
            {
                await covered.Task.WaitAsync(cancellationToken).ConfigureAwait(false);
            }
            catch (Exception failure)
            {
                // Nothing is lost without the checkpoint, because the journal has everything.
                HostLog.NotCovered(_log, covered.Shard, failure.Message);
            }
        }
    }

    /// <summary>Stops all replicas. What they have durable stays.</summary>
    public async ValueTask DisposeAsync()
    {
        await _stopping.CancelAsync().ConfigureAwait(false);
        await _running.ConfigureAwait(false);
        await Task.WhenAll(All.Where(shard => shard.Replica is not null).Select(shard => shard.Replica!.DisposeAsync().AsTask())).ConfigureAwait(false);
        await _threads.DisposeAsync().ConfigureAwait(false);
        try
        {
            _directory.DeclareWhole();
        }
        catch (StorageIoException failure)
        {
            // It only keeps older programs away.
            HostLog.NotDeclaredWhole(_log, failure.Message);
        }
        _stopping.Dispose();
    }

    // Replicas never change their node. For a replica that is not in the map, yet or any more, the receiving replica's own record decides.
    private bool MaySpeak(NodeId node, Frame frame)
    {
        if (!_map.Snapshot.Records.TryGetValue(frame.ShardId, out var entry))
            return true;
        foreach (var replica in entry.Record.Replicas)
        {
            if (replica.ReplicaId == frame.SenderId)
                return replica.NodeId == node;
        }
        return true;
    }

    private async Task RunAsync()
    {
        var seen = ShardDirectorySnapshot.Empty;
        while (!_stopping.IsCancellationRequested)
        {
            var snapshot = _map.Snapshot;
            try
            {
                if (ReferenceEquals(snapshot, seen))
                {
                    await snapshot.Replaced.WaitAsync(All.Min(static shard => shard.OpenAgainIn) ?? Timeout.InfiniteTimeSpan, _stopping.Token)
                        .ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
                    if (!snapshot.Replaced.IsCompleted && !_stopping.IsCancellationRequested)
                        await OpenAgainAsync(snapshot).ConfigureAwait(false);
                    continue;
                }
                await RetireAsync(snapshot).ConfigureAwait(false);
                Tell(seen, snapshot);
                await OpenMissingAsync(snapshot).ConfigureAwait(false);
                seen = snapshot;
            }
            catch (Exception failure)
            {
                // A bug. The running replicas must continue to learn of changes.
                LoopFailures.Count();
                HostLog.FollowingFailed(_log, failure);
                await Task.Delay(RetryPause, _stopping.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            }
        }
    }

    private void Tell(ShardDirectorySnapshot seen, ShardDirectorySnapshot snapshot)
    {
        foreach (var shard in All)
        {
            if (shard.Replica is null || !snapshot.Records.TryGetValue(shard.Shard, out var entry))
                continue;
            if (shard.Replica.Failure is not null && snapshot.OwnRoutes.ContainsKey(shard.Shard))
                _map.Forget(shard.Shard);
            if (TryKeep(entry.Record) && (!seen.Records.TryGetValue(shard.Shard, out var before)
                || RecordVersion.Of(before.Record, before.Revision) != RecordVersion.Of(entry.Record, entry.Revision)))
                shard.Replica.Mailbox.RecordChanged(entry.Record, entry.Revision);
        }
    }

    // A replica must not act on a record that is not on this node's disk. It hears of it again with the next change, or reads it.
    private bool TryKeep(ShardRecord record)
    {
        try
        {
            return _directory.Known.TryKeep(record);
        }
        catch (StorageIoException failure)
        {
            HostLog.RecordNotKept(_log, record.ShardId, failure.Message);
            return false;
        }
    }

    // Closes replicas that the records list as removed. Only a record that is read afresh, and is not older than what the replica has seen, justifies
    // moving a directory away.
    private async Task RetireAsync(ShardDirectorySnapshot snapshot)
    {
        foreach (var shard in All)
        {
            if (!snapshot.Records.TryGetValue(shard.Shard, out var entry))
                continue;
            if (ReplicaHere(entry.Record)?.ReplicaId == shard.ReplicaId)
            {
                // If the record did not name this replica for a while, an operator has repaired the record.
                _notRetired.TryRemove(shard.ReplicaId, out _);
                if (ReplicaHere(entry.Record)!.Absent && shard.Replica is not null)
                    await GiveUpAsync(shard).ConfigureAwait(false);
                continue;
            }
            try
            {
                var seen = await SeenAsync(shard).ConfigureAwait(false);
                var read = await _coordinator.GetUntilAnsweredAsync(_keys.Shard(shard.Shard), _stopping.Token).ConfigureAwait(false);
                if (read.Value is null || RecordText.Parse<ShardRecord>(read.Value) is var record
                    && (RecoveryNumber.Of(record) != _directory.Known.Recovery || record.Replicas.Any(replica => replica.ReplicaId == shard.ReplicaId)))
                    continue;
                if (seen.WhyNot(record, read.ModRevision, shard.ReplicaId) is { } reason)
                    TellNotRetired(shard, reason);
                else if (TryKeep(record))
                    await RetireAsync(shard).ConfigureAwait(false);
            }
            catch (OperationCanceledException) when (_stopping.IsCancellationRequested)
            {
                return;
            }
            catch (CoordinatorAlarmException failure)
            {
                // A coordinator whose store was lost or replaced is no reason to remove a replica.
                TellNotRetired(shard, failure.Message);
            }
            catch (IOException failure)
            {
                // The directory stays. A new replica of the shard here fails with a log line of its own.
                HostLog.ReplicaFailed(_log, shard.Shard, shard.ReplicaId, failure.Message, failure);
            }
        }
    }

    // Called before the record is read, because the record must not be older than what was seen by then.
    private async Task<Retirement> SeenAsync(HostedShard shard)
    {
        if (shard.Replica is not null)
        {
            var (generation, epoch, version) = await shard.Replica.Report.SeenAsync().ConfigureAwait(false);
            return shard.Seen.Or(new Retirement(generation, epoch, version));
        }
        return ControlFile.StateOf(LocalDisk.Instance, _directory.ShardPath(shard.Shard)) is { } control && control.ReplicaId == shard.ReplicaId
            ? shard.Seen.Or(new Retirement(control.Generation, control.PromisedEpoch, new RecordVersion(control.Recovery, control.CoordinatorRevision)))
            : shard.Seen;
    }

    private void TellNotRetired(HostedShard shard, string reason)
    {
        if (_notRetired.TryGetValue(shard.ReplicaId, out var told) && told == reason)
            return;
        _notRetired[shard.ReplicaId] = reason;
        HostLog.ReplicaNotRetired(_log, shard.Shard, shard.ReplicaId, reason);
        _metrics.Alarmed();
    }

    private async Task RetireAsync(HostedShard shard)
    {
        var wasLost = shard.Replica is null || shard.Replica.Failure is not null;
        if (shard.Replica is not null)
            await shard.Replica.DisposeAsync().ConfigureAwait(false);
        lock (_gate)
            _hosted = _hosted.Without(shard);
        _map.Forget(shard.Shard);
        _notRetired.TryRemove(shard.ReplicaId, out _);
        if (_threads.HasUnsettled || !Directory.Exists(_directory.ShardPath(shard.Shard)))
            return;
        if (wasLost)
            _directory.SetAside(shard.Shard);
        else
            _directory.Retire(shard.Shard, shard.ReplicaId);
        HostLog.ReplicaRetired(_log, shard.Shard, shard.ReplicaId, wasLost ? "set aside" : "kept until its space is needed");
    }

    // The records were rebuilt without this node, which runs all the same. It is opened again, which finds that it is lost, and a new replica is built in its
    // place.
    private async Task GiveUpAsync(HostedShard shard)
    {
        await shard.Replica!.DisposeAsync().ConfigureAwait(false);
        lock (_gate)
            _hosted = _hosted.Without(shard);
        _map.Forget(shard.Shard);
    }

    private async Task OpenAgainAsync(ShardDirectorySnapshot snapshot)
    {
        lock (_gate)
        {
            foreach (var shard in All.Where(static shard => shard.OpenAgainIn is not null))
                _hosted = _hosted.Without(shard);
        }
        await OpenMissingAsync(snapshot).ConfigureAwait(false);
    }

    private async Task OpenMissingAsync(ShardDirectorySnapshot snapshot)
    {
        foreach (var waits in Missing(snapshot).ToLookup(record => record.Epoch == 0 && !IsPreferredHere(record)).OrderBy(group => group.Key))
        {
            if (waits.Key)
                await Task.Delay(PreferredLead, _stopping.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            var options = new ParallelOptions { MaxDegreeOfParallelism = OpeningMax };
            await Parallel.ForEachAsync(waits, options, async (record, _) => Add(await _opening.OpenAsync(record).ConfigureAwait(false))).ConfigureAwait(false);
        }
    }

    private bool IsPreferredHere(ShardRecord record) => ShardView.PreferredLeader(record).NodeId == _identity.Node;

    private ReplicaRecord? ReplicaHere(ShardRecord record) => record.Replicas.FirstOrDefault(replica => replica.NodeId == _identity.Node);

    private void Add(HostedShard? shard)
    {
        if (shard is null)
            return;
        lock (_gate)
            _hosted = _hosted.With(shard);
    }

    private ShardReplicaContext ContextOf(StoreContext storage, ShardTelemetry telemetry) => new(
        _identity.Node,
        _identity.Incarnation,
        storage,
        _threads.Timers,
        _peers,
        _records,
        _replication,
        BitConverter.ToUInt64(RandomNumberGenerator.GetBytes(sizeof(ulong))),
        _map.Fold,
        _logs.CreateLogger<ShardReplica>())
    {
        Telemetry = telemetry,
        Metrics = _metrics,
        Disk = _threads.Disk,
        Paces = _paces,
        Failed = _diskFailure.Note,
    };
}
