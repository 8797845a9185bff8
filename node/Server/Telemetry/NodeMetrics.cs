// All metrics of a node, with their units. Names are defined here once and described in deploy/telemetry/METRICS.md; a test compares the two. Measured on the
// thread that did the work, without a lock of our own. While nobody listens, an instrument costs only the check of a flag. Values that must be read from the
// replicas come from MetricsRefresh, so that no collection ever waits for a shard.
using System.Diagnostics;
using System.Diagnostics.Metrics;
using KvCluster.Node.Runtime;
using KvCluster.Replication.Protocol;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.ServiceDefaults.Programs;
using KvCluster.Storage.Context;
using KvCluster.Telemetry;
using KvCluster.V1;
using Tag = System.Collections.Generic.KeyValuePair<string, object?>;

namespace KvCluster.Node.Telemetry;

/// <summary>The instruments of one node.</summary>
internal sealed class NodeMetrics : IAsyncDisposable
{
    /// <summary>Name of the meter, and of the source of traces.</summary>
    public const string Name = "KvCluster.Node";

    private const string Role = "kvcluster.role";
    private const string Result = "kvcluster.result";
    private const string Disk = "kvcluster.disk";
    private const string Call = "kvcluster.call";
    private const string Direction = "kvcluster.direction";
    private const string Reason = "kvcluster.reason";
    private const string Use = "kvcluster.use";

    // Each role is reported with its count, including 0: a series that is pushed and then no longer reported keeps its last value for minutes.
    private static readonly (ReplicaRole? Role, string Name)[] Roles =
        [.. Enum.GetValues<ReplicaRole>().Select(role => ((ReplicaRole?)role, NameOf(role))), (null, "failed")];

    private static readonly (MemoryUse Use, string Name)[] MemoryUses =
    [
        (MemoryUse.ChangedPages, "changed_pages"),
        (MemoryUse.ReaderPages, "reader_pages"), (MemoryUse.DigestPages, "digest_pages"), (MemoryUse.FreePages, "free_pages"),
        (MemoryUse.Journal, "journal"), (MemoryUse.JournalIndex, "journal_index"), (MemoryUse.Requests, "requests"),
    ];

    private readonly Meter _meter;
    private readonly Histogram<double> _requests;
    private readonly Counter<long> _refused;
    private readonly Histogram<long> _transactionOperations;
    private readonly Histogram<double> _transactionWait;
    private readonly Histogram<double> _journalWrite;
    private readonly Histogram<long> _journalWriteSize;
    private readonly Histogram<double> _commit;
    private readonly Histogram<double> _followerAck;
    private readonly Histogram<double> _checkpoint;
    private readonly Histogram<long> _checkpointSize;
    private readonly Histogram<double> _expiryDelay;
    private readonly Histogram<double> _coordinatorCalls;
    private readonly ObservableInstrument<long> _replicas;
    private readonly int _shardSeriesMax;
    private volatile MeasuredNode _measured = MeasuredNode.None;
    private volatile CallMemory? _calls;
    private volatile MemoryAccount? _stores;
    private volatile Func<long>? _watchers;
    private volatile Func<long>? _watchLag;
    private volatile Func<DateTimeOffset?>? _coordinatorSavedAt;
    private volatile Func<bool>? _coordinatorFollowed;
    private long _activeRequests;
    private long _elections;
    private long _transfersDone;
    private long _transfersRefused;
    private long _alarms;
    private long _digests;
    private long _quarantines;
    private long _failures;
    private readonly long[] _stalls = new long[Stall.Reasons.Count];
    private long _expired;
    private long _sessionsEnded;
    private long _snapshotsSent;
    private long _snapshotsReceived;
    private long _checkpoints;
    private long _checkpointBytes;
    private int _coordinatorAnswers;

    /// <param name="identity">The node's identity.</param>
    /// <param name="shardSeriesMax">Number of shards with series of their own: those with the lowest ids, so always the same ones.</param>
    public NodeMetrics(NodeIdentity identity, int shardSeriesMax)
    {
        _shardSeriesMax = shardSeriesMax;
        // The tag distinguishes nodes that run in one process.
        _meter = new Meter(Name, null, [new Tag("kvcluster.node", BoxedNode.Of(identity.Node))]);
        _requests = Seconds("kvcluster.node.request.duration", "Duration of answered client calls, from arrival to answer.");
        _refused = Counter("kvcluster.node.request.refused", "{request}", "Client calls that were refused, by reason.");
        _meter.CreateObservableUpDownCounter("kvcluster.node.connections.left", static () => ConnectionLimit.Left.Count, "{connection}", "Client connections "
            + "that have ended while the server was still at work on them. Of those that many calls were reset on, some stay until memory is collected.");
        _meter.CreateObservableUpDownCounter(
            "kvcluster.node.connections.waiting", static () => ReadingGate.OfProcess.Waiting, "{connection}",
            "Client connections that are not being read at the moment, because the thread pool of the process is busy.");
        _meter.CreateObservableUpDownCounter(
            "kvcluster.node.request.active", () => Interlocked.Read(ref _activeRequests), "{request}", "Client calls in progress.");
        _transactionOperations = _meter.CreateHistogram(
            "kvcluster.node.transaction.operations", "{operation}", "Operations merged into one transaction.", null, Buckets.Counts);
        _transactionWait = Seconds("kvcluster.node.transaction.wait.duration", "Time that the first request of a merged transaction waited in the queue.");
        _journalWrite = Seconds("kvcluster.node.journal.write.duration", "Duration of one journal write, until it is on stable storage.");
        _journalWriteSize = _meter.CreateHistogram("kvcluster.node.journal.write.size", "By", "Bytes of one journal write.", null, Buckets.Bytes);
        _commit = Seconds("kvcluster.node.commit.duration", "At a leader: time from handing a record to the journal until a majority has it.");
        _followerAck = Seconds("kvcluster.node.follower.ack.duration", "At a leader: time from handing a record to the journal until a follower has it.");
        _checkpoint = _meter.CreateHistogram(
            "kvcluster.node.checkpoint.duration", "s", "Duration of one checkpoint, pauses included.", null, Buckets.LongSeconds);
        _checkpointSize = _meter.CreateHistogram(
            "kvcluster.node.checkpoint.size", "By", "Bytes of changed pages that one checkpoint wrote.", null, Buckets.Bytes);
        _expiryDelay = Seconds(
            "kvcluster.node.expiry.delay.duration", "At a leader: for each record in which keys expire, how late the first of them does, by shard time.");
        _coordinatorCalls = Seconds("kvcluster.node.coordinator.call.duration", "Duration of calls to the coordinator.");
        // No value yet counts as 1, because a node serves only after it has followed the coordinator.
        _meter.CreateObservableGauge(
            "kvcluster.node.coordinator.followed", () => _coordinatorFollowed?.Invoke() == false ? 0L : 1L, "{coordinator}",
            "1 if the node goes by the coordinator's records, 0 if those are lost, older than what it has seen, or of another cluster.");
        _meter.CreateObservableGauge(
            "kvcluster.node.coordinator.reachable", () => Volatile.Read(ref _coordinatorAnswers), "{coordinator}",
            "1 if the coordinator answered the last call, else 0.");
        _meter.CreateObservableGauge("kvcluster.node.coordinator.snapshot.age", CoordinatorSnapshotAge, "s", "Age of the newest snapshot of the coordinator's "
            + "data that the node knows of. Absent if it knows of none.");
        _meter.CreateObservableGauge("kvcluster.node.info", () => InfoOf(identity), "{node}", "Always 1. The node and its version are labels.");
        _replicas = _meter.CreateObservableUpDownCounter("kvcluster.node.replicas", ReplicasByRole, "{replica}", "Replicas of this node, by role.");
        _meter.CreateObservableCounter(
            "kvcluster.node.starts", () => (long)(identity.Incarnation >> 32), "{start}", "Starts of the node with this data directory.");
        ObserveEvents();
        ObserveReplicas();
        ObserveShards();
        ObservePeers();
        ObserveStores();
    }

    /// <summary>The meter, to distinguish this node's from another's in the process.</summary>
    public Meter Meter => _meter;

    /// <summary>Recent activity, for the node's status.</summary>
    public RecentActivity Activity { get; } = new(TimeProvider.System);

    /// <summary>The last fifteen minutes, for the node's status.</summary>
    public RecentHistory History { get; } = new();

    /// <summary>Whether somebody listens to how calls end.</summary>
    public bool WatchesRequests => _requests.Enabled || _refused.Enabled || Activity.IsWatched;

    /// <summary>Whether somebody listens to what stores do.</summary>
    public bool WatchesStores => _journalWrite.Enabled;

    /// <summary>Whether somebody listens to the state of replicas.</summary>
    public bool WatchesReplicas => _replicas.Enabled;

    /// <summary>The latest state of the replicas.</summary>
    public MeasuredNode Measured
    {
        set => _measured = value;
    }

    /// <summary>The memory of calls. Set when the node begins to serve.</summary>
    public CallMemory Calls
    {
        set => _calls = value;
    }

    /// <summary>The memory of all stores. Set before the first is opened.</summary>
    public MemoryAccount Stores
    {
        set => _stores = value;
    }

    /// <summary>Counts the watchers. Set when the node begins to serve.</summary>
    public Func<long> Watchers
    {
        set => _watchers = value;
    }

    /// <summary>Counts the changes that the slowest watcher lacks. Set when the node begins to serve.</summary>
    public Func<long> WatchLag
    {
        set => _watchLag = value;
    }

    /// <summary>When the coordinator's data was last saved; null if that is not known. Set when the node has a shard map.</summary>
    public Func<DateTimeOffset?> CoordinatorSavedAt
    {
        set => _coordinatorSavedAt = value;
    }

    /// <summary>Whether the node goes by the coordinator's records. Set when something looks at them.</summary>
    public Func<bool> CoordinatorFollowed
    {
        set => _coordinatorFollowed = value;
    }

    public void RequestBegan() => Interlocked.Increment(ref _activeRequests);

    /// <summary>A call was answered.</summary>
    /// <param name="method">The method.</param>
    /// <param name="took">Time since its arrival.</param>
    public void RequestAnswered(Method method, TimeSpan took)
    {
        Interlocked.Decrement(ref _activeRequests);
        _requests.Record(took.TotalSeconds, MethodTags.Of(method));
        Activity.Answered(isRead: method.IsRead(), took);
    }

    public void RequestRefused(Method method, string reason)
    {
        Interlocked.Decrement(ref _activeRequests);
        _refused.Add(1, MethodTags.Of(method), new Tag(RpcTags.Error, reason));
        Activity.Refused();
    }

    /// <summary>A router limited the reply to less than its size, and will request it again in full. That request is counted, and not this one.</summary>
    public void RequestDeferred() => Interlocked.Decrement(ref _activeRequests);

    /// <summary>A scan has ended.</summary>
    /// <param name="took">Time since its arrival.</param>
    /// <param name="refusedFor">The reason why it was refused; null if it was answered.</param>
    public void Scanned(TimeSpan took, string? refusedFor)
    {
        Interlocked.Decrement(ref _activeRequests);
        if (refusedFor is null)
        {
            _requests.Record(took.TotalSeconds, MethodTags.Scan);
            Activity.Answered(isRead: true, took);
        }
        else
        {
            _refused.Add(1, MethodTags.Scan, new Tag(RpcTags.Error, refusedFor));
            Activity.Refused();
        }
    }

    /// <summary>A watch has ended. If its caller has gone, that is not counted.</summary>
    public void WatchEnded(string reason) => _refused.Add(1, MethodTags.Watch, new Tag(RpcTags.Error, reason));

    public void TransactionAppended(int operations, TimeSpan waited)
    {
        _transactionOperations.Record(operations);
        if (waited > TimeSpan.Zero)
            _transactionWait.Record(waited.TotalSeconds);
    }

    public void JournalWritten(int bytes, TimeSpan took)
    {
        _journalWrite.Record(took.TotalSeconds);
        _journalWriteSize.Record(bytes);
    }

    public void Committed(TimeSpan took) => _commit.Record(took.TotalSeconds);

    public void FollowerAcknowledged(NodeId node, TimeSpan took) => _followerAck.Record(took.TotalSeconds, new Tag(RpcTags.Peer, BoxedNode.Of(node)));

    public void CheckpointWritten(long bytes, TimeSpan took)
    {
        Interlocked.Increment(ref _checkpoints);
        Interlocked.Add(ref _checkpointBytes, bytes);
        _checkpoint.Record(took.TotalSeconds);
        _checkpointSize.Record(bytes);
    }

    /// <summary>Calls and checkpoints since this was called last. One caller at a time.</summary>
    public (MeasuredCalls Calls, long Checkpoints, long CheckpointBytes) TakeWork() =>
        (Activity.Take(isAlwaysMeasured: _requests.Enabled), Interlocked.Exchange(ref _checkpoints, 0), Interlocked.Exchange(ref _checkpointBytes, 0));

    /// <summary>Keys expire in a record of a leader here.</summary>
    /// <param name="keys">How many.</param>
    /// <param name="late">How late the first of them does.</param>
    public void Expired(int keys, TimeSpan late)
    {
        Interlocked.Add(ref _expired, keys);
        _expiryDelay.Record(late.TotalSeconds);
    }

    public void SessionsEnded(int sessions) => Interlocked.Add(ref _sessionsEnded, sessions);

    public void Elected() => Interlocked.Increment(ref _elections);

    public void TransferEnded(bool done) => Interlocked.Increment(ref done ? ref _transfersDone : ref _transfersRefused);

    public void Alarmed() => Interlocked.Increment(ref _alarms);

    public void DigestTaken() => Interlocked.Increment(ref _digests);

    public void Quarantined() => Interlocked.Increment(ref _quarantines);

    /// <summary>The node's threads or timers stalled.</summary>
    /// <param name="reason">One of <see cref="Stall.Reasons"/>.</param>
    public void Stalled(string reason) => Interlocked.Increment(ref _stalls[Stall.Reasons.ToList().IndexOf(reason)]);

    public void ReplicaFailed() => Interlocked.Increment(ref _failures);

    public void SnapshotSent() => Interlocked.Increment(ref _snapshotsSent);

    public void SnapshotReceived() => Interlocked.Increment(ref _snapshotsReceived);

    /// <summary>A call to the coordinator has ended.</summary>
    /// <param name="call">The call's name.</param>
    /// <param name="began">Timestamp of <see cref="Stopwatch"/>.</param>
    /// <param name="error">The kind of failure; null if it was answered.</param>
    public void CoordinatorCalled(string call, long began, string? error)
    {
        Volatile.Write(ref _coordinatorAnswers, error is null ? 1 : 0);
        var took = Stopwatch.GetElapsedTime(began).TotalSeconds;
        if (error is null)
            _coordinatorCalls.Record(took, new Tag(Call, call));
        else
            _coordinatorCalls.Record(took, new Tag(Call, call), new Tag(RpcTags.Error, error));
    }

    public ValueTask DisposeAsync()
    {
        _meter.Dispose();
        return ValueTask.CompletedTask;
    }

    private static Measurement<int> InfoOf(NodeIdentity identity) =>
        new(1, new Tag("kvcluster.node", BoxedNode.Of(identity.Node)), new Tag("kvcluster.version", ProgramVersion.Full));

    private Histogram<double> Seconds(string name, string description) => _meter.CreateHistogram(name, "s", description, null, Buckets.Seconds);

    private Counter<long> Counter(string name, string unit, string description) => _meter.CreateCounter<long>(name, unit, description);

    // Rare events, reported as 0 from the start: the increase of a series that begins with its first event would not be seen.
    private void ObserveEvents()
    {
        _meter.CreateObservableCounter("kvcluster.node.elections", () => Volatile.Read(ref _elections), "{election}", "Elections won by replicas of this node, "
            + "those of transfers included.");
        _meter.CreateObservableCounter(
            "kvcluster.node.transfers", () => Both(Result, ("done", _transfersDone), ("refused", _transfersRefused)), "{transfer}",
            "Leadership transfers that replicas of this node were asked for, by outcome.");
        _meter.CreateObservableUpDownCounter("kvcluster.node.watchers", () => _watchers?.Invoke() ?? 0, "{watcher}", "Watches in progress.");
        _meter.CreateObservableGauge("kvcluster.node.watch.lag", () => _watchLag?.Invoke() ?? 0, "{change}", "Changes that the slowest watcher of the node has "
            + "not been sent yet. It lags in the journal, and ends with COMPACTED when that no longer has them.");
        _meter.CreateObservableCounter("kvcluster.node.calls.refused", () => _calls?.CallsRefused ?? 0, "{call}", "Calls refused on arrival because too many "
            + "were open. They are counted nowhere else.");
        _meter.CreateObservableCounter("kvcluster.node.calls.gone", () => _calls?.CallsGone ?? 0, "{call}", "Calls that were not begun because their caller "
            + "went away or their deadline passed while their request arrived. They are counted nowhere else.");
        _meter.CreateObservableCounter("kvcluster.node.loops.failed", () => LoopFailures.Total, "{failure}", "Iterations of background loops that ended with "
            + "an unexpected exception. The log says which.");
        _meter.CreateObservableCounter(
            "kvcluster.node.alarms", () => Volatile.Read(ref _alarms), "{alarm}", "Events that an operator must look at. The log describes each.");
        _meter.CreateObservableCounter(
            "kvcluster.node.digests", () => Volatile.Read(ref _digests), "{digest}", "Digests of trees computed in the background to compare replicas.");
        _meter.CreateObservableCounter("kvcluster.node.quarantines", () => Volatile.Read(ref _quarantines), "{replica}", "Replicas that were quarantined "
            + "because their tree differs from their peers'.");
        _meter.CreateObservableCounter(
            "kvcluster.node.replica.failures", () => Volatile.Read(ref _failures), "{replica}", "Replicas that failed, quarantines included.");
        _meter.CreateObservableCounter(
            "kvcluster.node.keys.expired", () => Volatile.Read(ref _expired), "{key}", "Keys that leaders on this node have ended because they had expired.");
        _meter.CreateObservableCounter("kvcluster.node.sessions.ended", () => Volatile.Read(ref _sessionsEnded), "{session}", "Sessions that leaders on this "
            + "node have ended because no KeepAlive came for their lifetime.");
        _meter.CreateObservableCounter("kvcluster.node.stalls", StallsByReason, "{stall}", "Times that a writer thread, the node's timers or its thread pool "
            + "stalled for 250 ms or more, by cause.");
        _meter.CreateObservableCounter(
            "kvcluster.node.snapshots", () => Both(Direction, ("sent", _snapshotsSent), ("received", _snapshotsReceived)), "{snapshot}",
            "Snapshots sent to a follower or received from a leader because the journal did not reach back far enough, by direction.");
    }

    // The age is told by the wall clock, because another machine may have taken the snapshot.
    private IEnumerable<Measurement<double>> CoordinatorSnapshotAge() =>
        _coordinatorSavedAt?.Invoke() is { } saved ? [new Measurement<double>(Math.Max(0, (TimeProvider.System.GetUtcNow() - saved).TotalSeconds))] : [];

    private IEnumerable<Measurement<long>> StallsByReason() =>
        Stall.Reasons.Select((reason, index) => new Measurement<long>(Interlocked.Read(ref _stalls[index]), new Tag(Reason, reason)));

    private static IEnumerable<Measurement<long>> Both(string key, (string Name, long Count) one, (string Name, long Count) other) =>
        [new(one.Count, new Tag(key, one.Name)), new(other.Count, new Tag(key, other.Name))];

    private IEnumerable<Measurement<long>> ReplicasByRole() =>
        Roles.Select(role => new Measurement<long>(_measured.Replicas.LongCount(replica => replica.Role == role.Role), new Tag(Role, role.Name)));

    private void ObserveReplicas()
    {
        _meter.CreateObservableUpDownCounter(
            "kvcluster.node.shards.leaderless", () => _measured.Replicas.LongCount(replica => replica.IsLeaderless), "{replica}",
            "Replicas that know no leader of their shard, or lead it without a majority.");
        _meter.CreateObservableUpDownCounter(
            "kvcluster.node.shards.led", () => _measured.Replicas.LongCount(replica => replica.IsFollowed), "{replica}",
            "Replicas that lead their shard with a majority.");
        _meter.CreateObservableGauge(
            "kvcluster.node.map.shards", () => _measured.MapShards, "{shard}", "Shards of the whole cluster, according to this node's shard map.");
        _meter.CreateObservableUpDownCounter(
            "kvcluster.node.replicas.leased", () => _measured.Replicas.LongCount(replica => replica.HasLease), "{replica}",
            "Leaders with a lease, which answer reads without asking their followers. A quiescent leader has none.");
        _meter.CreateObservableUpDownCounter("kvcluster.node.replicas.impaired", () => ByDisk(), "{replica}", "Replicas whose disk is slow or full.");
    }

    private IEnumerable<Measurement<long>> ByDisk() => new[] { DiskState.Slow, DiskState.Full }.Select(disk =>
        new Measurement<long>(_measured.Replicas.LongCount(replica => replica.Disk == disk), new Tag(Disk, NameOf(disk))));

    private static string NameOf<T>(T value)
        where T : struct, Enum =>
        value.ToString().ToLowerInvariant();

    private void ObserveShards()
    {
        _meter.CreateObservableGauge("kvcluster.node.shard.epoch", () => ByShard(replica => (long)replica.Epoch), "{epoch}", "Epoch that the replica leads or "
            + "follows. An increase is a change of leader.");
        _meter.CreateObservableGauge(
            "kvcluster.node.shard.leading", () => ByShard(replica => replica.Role == ReplicaRole.Leader ? 1 : 0), "{leader}",
            "1 if the replica leads the shard, else 0.");
        _meter.CreateObservableCounter("kvcluster.node.shard.changes", () => ByShard(replica => (long)replica.Change), "{change}", "Number of the shard's last "
            + "change that this replica has applied. Its rate is the rate of the shard's writes.");
        _meter.CreateObservableGauge(
            "kvcluster.node.shard.snapshot.age", () => ByShard(replica => replica.SnapshotAge.TotalSeconds), "s", "Age of the replica's oldest open snapshot.");
        _meter.CreateObservableGauge("kvcluster.node.shard.pinned.size", () => ByShard(replica => replica.PinnedBytes), "By", "Memory and file space that the "
            + "replica's open snapshots, and checkpoints being sent, keep from being reused.");
        _meter.CreateObservableGauge("kvcluster.node.follower.lag.size", () => ByFollower(follower => follower.LagBytes), "By", "At a leader: bytes of journal "
            + "that the follower has not acknowledged.");
        _meter.CreateObservableGauge("kvcluster.node.follower.lag.changes", () => ByFollower(follower => follower.LagChanges), "{change}", "At a leader: "
            + "changes that the follower has not acknowledged.");
    }

    private IEnumerable<Measurement<T>> ByShard<T>(Func<MeasuredReplica, T> value)
        where T : struct =>
        _measured.Replicas.Take(_shardSeriesMax).Select(replica => new Measurement<T>(value(replica), new Tag(RpcTags.Shard, replica.Shard.Value)));

    private IEnumerable<Measurement<long>> ByFollower(Func<MeasuredFollower, long> value) => _measured.Replicas.Take(_shardSeriesMax).SelectMany(replica =>
        replica.Followers.Select(follower => new Measurement<long>(
            value(follower), new Tag(RpcTags.Shard, replica.Shard.Value), new Tag(RpcTags.Peer, BoxedNode.Of(follower.Node)))));

    private void ObservePeers()
    {
        _meter.CreateObservableGauge("kvcluster.node.peer.lag.size", () => ByPeer(follower => follower.LagBytes), "By", "Greatest lag of that node's replicas "
            + "behind leaders on this node, in bytes of journal, over all shards.");
        _meter.CreateObservableGauge("kvcluster.node.peer.lag.changes", () => ByPeer(follower => follower.LagChanges), "{change}", "Greatest lag of that "
            + "node's replicas behind leaders on this node, in changes, over all shards.");
        _meter.CreateObservableGauge("kvcluster.node.peer.connected", () => Links(link => link.IsUp ? 1 : 0), "{stream}", "1 if the stream to that node is "
            + "open and something was received on it within the last few seconds, else 0.");
        _meter.CreateObservableUpDownCounter(
            "kvcluster.node.peer.waiting.size", () => Links(link => link.WaitingBytes), "By", "Bytes of frames waiting to be sent to that node.");
        _meter.CreateObservableCounter("kvcluster.node.peer.dropped", () => Links(link => link.Dropped), "{frame}", "Frames for that node that were dropped "
            + "because there was no credit or no stream. What matters is sent again.");
    }

    private IEnumerable<Measurement<long>> ByPeer(Func<MeasuredFollower, long> value) => _measured.Replicas.SelectMany(replica => replica.Followers)
        .GroupBy(follower => follower.Node).Select(peer => new Measurement<long>(peer.Max(value), new Tag(RpcTags.Peer, BoxedNode.Of(peer.Key))));

    private IEnumerable<Measurement<long>> Links(Func<MeasuredLink, long> value) =>
        _measured.Links.Select(link => new Measurement<long>(value(link), new Tag(RpcTags.Peer, BoxedNode.Of(link.Node))));

    private void ObserveStores()
    {
        _meter.CreateObservableUpDownCounter("kvcluster.node.store.keys", () => Sum(replica => replica.Keys), "{key}", "Keys in this node's replicas.");
        _meter.CreateObservableUpDownCounter(
            "kvcluster.node.sessions.lifetime", () => Sum(replica => replica.SessionsWithLifetime), "{session}",
            "Sessions with a lifetime that leaders on this node count down.");
        _meter.CreateObservableUpDownCounter("kvcluster.node.store.data.size", () => Sum(replica => replica.DataBytes), "By", "Length of the data files of "
            + "this node's replicas, including holes, which take no space on the disk.");
        _meter.CreateObservableUpDownCounter("kvcluster.node.store.data.allocated.size", () => Sum(replica => replica.DataAllocatedBytes), "By", "Space on the "
            + "disk that the data files of this node's replicas take.");
        _meter.CreateObservableUpDownCounter(
            "kvcluster.node.store.journal.size", () => Sum(replica => replica.JournalBytes), "By", "Size of the journals of this node's replicas.");
        _meter.CreateObservableUpDownCounter("kvcluster.node.store.journal.kept.size", () => Sum(replica => replica.JournalKeptBytes), "By", "The part of "
            + "these journals that is kept for followers, beyond what a restart needs.");
        _meter.CreateObservableUpDownCounter("kvcluster.node.store.changed.size", () => Sum(replica => replica.ChangedBytes), "By", "Changed pages in memory, "
            + "which checkpoints will write or readers still need.");
        _meter.CreateObservableUpDownCounter("kvcluster.node.store.readers", () => Sum(replica => replica.Readers), "{reader}", "Open snapshots.");
        _meter.CreateObservableGauge(
            "kvcluster.node.store.snapshot.age", () => _measured.Replicas.Select(replica => replica.SnapshotAge.TotalSeconds).DefaultIfEmpty().Max(), "s",
            "Age of the oldest open snapshot.");
        _meter.CreateObservableUpDownCounter("kvcluster.node.store.pinned.size", () => Sum(replica => replica.PinnedBytes), "By", "Memory and file space that "
            + "open snapshots, and checkpoints being sent, keep from being reused.");
        _meter.CreateObservableUpDownCounter(
            "kvcluster.node.memory.used.size", MemoryByUse, "By", "Memory that the stores of this node use, by use. The sum is what the budget bounds.");
        _meter.CreateObservableUpDownCounter(
            "kvcluster.node.memory.budget.size", () => _stores?.Budget ?? 0, "By", "The memory that the stores of this node may use together.");
        _meter.CreateObservableCounter("kvcluster.node.memory.held.duration", () => _stores?.HeldBack.TotalSeconds ?? 0, "s", "Time for which stores were held "
            + "back because the node's memory was near its budget, summed over the stores.");
        _meter.CreateObservableGauge("kvcluster.node.disk.size", () => OfDisk(disk => disk.Bytes), "By", "Size of the file system of the data directory.");
        _meter.CreateObservableGauge(
            "kvcluster.node.disk.free.size", () => OfDisk(disk => disk.FreeBytes), "By", "Free space on the file system of the data directory.");
        _meter.CreateObservableGauge("kvcluster.node.aside.size", () => OfDisk(disk => disk.AsideBytes), "By", "Size of the replicas that were set aside and "
            + "that nobody has deleted yet. Read every ten seconds.");
    }

    private IEnumerable<Measurement<long>> MemoryByUse() =>
        MemoryUses.Select(use => new Measurement<long>(_stores?.UsedFor(use.Use) ?? 0, new Tag(Use, use.Name)));

    private IEnumerable<Measurement<long>> OfDisk(Func<MeasuredDisk, long> value) => _measured.Disk is { } disk ? [new Measurement<long>(value(disk))] : [];

    private long Sum(Func<MeasuredReplica, long> value) => _measured.Replicas.Sum(value);
}
