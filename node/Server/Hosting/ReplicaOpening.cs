using System.Collections.Concurrent;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Runtime;
using KvCluster.Node.Shards;
using KvCluster.Node.Shards.Context;
using KvCluster.Node.Shards.Disk;
using KvCluster.Node.Telemetry;
using KvCluster.Replication.Protocol;
using KvCluster.ServiceDefaults.Logs;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Files;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Hosting;

/// <summary>
/// Opens the replicas that the shards' records name for this node, or creates them if they are new. Called by <see cref="ShardHost"/> on the thread pool, once
/// at a time for a shard. A failure is a result and not an exception.
/// </summary>
internal sealed class ReplicaOpening
{
    /// <summary>Pause before opening a replica again that failed because of its disk: no space, no file handles, or a file's permission.</summary>
    private static readonly TimeSpan ReopenPause = TimeSpan.FromSeconds(5);

    /// <summary>The same if it failed because of the coordinator. What etcd refuses because of load (RESOURCE_EXHAUSTED) it accepts a moment later.</summary>
    private static readonly TimeSpan AskAgainPause = TimeSpan.FromSeconds(1);

    private readonly NodeIdentity _identity;
    private readonly NodeDirectory _directory;
    private readonly ICoordinator _coordinator;
    private readonly CoordinatorKeys _keys;
    private readonly ShardThreads _threads;
    private readonly NodeMetrics _metrics;
    private readonly ILogger _log;
    private readonly ulong _clusterHash;
    private readonly Func<StoreContext, ShardTelemetry, ShardReplicaContext> _contextOf;
    private readonly CancellationToken _stopping;
    private readonly OncePerReason<ReplicaId> _failures = new();

    // Replicas whose directory this process created, and whose mark in the record is not yet known to be its own.
    private readonly ConcurrentDictionary<ReplicaId, bool> _made = new();

    /// <param name="identity">This node.</param>
    /// <param name="directory">Provides the replicas' directories.</param>
    /// <param name="coordinator">Provides the shards' records.</param>
    /// <param name="threads">The threads of all replicas.</param>
    /// <param name="metrics">The node's metrics.</param>
    /// <param name="log">Receives one line per replica.</param>
    /// <param name="contextOf">What a replica depends on besides its store.</param>
    /// <param name="stopping">The node is stopping.</param>
    public ReplicaOpening(
        NodeIdentity identity,
        NodeDirectory directory,
        ICoordinator coordinator,
        ShardThreads threads,
        NodeMetrics metrics,
        ILogger log,
        Func<StoreContext, ShardTelemetry, ShardReplicaContext> contextOf,
        CancellationToken stopping)
    {
        _identity = identity;
        _directory = directory;
        _coordinator = coordinator;
        _keys = new CoordinatorKeys(identity.Cluster);
        _threads = threads;
        _metrics = metrics;
        _log = log;
        _contextOf = contextOf;
        _stopping = stopping;
        _clusterHash = identity.ClusterHash;
    }

    /// <summary>Opens this node's replica of a shard and starts it. A shard that could not be opened says why; null: the node is stopping.</summary>
    public async Task<HostedShard?> OpenAsync(ShardRecord seen)
    {
        var replicaId = ReplicaHere(seen)!.ReplicaId;
        ReplicaStore? store = null;
        try
        {
            var (record, revision) = await ReadAsync(seen.ShardId, replicaId).ConfigureAwait(false);
            if (ReplicaHere(record)!.Absent)
                throw GiveUp(record.ShardId);
            var telemetry = new ShardTelemetry(record.ShardId, _metrics);
            var storage = _threads.StorageOf(record.ShardId, telemetry);
            (store, var action) = OpenStore(record, revision, storage);
            if (!ReplicaHere(record)!.Created)
                (record, revision) = await MarkCreatedAsync(record, revision).ConfigureAwait(false);
            if (_made.ContainsKey(replicaId) && ReplicaHere(record)!.Creator != _identity.Incarnation)
            {
                // Another process of this node has created the same replica, and may have promised and acknowledged under its id by now.
                store.Dispose();
                store = null;
                _directory.Delete(record.ShardId);
                _made.TryRemove(replicaId, out _);
                throw new ReplicaNotUsableException("lost: another process of this node created it.", isLost: true);
            }
            var replica = new ShardReplica(_contextOf(storage, telemetry), store, record, revision);
            replica.Start();
            HostLog.ReplicaOpened(_log, record.ShardId, replicaId, action);
            _failures.Forget(replicaId);
            _made.TryRemove(replicaId, out _);
            return new HostedShard(record, replicaId, replica, failure: "", isLost: false);
        }
        catch (OperationCanceledException) when (_stopping.IsCancellationRequested)
        {
            store?.Dispose();
            return null;
        }
        catch (Exception failure)
        {
            // The failure is kept as the replica's state, which `kv status` shows. The node serves its other shards.
            store?.Dispose();
            return Failed(seen, replicaId, failure);
        }
    }

    private HostedShard Failed(ShardRecord seen, ReplicaId replicaId, Exception failure)
    {
        var waitsForRoom = failure is StorageIoException { IsDiskFull: true };
        var reason = waitsForRoom ? $"the disk is full; the replica waits for space and is opened when there is some: {failure.Message}" : failure.Message;
        // Each reason is logged once, however often the replica is opened again.
        if (_failures.MaySay(replicaId, reason))
            Log(seen.ShardId, replicaId, failure, waitsForRoom, reason);
        var isLost = DamagedReplica.IsLost(failure);
        TimeSpan? openAgainIn = failure switch
        {
            IOException or UnauthorizedAccessException => ReopenPause,
            CoordinatorUnavailableException or CoordinatorAlarmException => AskAgainPause,
            _ => null,
        };
        return new HostedShard(seen, replicaId, replica: null, reason, isLost, openAgainIn, waitsForRoom ? new RoomLack(failure.Message) : null);
    }

    private void Log(ShardId shard, ReplicaId replicaId, Exception failure, bool waitsForRoom, string reason)
    {
        if (waitsForRoom)
            HostLog.ReplicaWaitsForRoom(_log, shard, replicaId, failure.Message);
        else
            HostLog.ReplicaFailed(_log, shard, replicaId, reason, failure is ReplicaNotUsableException or ForeignStoreException ? null : failure);
    }

    // Read afresh, because an outdated record must not cause a lost replica to be created anew.
    private async Task<(ShardRecord Record, long Revision)> ReadAsync(ShardId shard, ReplicaId replicaId)
    {
        var read = await _coordinator.GetUntilAnsweredAsync(_keys.Shard(shard), _stopping).ConfigureAwait(false);
        if (read.Value is null || RecordText.Parse<ShardRecord>(read.Value) is not { } record || ReplicaHere(record)?.ReplicaId != replicaId)
            throw new ReplicaNotUsableException("The shard's record no longer names this replica.");
        if (RecoveryNumber.Of(record) != _directory.Known.Recovery)
            throw new CoordinatorUnavailableException($"The shard's record is of recovery {RecoveryNumber.Of(record)} of the coordinator's records, but this "
                + $"node goes by recovery {_directory.Known.Recovery}. Nothing was changed; it is read again.");
        if (Lineage.Read(record.Lineage) != _identity.Lineage)
            throw new ReplicaNotUsableException($"The shard's record is of lineage {Lineage.Read(record.Lineage)}, but this node's data is of "
                + $"{_identity.Lineage}. Nothing was changed; restart the node.");
        // The record is kept before the replica acts on it, which it does from its start.
        if (!_directory.Known.TryKeep(record))
            throw Bound();
        return (record, read.ModRevision);
    }

    private (ReplicaStore Store, string Action) OpenStore(ShardRecord record, long revision, StoreContext context)
    {
        var here = ReplicaHere(record)!;
        var path = _directory.ShardPath(record.ShardId);
        if (Directory.Exists(path) && !here.Created && IsOfAReplicaThatLeft(record, revision, path))
            _directory.SetAside(record.ShardId);
        if (!Directory.Exists(path))
        {
            if (here.Created)
                throw new ReplicaNotUsableException(
                    "lost: its directory is gone. It may have made promises and acknowledged records, so it is not created again under its id.", isLost: true);
            var initial = new ControlState { ReplicaId = here.ReplicaId, Shard = record.ShardId, Generation = record.Generation, ClusterHash = _clusterHash };
            // Set before the creation, because a failure after the last rename leaves the directory behind nevertheless.
            _made[here.ReplicaId] = true;
            return (ReplicaStore.Create(context, path, initial), "created");
        }
        var expected = new StoreIdentity(here.ReplicaId, record.ShardId, _clusterHash);
        return (ReplicaStore.Open(context, path, mayRecover: record.Replicas.Count > 1, expected), "opened");
    }

    // Whether the directory is left over from a removed replica: the node was stopped when it was removed, or did not see the removal before it got a new
    // one. A directory that does not tell whose it is counts as such: the new replica has none yet, so nothing was ever acknowledged under its id.
    private bool IsOfAReplicaThatLeft(ShardRecord record, long revision, string path) =>
        ControlFile.StateOf(LocalDisk.Instance, path) is not { } found
        || (found.ClusterHash == _clusterHash && found.Shard == record.ShardId
            && new Retirement(found.Generation, found.PromisedEpoch, new RecordVersion(found.Recovery, found.CoordinatorRevision))
                .WhyNot(record, revision, found.ReplicaId) is null);

    private async Task<(ShardRecord Record, long Revision)> MarkCreatedAsync(ShardRecord record, long revision)
    {
        var replicaId = ReplicaHere(record)!.ReplicaId;
        while (true)
        {
            (ReplicaHere(record)!.Created, ReplicaHere(record)!.Creator) = (true, _identity.Incarnation);
            var guard = _coordinator.Guard;
            if (_directory.Known.Bound is not null)
                throw Bound();
            if (RecoveryNumber.Of(record) != (guard?.Recovery ?? default))
                throw new CoordinatorUnavailableException("The coordinator's records were rebuilt meanwhile; the shard's is read again.");
            var set = await _coordinator.SetUntilSettledAsync(
                _keys.Shard(record.ShardId), revision, RecordText.Format(record), 0, guard, _stopping).ConfigureAwait(false);
            if (set.Outcome == SetOutcome.Won)
                return (record, set.Revision);
            (record, revision) = await ReadAsync(record.ShardId, replicaId).ConfigureAwait(false);
            // An attempt whose answer was lost may have succeeded, followed by a change of somebody else.
            if (ReplicaHere(record)!.Created)
                return (record, revision);
        }
    }

    // Here, because the rules by which a replica retires compare what it has seen with a record that may know less of epochs.
    private ReplicaNotUsableException GiveUp(ShardId shard)
    {
        if (Directory.Exists(_directory.ShardPath(shard)))
            _directory.SetAside(shard);
        return new ReplicaNotUsableException(ReplicaNotUsableException.Absent, isLost: true);
    }

    private CoordinatorUnavailableException Bound() =>
        new("The replica is not opened: "
            + $"{(_directory.Known.Bound is { } bound ? KnownRecords.DescribeBound(bound) : "this node was bound to a recovery until now")}. "
            + "It is tried again.");

    private ReplicaRecord? ReplicaHere(ShardRecord record) => record.Replicas.FirstOrDefault(replica => replica.NodeId == _identity.Node);
}
