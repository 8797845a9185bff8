// The replicas of a node. One loop follows the shard records: it opens the replicas that they name for this node and informs replicas of changes.
// Requests look shards up on any thread. An exception while a replica is opened marks that replica as failed and affects no other.
using System.Collections.Concurrent;
using System.Security.Cryptography;
using System.Text;
using KvCluster.Node.Coordination;
using KvCluster.Node.Map;
using KvCluster.Node.Runtime;
using KvCluster.Node.Shards;
using KvCluster.Node.Telemetry;
using KvCluster.Replication.Protocol;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Threads;
using KvCluster.V1;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Hosting;

/// <summary>Opens, finds and closes a node's replicas.</summary>
internal sealed class ShardHost : IAsyncDisposable
{
    /// <summary>
    /// Threads of each kind: enough for the disks of two cores. A shard's id binds it to one writer and one checkpoint thread; its journal has a lane on
    /// each journal thread.
    /// </summary>
    private const int ThreadsOfAKind = 2;

    /// <summary>Number of replicas that are opened at the same time. Each may replay a whole journal.</summary>
    private const int OpeningMax = 4;

    /// <summary>
    /// Delay with which a shard that never had a leader starts on nodes other than its preferred leader's. Less than the shortest election timeout, so that all
    /// replicas run when the preferred one campaigns, and long enough that it usually campaigns first. So a new cluster's leaders are on different nodes.
    /// </summary>
    private static readonly TimeSpan PreferredLead = TimeSpan.FromMilliseconds(400);

    /// <summary>Maximum age of the state of a replica that is ready. Quiescent leaders send a heartbeat every five seconds, and one may be lost.</summary>
    private static readonly TimeSpan ReadyAgeMax = TimeSpan.FromSeconds(15);

    private static readonly TimeSpan RetryPause = TimeSpan.FromSeconds(1);

    /// <summary>Pause before opening a replica again that failed because of its disk: no space, no file handles, or a file's permission.</summary>
    private static readonly TimeSpan ReopenPause = TimeSpan.FromSeconds(5);

    /// <summary>The same if it failed because of the coordinator. What etcd refuses because of load (RESOURCE_EXHAUSTED) it accepts a moment later.</summary>
    private static readonly TimeSpan AskAgainPause = TimeSpan.FromSeconds(1);

    private const string Created = "created";

    private readonly Lock _gate = new();
    private readonly NodeIdentity _identity;
    private readonly NodeDirectory _directory;
    private readonly ShardDirectory _map;
    private readonly ICoordinator _coordinator;
    private readonly ShardCoordination _coordination;
    private readonly CoordinatorKeys _keys;
    private readonly IPeerTransport _peers;
    private readonly ReplicationOptions _replication;
    private readonly StoreOptions _storage;
    private readonly NodeMetrics _metrics;
    private readonly ILoggerFactory _logs;
    private readonly ILogger _log;
    private readonly ulong _clusterHash;
    private readonly WorkThread[] _writers = Threads("writer");
    private readonly WorkThread[] _journals = Threads("journal");
    private readonly WorkThread[] _checkpoints = Threads("checkpoint");
    private readonly SharedTimers _timers = new();
    private readonly DigestPace _digestPace;
    private readonly NodeDisk _disk;
    private readonly SemaphoreSlim _digestTurn = new(1);
    private readonly CancellationTokenSource _stopping = new();
    private readonly TaskCompletionSource<StorageIoException> _diskFailed = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly ConcurrentDictionary<ulong, string> _openFailures = new();

    // Replicas whose directory this process created, and whose mark in the record is not yet known to be its own.
    private readonly ConcurrentDictionary<ulong, bool> _made = new();
    private readonly Dictionary<ulong, string> _notRetired = [];
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
        _storage = storage;
        _digestPace = new DigestPace(storage.DigestBytesPerSecond);
        _disk = new NodeDisk(_timers);
        Stalls = new StallWatch(_writers, metrics, logs.CreateLogger<StallWatch>());
        _timers.Late = Stalls.TimersWereLate;
        _logs = logs;
        _log = logs.CreateLogger<ShardHost>();
        _coordination = new ShardCoordination(coordinator, _keys, _log);
        _clusterHash = BitConverter.ToUInt64(SHA256.HashData(Encoding.UTF8.GetBytes($"{identity.Cluster}/{identity.ClusterId}")));
    }

    /// <summary>The bounds of every replica's store.</summary>
    public StoreOptions Storage => _storage;

    /// <summary>All shards of which this node should have a replica, ordered by start.</summary>
    public IReadOnlyList<HostedShard> All => _hosted.All;

    /// <summary>Watches whether writers and timers make progress.</summary>
    public StallWatch Stalls { get; }

    /// <summary>The status of replicas that are this node's and not open yet. After a start each replays its journal.</summary>
    public IEnumerable<ReplicaStatus> Opening() =>
        Missing(_map.Snapshot).Select(record => new ReplicaStatus { Route = ShardDirectorySnapshot.RouteOf(record), Replica = ReplicaHere(record)!.Replica, Role = "opening" });

    /// <summary>
    /// The entries of shards in <c>kv status</c>. Digests are computed one at a time, for all callers together, because each reads a whole tree.
    /// </summary>
    public async Task<IReadOnlyList<ReplicaStatus>> StatusAsync(IReadOnlyCollection<HostedShard> asked, bool digest, bool detail, CancellationToken cancellationToken)
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

    /// <summary>Completes when a disk has refused or lost what a replica wrote or synced.</summary>
    public Task<StorageIoException> DiskFailed => _diskFailed.Task;

    /// <summary>Why requests should go elsewhere: something that this node should serve is not served, or not up to date. Null if ready. Any thread.</summary>
    public string? NotReady()
    {
        var snapshot = _map.Snapshot;
        if (snapshot.Records.IsEmpty)
            return "it has not read the shards' records yet";
        if (Missing(snapshot).FirstOrDefault() is { } missing)
            return $"shard {missing.Shard}: its replica is being opened";
        return All.Select(NotReady).FirstOrDefault(reason => reason is not null);
    }

    private static string? NotReady(HostedShard shard) => shard.Replica switch
    {
        null => $"shard {shard.Shard}: its replica failed: {shard.Failure}",
        { Failure: { } failure } => $"shard {shard.Shard}: its replica failed: {failure.Message}",
        { Reads.AgeUs: null } => $"shard {shard.Shard}: it has not heard from a leader",
        { Reads.AgeUs: { } ageUs } when ageUs > ReadyAgeMax.TotalMicroseconds => $"shard {shard.Shard}: its data is {ageUs / 1_000_000} s old; there is no leader, or the replica lags behind",
        _ => null,
    };

    /// <summary>Starts to follow the records.</summary>
    public void Start() => _running = Task.Run(RunAsync);

    /// <inheritdoc cref="HostedShards.Find(uint)"/>
    public HostedShard? Find(uint shard) => _hosted.Find(shard);

    /// <inheritdoc cref="HostedShards.Find(ReadOnlySpan{byte})"/>
    public HostedShard? Find(ReadOnlySpan<byte> key) => _hosted.Find(key);

    /// <inheritdoc cref="HostedShards.FindBefore"/>
    public HostedShard? FindBefore(ReadOnlySpan<byte> key) => _hosted.FindBefore(key);

    /// <summary>The route of the shard that owns a key, as far as this node knows.</summary>
    public ShardRoute? RouteOf(ReadOnlySpan<byte> key) => _map.Snapshot.Find(key);

    /// <summary>A shard's route; null if this node does not know it.</summary>
    public ShardRoute? RouteOf(uint shard) => _map.Snapshot.Routes.FirstOrDefault(route => route.Shard == shard);

    /// <summary>Whether there is no such shard. Also false before this node has read the shards' records.</summary>
    public bool IsUnknown(uint shard) => _map.Snapshot.Records is { Count: > 0 } records && !records.ContainsKey(shard);

    /// <summary>The same for the greatest possible key before the given one.</summary>
    public ShardRoute? RouteBefore(ReadOnlySpan<byte> key) => _map.Snapshot.FindBefore(key);

    /// <summary>Passes a frame to the replica that it is for, unless its sender is a replica of a different node. Any thread; never waits.</summary>
    /// <param name="node">The node whose stream it came by.</param>
    /// <param name="frame">The frame.</param>
    public void Receive(uint node, Frame frame)
    {
        if (MaySpeak(node, frame))
            _hosted.Find(frame.Shard)?.Replica?.Receive(frame);
    }

    /// <summary>Tells all replicas that a node is silent. Any thread; never waits.</summary>
    public void NodeSilent(uint node)
    {
        foreach (var shard in All)
            shard.Replica?.NodeSilent(node);
    }

    /// <summary>Before a stop, writes checkpoints where the next start would have much to replay, as far as time allows. None of them is necessary.</summary>
    public async Task CoverAsync(CancellationToken cancellationToken)
    {
        foreach (var covered in All.Where(shard => shard.Replica is { HasMuchToReplay: true }).Select(shard => (shard.Shard, Task: shard.Replica!.CheckpointAsync())).ToList())
        {
            try
            {
                await covered.Task.WaitAsync(cancellationToken).ConfigureAwait(false);
            }
            catch (Exception failure)
            {
                // Its journal has everything.
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
        await Stalls.DisposeAsync().ConfigureAwait(false);
        foreach (var thread in (WorkThread[])[.. _writers, .. _journals, .. _checkpoints])
            thread.Dispose();
        _timers.Dispose();
        _stopping.Dispose();
    }

    // Replicas never change their node. For a replica that is not in the map, yet or any more, the receiving replica's own record decides.
    private bool MaySpeak(uint node, Frame frame)
    {
        if (!_map.Snapshot.Records.TryGetValue(frame.Shard, out var entry))
            return true;
        foreach (var replica in entry.Record.Replicas)
        {
            if (replica.Replica == frame.Sender)
                return replica.Node == node;
        }
        return true;
    }

    private static WorkThread[] Threads(string kind) => [.. Enumerable.Range(0, ThreadsOfAKind).Select(index => new WorkThread($"kv-{kind}-{index}"))];

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
            if (!seen.Records.TryGetValue(shard.Shard, out var before) || before.Revision != entry.Revision)
                shard.Replica.RecordChanged(entry.Record, entry.Revision);
        }
    }

    // Closes replicas that the records list as removed. Only a record that is read afresh, and is not older than what the replica has seen, justifies
    // moving a directory away.
    private async Task RetireAsync(ShardDirectorySnapshot snapshot)
    {
        foreach (var shard in All)
        {
            if (!snapshot.Records.TryGetValue(shard.Shard, out var entry) || ReplicaHere(entry.Record)?.Replica == shard.ReplicaId)
                continue;
            try
            {
                var seen = await SeenAsync(shard).ConfigureAwait(false);
                var read = await _coordinator.GetUntilAnsweredAsync(_keys.Shard(shard.Shard), _stopping.Token).ConfigureAwait(false);
                if (read.Value is null || RecordText.Parse<ShardRecord>(read.Value) is var record && record.Replicas.Any(replica => replica.Replica == shard.ReplicaId))
                    continue;
                if (seen.WhyNot(record, read.ModRevision, shard.ReplicaId) is { } reason)
                    TellNotRetired(shard, reason);
                else
                    await RetireAsync(shard).ConfigureAwait(false);
            }
            catch (OperationCanceledException) when (_stopping.IsCancellationRequested)
            {
                return;
            }
            catch (CoordinatorAlarmException failure)
            {
                // What such a coordinator says justifies no removal.
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
            var (generation, epoch, revision) = await shard.Replica.Report.SeenAsync().ConfigureAwait(false);
            return shard.Seen.Or(new Retirement(generation, epoch, revision));
        }
        return ControlFile.StateOf(LocalDisk.Instance, _directory.ShardPath(shard.Shard)) is { } control && control.ReplicaId == shard.ReplicaId
            ? shard.Seen.Or(new Retirement(control.Generation, control.PromisedEpoch, control.CoordinatorRevision))
            : shard.Seen;
    }

    private void TellNotRetired(HostedShard shard, string reason)
    {
        if (_notRetired.GetValueOrDefault(shard.ReplicaId) == reason)
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
        if (!Directory.Exists(_directory.ShardPath(shard.Shard)))
            return;
        if (wasLost)
            _directory.SetAside(shard.Shard);
        else
            _directory.Retire(shard.Shard, shard.ReplicaId);
        _notRetired.Remove(shard.ReplicaId);
        HostLog.ReplicaRetired(_log, shard.Shard, shard.ReplicaId, wasLost ? "set aside" : "kept until its space is needed");
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
            await Parallel.ForEachAsync(waits, options, async (record, _) => Add(await OpenAsync(record).ConfigureAwait(false))).ConfigureAwait(false);
        }
    }

    private IEnumerable<ShardRecord> Missing(ShardDirectorySnapshot snapshot)
    {
        var hosted = All.Select(shard => shard.Shard).ToHashSet();
        return snapshot.Records.Values.Select(entry => entry.Record).Where(record => !hosted.Contains(record.Shard) && ReplicaHere(record) is not null);
    }

    private bool IsPreferredHere(ShardRecord record) => ShardView.PreferredLeader(record).Node == _identity.Node;

    private ReplicaRecord? ReplicaHere(ShardRecord record) => record.Replicas.FirstOrDefault(replica => replica.Node == _identity.Node);

    private void Add(HostedShard? shard)
    {
        if (shard is null)
            return;
        lock (_gate)
            _hosted = _hosted.With(shard);
    }

    // Null: the node is stopping.
    private async Task<HostedShard?> OpenAsync(ShardRecord seen)
    {
        var replicaId = ReplicaHere(seen)!.Replica;
        ReplicaStore? store = null;
        try
        {
            var (record, revision) = await ReadAsync(seen.Shard, replicaId).ConfigureAwait(false);
            var telemetry = new ShardTelemetry(record.Shard, _metrics);
            var storage = StorageOf(record.Shard, telemetry);
            (store, var action) = OpenStore(record, revision, storage);
            if (!ReplicaHere(record)!.Created)
                (record, revision) = await MarkCreatedAsync(record, revision).ConfigureAwait(false);
            if (_made.ContainsKey(replicaId) && ReplicaHere(record)!.Creator != _identity.Incarnation)
            {
                // Another process of this node has created it too, and may have promised and acknowledged under its id by now.
                store.Dispose();
                store = null;
                _directory.Delete(record.Shard);
                _made.TryRemove(replicaId, out _);
                throw new ReplicaNotUsableException("lost: another process of this node created it.", isLost: true);
            }
            var replica = new ShardReplica(ContextOf(storage, telemetry), store, record, revision);
            replica.Start();
            HostLog.ReplicaOpened(_log, record.Shard, replicaId, action);
            _openFailures.TryRemove(replicaId, out _);
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
            // Kept as the replica's state. Status shows it, and the node serves its other shards.
            store?.Dispose();
            var waitsForRoom = failure is StorageIoException { IsDiskFull: true };
            var reason = waitsForRoom ? $"the disk is full; the replica waits for space and is opened when there is some: {failure.Message}" : failure.Message;
            if (_openFailures.TryGetValue(replicaId, out var told) && told == reason)
                told = reason;
            else if (waitsForRoom)
                HostLog.ReplicaWaitsForRoom(_log, seen.Shard, replicaId, failure.Message);
            else
                HostLog.ReplicaFailed(_log, seen.Shard, replicaId, reason, failure is ReplicaNotUsableException or ForeignStoreException ? null : failure);
            _openFailures[replicaId] = reason;
            var isLost = failure is CorruptStoreException or ReplicaNotUsableException { IsLost: true };
            TimeSpan? openAgainIn = failure switch
            {
                IOException or UnauthorizedAccessException => ReopenPause,
                CoordinatorUnavailableException or CoordinatorAlarmException => AskAgainPause,
                _ => null,
            };
            return new HostedShard(seen, replicaId, replica: null, reason, isLost, openAgainIn);
        }
    }

    // Read afresh, because an outdated record must not cause a lost replica to be created anew.
    private async Task<(ShardRecord Record, long Revision)> ReadAsync(uint shard, ulong replicaId)
    {
        var read = await _coordinator.GetUntilAnsweredAsync(_keys.Shard(shard), _stopping.Token).ConfigureAwait(false);
        if (read.Value is null || RecordText.Parse<ShardRecord>(read.Value) is not { } record || ReplicaHere(record)?.Replica != replicaId)
            throw new ReplicaNotUsableException("The shard's record no longer names this replica.");
        return (record, read.ModRevision);
    }

    private (ReplicaStore Store, string Action) OpenStore(ShardRecord record, long revision, StoreContext context)
    {
        var here = ReplicaHere(record)!;
        var path = _directory.ShardPath(record.Shard);
        if (Directory.Exists(path) && !here.Created && IsOfAReplicaThatLeft(record, revision, path))
            _directory.SetAside(record.Shard);
        if (!Directory.Exists(path))
        {
            if (here.Created)
                throw new ReplicaNotUsableException("lost: its directory is gone. It may have made promises and acknowledged records, so it is not created again under its id.", isLost: true);
            var initial = new ControlState { ReplicaId = here.Replica, Shard = record.Shard, Generation = record.Generation, ClusterHash = _clusterHash };
            // Set before the creation, because a failure after the last rename leaves the directory behind nevertheless.
            _made[here.Replica] = true;
            return (ReplicaStore.Create(context, path, initial), Created);
        }
        var expected = new StoreIdentity(here.Replica, record.Shard, _clusterHash);
        return (ReplicaStore.Open(context, path, mayRecover: record.Replicas.Count > 1, expected), "opened");
    }

    // Whether the directory is left over from a removed replica: the node was stopped when it was removed, or did not see the removal before it got a new
    // one. A directory that does not tell whose it is counts as such: the new replica has none yet, so nothing was ever acknowledged under its id.
    private bool IsOfAReplicaThatLeft(ShardRecord record, long revision, string path) =>
        ControlFile.StateOf(LocalDisk.Instance, path) is not { } found
        || (found.ClusterHash == _clusterHash && found.Shard == record.Shard
            && new Retirement(found.Generation, found.PromisedEpoch, found.CoordinatorRevision).WhyNot(record, revision, found.ReplicaId) is null);

    private async Task<(ShardRecord Record, long Revision)> MarkCreatedAsync(ShardRecord record, long revision)
    {
        var replicaId = ReplicaHere(record)!.Replica;
        while (true)
        {
            (ReplicaHere(record)!.Created, ReplicaHere(record)!.Creator) = (true, _identity.Incarnation);
            var set = await _coordinator.SetUntilSettledAsync(_keys.Shard(record.Shard), revision, RecordText.Format(record), 0, _stopping.Token).ConfigureAwait(false);
            if (set.Outcome == CompareAndSetOutcome.Won)
                return (record, set.Revision);
            (record, revision) = await ReadAsync(record.Shard, replicaId).ConfigureAwait(false);
            // An attempt whose answer was lost may have succeeded, followed by a change of somebody else.
            if (ReplicaHere(record)!.Created)
                return (record, revision);
        }
    }

    private StoreContext StorageOf(uint shard, ShardTelemetry telemetry) => new(
        LocalDisk.Instance,
        _writers[shard % ThreadsOfAKind],
        [.. Enumerable.Range(0, ThreadsOfAKind).Select(lane => _journals[(shard + lane) % ThreadsOfAKind])],
        _checkpoints[shard % ThreadsOfAKind],
        BootClock.Instance,
        _logs.CreateLogger<ReplicaStore>(),
        _storage)
    {
        DigestPace = _digestPace,
        Observer = telemetry,
    };

    private ShardReplicaContext ContextOf(StoreContext storage, ShardTelemetry telemetry) => new(
        _identity.Node,
        _identity.Incarnation,
        storage,
        _timers,
        _peers,
        _coordination,
        _replication,
        BitConverter.ToUInt64(RandomNumberGenerator.GetBytes(sizeof(ulong))),
        _map.Fold,
        _logs.CreateLogger<ShardReplica>())
    {
        Telemetry = telemetry,
        Metrics = _metrics,
        Disk = _disk,
        Failed = OnReplicaFailed,
    };

    private void OnReplicaFailed(Exception failure)
    {
        // Including lack of space: a full disk for which something can wait does not end a replica.
        if (failure is StorageIoException broken)
            _diskFailed.TrySetResult(broken);
    }
}
