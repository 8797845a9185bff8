using System.Buffers.Binary;
using System.Collections.Immutable;
using System.Text;
using KvCluster.Disk;
using KvCluster.Node.Coordination;
using KvCluster.Node.Hosting;
using KvCluster.Node.Map;
using KvCluster.Node.Placement;
using KvCluster.Node.Runtime;
using KvCluster.Node.Shards;
using KvCluster.Node.Telemetry;
using KvCluster.Replication.Digests;
using KvCluster.Replication.Protocol;
using KvCluster.Simulation.Cluster.Routing;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Sessions;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Simulation.Cluster;

/// <summary>One node with at most one replica: the real <see cref="ShardReplica"/> over the real <see cref="ReplicaStore"/> on a simulated disk.</summary>
internal sealed class ClusterNode : IDisposable
{
    private const string Directory = "/data/shard";

    // Nobody listens, so it takes no time and no part.
    private static readonly NodeMetrics Unmeasured = new(new NodeIdentity("simulated", "", 1, 1, ""), shardSeriesMax: 0);


    // Many times the disk's ordinary pace, and above what the driver calls slow.
    private const long SlowSyncUs = 900_000;

    // An item of work.
    private const long SlowVerificationUs = 300_000;

    private const string WhyUnreadable = "The record is of a version that this node does not know.";

    private const string WhyQuarantined = "an operator does not believe it";

    // Some items of work of the writer, and much more than the pool ever takes.
    private const long StatusWithinUs = 5_000;
    private const long ChangeWithinUs = 5_000_000;
    private static readonly TimeSpan LearnerPatience = TimeSpan.FromSeconds(4);
    private static readonly TimeSpan StatusWithin = TimeSpan.FromSeconds(20);

    // What the node's operators take.
    private const long OutdatedLeastUs = 600_000;
    private const long OutdatedMostUs = 2_000_000;

    // Some items of work; some syncs of the slowest disk.
    private const long ToldWithinUs = 100_000;
    private const long WrittenWithinUs = 500_000;

    // A batch takes about two, a checkpoint some dozens.
    private const int CrashWithinCalls = 60;

    // Of calls, with a bug that would else show at once.
    private const int FaultyPermille = 100;

    // Longer than anybody may wait, and over long before replicas must agree.
    private const long HeldBackUs = 8_000_000;

    private static readonly TimeSpan _year = TimeSpan.FromDays(365);

    // A thread that the machine gives no time to: some commits, or a change of leaders.
    private const int ReadsStandInOneOf = 40;
    private const long ReadStandsShortUs = 20_000;
    private const long ReadStandsLongUs = 3_000_000;

    private const int ErrWithinCalls = 40;

    // Syncs belong to checkpoints and new files, reads to starts and first touches.
    private const int ErrWithinRareCalls = 4;

    // A scan is under way for some milliseconds, in which states come and go.
    private const int ScanStepKeys = 8;
    private const long ScanRestUs = 20_000;

    private readonly ClusterRun _run;
    private readonly List<Func<bool>> _pending = [];
    private readonly NodeCalls _calls;
    private readonly NodeClock _clock;
    private VirtualExecutor[] _executors = [];
    private List<Action> _whilePaused = [];
    private ReplicaStore? _store;
    private DigestsCompared? _compared;
    private int _paused;
    private ulong _starts;
    private ulong _startsOfDisk;
    private (SimulatedDisk Disk, ulong Replica, ulong Starts)? _copy;
    private bool _isSlow;
    private bool _verifiesSlowly;
    private bool _refuses;
    private bool _isUp;
    private bool _isOutdated;
    private bool _isStopped;
    private RecordRef? _unreadable;
    private StayingMajority? _majority;
    private (ulong Learner, ReplacementPlan.CatchUp Watch)? _catchUp;
    private bool _mayBeQuarantined;
    private (ShardRecord Record, long Revision) _told;

    public ClusterNode(ClusterRun run, uint id, ulong replica)
    {
        _run = run;
        _calls = new NodeCalls(this);
        Id = id;
        ReplicaId = replica;
        var drift = run.Conditions.DriftPermille;
        _clock = new NodeClock(run.Time, run.Random.Next(-drift, drift + 1));
        Neighbour = run.Conditions.HasNeighbours ? new Neighbour(run, this) : null;
    }

    public uint Id { get; }

    public SimulatedDisk Disk { get; private set; } = new();

    public ShardReplica? Replica { get; private set; }

    public TimeProvider Clock => _clock;

    /// <summary>What it knows of all shards: of its own replicas' from themselves, of the others what the coordinator has told it.</summary>
    public ShardDirectorySnapshot Map { get; private set; } = ShardDirectorySnapshot.Empty;

    /// <summary>Another shard's replica in the same process.</summary>
    public Neighbour? Neighbour { get; }

    /// <summary>The replica whose directory it has; 0: none.</summary>
    public ulong ReplicaId { get; private set; }

    /// <summary>Its disk was damaged: its replica may refuse to start, or stop, and is then lost.</summary>
    public bool Damaged { get; private set; }

    /// <summary>A call to its disk is about to go wrong.</summary>
    public bool MayErr => Disk.Fault is not null;

    /// <summary>Its replica does not come back.</summary>
    public bool Lost { get; private set; }

    /// <summary>Its replica cannot apply a record, or will not be able to, and nobody has done anything about it.</summary>
    public bool IsOutdated => _isOutdated;

    /// <summary>Its disk is not the one that it was started with last, and it has not set aside what that holds.</summary>
    public bool IsOldCopy => Rejoin.IsBehind(_startsOfDisk, _starts);

    /// <summary>Its process runs, whether or not its replica works.</summary>
    public bool IsUp => _isUp;

    /// <summary>Its process runs, or would if it had a replica to run.</summary>
    public bool IsThere => _isUp || Lost || ReplicaId == 0;

    /// <summary>Its disk has lost something at some time: a bit, all of it, or what was written since a copy.</summary>
    public bool HasLost { get; private set; }

    /// <summary>The epoch that its replica obeys or leads.</summary>
    public ulong Epoch => Replica?.Route.Epoch ?? 0;

    /// <summary>Its process runs at its ordinary pace, with a disk that does, and a replica with nothing wrong.</summary>
    public bool Works => Replica is { Failure: null } && _paused == 0 && !_isSlow && !Damaged && !_isOutdated && Disk.Refuse is null && Disk.Fault is null && Disk.CapacityBytes == long.MaxValue;

    /// <summary>Its replica leads and takes writes.</summary>
    public bool Serves => Replica is { IsServing: true };

    public string State => $"replica {ReplicaId:x}{(Damaged ? ", damaged" : "")}{(_isOutdated ? ", outdated" : "")}{(Lost ? ", lost" : Replica is null ? ", down" : $", epoch {Replica.Route.Epoch}, serves {Serves}")}";

    public void Start()
    {
        if (Lost || ReplicaId == 0 || _isUp)
            return;
        if (IsOldCopy && Bug != InjectedBug.OldCopyTrusted)
        {
            LoseOldCopy();
            return;
        }

        try
        {
            StartReplica();
        }
        catch (SimulatedCrashException)
        {
            // The power goes once more, while the replica recovers.
            ComeBack();
        }
    }

    private void StartReplica()
    {
        // As a node does that finds a directory which the record does not name.
        if (_run.Coordinator.Record.Replicas.All(replica => replica.Replica != ReplicaId))
        {
            Retire();
            return;
        }

        _run.Trace($"node {Id} starts replica {ReplicaId:x}");
        var writer = new VirtualExecutor(_run.Time, _run.Random, () => 20, Guarded);
        VirtualExecutor[] lanes =
            [.. Enumerable.Range(0, 2).Select(_ => new VirtualExecutor(_run.Time, _run.Random, () => _isSlow ? SlowSyncUs : _run.Conditions.SyncUs, Guarded))];
        var checkpoints = new VirtualExecutor(_run.Time, _run.Random, () => _verifiesSlowly ? SlowVerificationUs : 5 * _run.Conditions.SyncUs, Guarded);
        var completions = new VirtualExecutor(_run.Time, _run.Random, () => 20, Guarded);
        _executors = [writer, .. lanes, checkpoints, completions];
        // While one lane writes, the writer and the other lane go on, so that a later write may be durable before it.
        Disk.DuringWrite = _ =>
        {
            if (lanes.Any(lane => lane.IsRunning) && _run.Random.Next(4) == 0 && writer.RunOneBeside())
                lanes.Any(lane => lane.RunOneBeside());
        };
        var options = new StoreOptions { CheckpointJournalBytes = _run.Conditions.IsLarge ? 2 << 20 : 128 << 20, SegmentBytesMin = Math.Min(64 << 10, _run.Conditions.SegmentBytesMax), SegmentBytesMax = _run.Conditions.SegmentBytesMax, RetainedJournalBytes = _run.Conditions.RetainedJournalBytes, SessionsMax = _run.Conditions.SessionsMax, SessionIdleMin = _run.Conditions.SessionIdleMin, Pages = new PageStoreOptions { MapBytes = 64 << 20 } };
        var shared = new StoreContext(FaultyFiles.Of(Disk, Bug), writer, lanes, checkpoints, _clock, NullLogger.Instance, options, completions);
        var storage = shared with { Unreadable = Unreadable, Rules = new FaultyRules(Bug) };
        UnreadableRecordException? stopped = null;
        try
        {
            _store = Open(storage);
        }
        catch (UnreadableRecordException unreadable) when (_unreadable is not null)
        {
            stopped = unreadable;
        }
        catch (RecoveryRefusedException refused) when (_mayBeQuarantined)
        {
            // The power went when its mark was there, and nobody had been told.
            _run.Trace($"node {Id}: {refused.Message}");
            OnQuarantined();
            return;
        }
        catch (Exception refused) when (Damaged && refused is RecoveryRefusedException or CorruptStoreException)
        {
            Lose(refused.Message);
            return;
        }
        catch (StorageIoException failure) when (_refuses || Damaged || failure.IsDiskFull)
        {
            // The process ends, as it does later on; without room the host tries again after a while.
            ComeBack();
            return;
        }

        _startsOfDisk = ++_starts;
        var context = new ShardReplicaContext(
            Id, (_starts << 32) | (uint)_run.Random.Next(), storage, _clock, new Transport(_run, this), new Coordination(_run, this), _run.Options,
            (ulong)_run.Random.NextInt64(), OnRoute, new AlarmLog(text => _run.OnAlarm(this, text)))
        {
            Metrics = Unmeasured,
            Rules = new FaultyShardRules(Bug),
            Telemetry = new ShardTelemetry(_run.Coordinator.Record.Shard, Unmeasured),
        };
        _isUp = true;
        _catchUp = null;
        _majority = new StayingMajority(Id, node => _run.Nodes[(int)node - 1].IsUp && !_run.IsCut(Id, node) && !_run.IsCut(node, Id), static _ => false, _clock);
        _told = (_run.Coordinator.Record, _run.Coordinator.Revision);
        Neighbour?.Open(context with { Storage = shared });
        if (stopped is not null)
        {
            OnUnreadable(stopped);
            return;
        }

        Replica = new ShardReplica(context, _store!, _run.Coordinator.Record, _run.Coordinator.Revision);
        Replica.Start();
        RenewMap();
    }

    /// <summary>The record gives it a new replica: makes its directory, in the place of whatever is there.</summary>
    public void Create(ulong replica)
    {
        Empty();
        (ReplicaId, Lost) = (replica, false);
        Start();
    }

    public void Crash()
    {
        if (!_isUp)
            return;
        _run.Trace($"node {Id} crashes");
        End();
        Disk.Restart((UnsyncedWrites)_run.Random.Next(4), _run.Random.Next());
    }

    /// <summary>The run is over.</summary>
    public void Dispose()
    {
        if (_isUp)
            End();
        Disk.Dispose();
        _copy?.Disk.Dispose();
    }

    /// <summary>One bit of one file of its replica changes, under a replica that works or in one that is down.</summary>
    public void Damage()
    {
        var files = Disk.DirectoryExists(Directory) ? FilesIn(Directory).Where(file => Disk.ReadAll(file).Length > 0).ToArray() : [];
        if (files.Length == 0)
            return;
        var path = files[_run.Random.Next(files.Length)];
        // Where something is written more often than not: behind what is used nothing is read.
        var length = Disk.ReadAll(path).Length;
        var offset = _run.Random.Next(_run.Random.Next(2) == 0 ? length : Math.Min(length, 64 << 10));
        _run.Trace($"a bit of {path} of node {Id} flips at {offset}");
        Disk.FlipBit(path, offset);
        _run.Tally.Count(ClusterFault.Damage);
        HasLost = true;
        Damaged = true;
    }

    /// <summary>While it is down: one bit flips in one of the two meta pages or of the two slots of the control file. The other one must do.</summary>
    public void DamageSpare()
    {
        var layout = new StoreLayout(Directory);
        if (!Disk.DirectoryExists(Directory) || Disk.DirectoryExists(layout.Incoming) || layout.States(Disk) is not [.., var state])
            return;
        var path = _run.Random.Next(2) == 0 ? layout.Control : StoreLayout.Data(layout.State(state));
        var spareBytes = path == layout.Control ? Storage.Control.ControlFile.SlotBytes : Page.Bytes;
        var offset = _run.Random.Next(2 * spareBytes);
        // A write under way when it went down, or an earlier bit, may have left one only.
        if (!BothAreWhole(path, isControl: path == layout.Control))
            return;
        _run.Trace($"a bit of {path} of node {Id} flips at {offset}, in one of two that say the same");
        Disk.FlipBit(path, offset);
        _run.Tally.Count(ClusterFault.DamageSpare);
        HasLost = true;
    }

    private bool BothAreWhole(string path, bool isControl)
    {
        if (isControl)
        {
            using var control = Storage.Control.ControlFile.TryOpen(Disk, path);
            return control is { SlotsValid: 2 };
        }

        var pages = Disk.ReadAll(path);
        return MetaPage.TryDecode(pages.AsSpan(0, Page.Bytes), path) is not null && MetaPage.TryDecode(pages.AsSpan(Page.Bytes, Page.Bytes), path) is not null;
    }

    /// <summary>The power goes in the middle of one of the next calls to its disk.</summary>
    public void CrashInCall()
    {
        if (_isUp)
            Disk.CrashAtCall = Disk.Calls + _run.Random.Next(1, CrashWithinCalls);
    }

    /// <summary>A write or a sync that comes soon fails; the process must end then.</summary>
    public void FailDisk()
    {
        var left = _run.Random.Next(1, 20);
        Disk.Refuse = (operation, path) =>
        {
            if (operation is not ("Write" or "Sync" or "Sync directory" or "Resize") || --left > 0)
                return null;
            _run.Trace($"on node {Id} the disk fails: {operation} {path}");
            if (!_refuses)
                _run.Tally.Count(ClusterFault.FailDisk);
            _refuses = true;
            return new StorageIoException(operation, path, "input/output error");
        };
    }

    /// <summary>One of the next calls to its disk goes wrong, in this process or the next. Whoever is told must end; what nobody is told may be found later on, and may cost this replica.</summary>
    public void Err(ClusterFault fault)
    {
        var kind = fault switch
        {
            ClusterFault.DiskShortWrite => DiskFault.ShortWrite,
            ClusterFault.DiskSyncLosesData => DiskFault.SyncLosesData,
            ClusterFault.DiskLostWrite => DiskFault.LostWrite,
            ClusterFault.DiskMisdirectedWrite => DiskFault.MisdirectedWrite,
            _ => DiskFault.Error,
        };
        var operation = fault switch
        {
            ClusterFault.DiskError => null,
            ClusterFault.DiskReadError => "Read",
            ClusterFault.DiskSyncLosesData => "Sync",
            _ => "Write",
        };
        var costs = fault is ClusterFault.DiskReadError or ClusterFault.DiskLostWrite or ClusterFault.DiskMisdirectedWrite;
        var left = _run.Random.Next(1, operation is "Sync" or "Read" ? ErrWithinRareCalls : ErrWithinCalls);
        Disk.Fault = call =>
        {
            if ((operation is null ? !call.Changes : call.Operation != operation) || !call.Path.StartsWith(Directory, StringComparison.Ordinal) || --left > 0)
                return DiskFault.None;
            _run.Trace($"on node {Id} the disk errs: {fault} at {call.Operation} {call.Path} {call.Offset}");
            _run.Tally.Count(fault);
            Disk.Fault = null;
            Damaged |= costs;
            HasLost |= costs;
            _refuses |= !costs;
            return kind;
        };
    }

    /// <summary>Its version is too old for the next record that its replica applies. That one must stop and say why, and nothing else with it.</summary>
    public void Outdate()
    {
        _run.Trace($"node {Id} cannot apply what comes next");
        _isOutdated = true;
    }

    /// <summary>Its writes take many times as long for a while.</summary>
    public void SlowDown(long forUs)
    {
        _run.Trace($"node {Id} has a slow disk");
        _isSlow = true;
        _run.Time.After(forUs, () => _isSlow = false);
    }

    /// <summary>Work that nobody waits for takes many times as long for a while.</summary>
    public void SlowVerification(long forUs)
    {
        _run.Trace($"node {Id} verifies slowly");
        _verifiesSlowly = true;
        _run.Time.After(forUs, () => _verifiesSlowly = false);
    }

    /// <summary>Its disk is gone, and with it its replica.</summary>
    public void LoseDisk()
    {
        Crash();
        _run.Tally.Count(ClusterFault.LoseDisk);
        HasLost = true;
        Lose("its disk is gone");
    }

    /// <summary>While it is down: keeps a copy of its disk.</summary>
    public void CopyDisk()
    {
        _run.Trace($"the disk of node {Id} is copied");
        _copy?.Disk.Dispose();
        _copy = (Disk.Copy(), ReplicaId, _startsOfDisk);
    }

    /// <summary>While it is down: the copy takes the place of its disk.</summary>
    public void RestoreDisk()
    {
        if (_copy is not { } copy)
            return;
        _run.Trace($"the disk of node {Id} is restored from a copy, with replica {copy.Replica:x}");
        _run.Tally.Count(ClusterFault.RestoreDisk);
        HasLost = true;
        Disk.Dispose();
        (Disk, ReplicaId, _startsOfDisk) = copy;
        _copy = null;
    }

    /// <summary>Stops the process as SIGSTOP does: everything that reaches it waits.</summary>
    public void Pause(long forUs)
    {
        _run.Trace($"node {Id} is stopped for {forUs / 1000} ms");
        _paused++;
        _run.Time.After(forUs, () =>
        {
            _paused--;
            var waiting = _whilePaused;
            _whilePaused = [];
            foreach (var action in waiting)
                Deliver(action);
        });
    }

    /// <summary>Its wall clock jumps; its boot clock does not.</summary>
    public void JumpWallClock(TimeSpan by) => _clock.WallOffset += by;

    /// <summary>Its wall clock is a year ahead for a while, and then put right.</summary>
    public void RunAhead(long forUs)
    {
        _run.Trace($"the wall clock of node {Id} is a year ahead");
        JumpWallClock(_year);
        _run.Time.After(forUs, () => JumpWallClock(-_year));
    }

    /// <summary>Faults are over: its disk works, has room and is as fast as ever.</summary>
    public void Heal()
    {
        Disk.CapacityBytes = long.MaxValue;
        Disk.Refuse = null;
        Disk.Fault = null;
        Disk.CrashAtCall = 0;
        _isSlow = _verifiesSlowly = false;
        if (_isOutdated && !Lost)
            Update();
    }

    public void Receive(Frame frame) => Deliver(() => Replica?.Receive(frame));

    public void NodeSilent(uint node) => Deliver(() => Replica?.NodeSilent(node));

    public void RecordChanged(ShardRecord record, long revision) => Deliver(() =>
    {
        Replica?.RecordChanged(record, revision);
        if (revision > _told.Revision)
            _told = (record, revision);
        RenewMap();
    });

    /// <summary>A client's or a router's call arrives.</summary>
    public void Serve(Call call, Action<Reply> done) => Deliver(() =>
    {
        if (_isUp)
            UnlessStopped(() => _calls.Start(call, done), static () => { });
    });

    /// <summary>Acts as soon as a replica has applied this, or never if it ends before.</summary>
    public void WhenApplied(ShardReplica replica, UInt128 etag, Action then)
    {
        if (!replica.HasApplied(etag))
            _ = replica.AskLeaderAsync(CancellationToken.None);
        bool Applied()
        {
            if (!replica.HasApplied(etag))
                return false;
            UnlessStopped(then, static () => { });
            return true;
        }

        if (!Applied())
            _pending.Add(Applied);
    }

    /// <summary>What its process learns at its start, or from its neighbour.</summary>
    public void RenewMap()
    {
        if (!_run.Conditions.RoutedCallers || !_isUp)
            return;
        var records = _run.Nodes.Select(static node => node.Neighbour!).Where(static neighbour => neighbour is not null)
            .Select(static neighbour => (neighbour.Record, neighbour.Revision)).Append(_told);
        IEnumerable<ShardRoute?> own = [Replica?.Route, Neighbour?.Replica?.Route];
        Map = new ShardDirectorySnapshot(
            records.ToImmutableDictionary(static entry => entry.Item1.Shard),
            own.OfType<ShardRoute>().ToImmutableDictionary(static route => route.Shard),
            _run.Nodes.ToImmutableDictionary(static node => node.Id, static node => new NodeRecord { Node = node.Id, Address = RoutedNetwork.AddressOf(node.Id) }));
        _run.MapChanged(this);
    }

    /// <summary>Puts or deletes the keys, and puts a key of the write's own, if its condition holds.</summary>
    public void Put(ClusterWrite write, Action<WriteResult> done) => Deliver(() =>
    {
        if (Replica is null)
            return;
        var request = WriteRequest.Rent();
        if (write.Condition is { } condition && !IsFaulty(InjectedBug.ConditionSkipped))
            request.AddCondition(Key(condition.Key), condition.Kind, condition.Etag.Value, condition.Value);
        foreach (var key in write.Keys)
        {
            if (write.Deletes)
                request.Delete(Key(key));
            else
                request.Put(Key(key), write.Value);
        }

        request.Put(Marker(write.Id), Value(write.Id));
        if (write.IsIdentified && !IsFaulty(InjectedBug.OpenResultDropped))
            request.Identify(write.Session, write.Sequence, write.Sequence);
        Poll(Replica.WriteAsync(request).AsTask(), done);
    });

    /// <summary>An id for a session that is opened here.</summary>
    public UInt128 DrawSession() => _run.DrawSession();

    /// <summary>Opens a session.</summary>
    public void OpenSession(UInt128 session, SessionOwner owner, Action<WriteResult> done) => Deliver(() =>
    {
        if (Replica is null)
            return;
        var request = WriteRequest.Rent();
        request.OpenSession(session, owner);
        Poll(Replica.WriteAsync(request).AsTask(), done);
    });

    /// <summary>Reads keys at one snapshot, as <c>ReadOpener</c> of the API does, with waits that are looked at after each item of work instead of awaited.</summary>
    public void Get(int[] keys, ReadKind kind, Etag least, Action<ClusterRead?> done) => Deliver(() =>
    {
        if (Replica is { } replica)
            UnlessStopped(() => Open(replica, kind, least, (snapshot, ageUs) => Read(snapshot, keys, ageUs, done), () => done(null)), () => done(null));
    });

    /// <summary>Walks over keys with a cursor at one snapshot, a few at a time; null: it cannot, or its process has ended on the way.</summary>
    public void Scan(ScanRange range, ReadKind kind, Etag least, Action<ClusterScan?> done) => Deliver(() =>
    {
        if (Replica is { } replica)
            UnlessStopped(() => Open(replica, kind, least, (snapshot, _) => Walk(snapshot, range, done), () => done(null)), () => done(null));
    });

    public void Checkpoint() => Deliver(() =>
    {
        if (Replica is not null)
            Poll(Replica.CheckpointAsync(), _ => { });
    });

    /// <summary>An operator asks it to hand its leadership over.</summary>
    public void HandOver(ulong replica) => Deliver(() =>
    {
        if (Replica is null)
            return;
        _run.Trace($"node {Id} is asked to hand over");
        // Its end comes over the thread pool, at a poll that may be another one the next time: it is counted, and not part of the course that replays.
        Poll(Replica.TransferAsync(replica), result => _run.HandOvers += result.Done ? 1 : 0);
    });

    /// <summary>It is asked, as the leader, for a replacement, again and again: each time it does the step that is due, as ReplicaReplacement of the host does. What comes of it, the record shows.</summary>
    public void Replace(ReplaceRequest request) => Deliver(() =>
    {
        if (Replica is not { } replica)
            return;
        if (request.FromNode == Id)
        {
            HandOver(0);
            return;
        }

        WithStatus(replica, (status, record) =>
        {
            if (ReplacementPlan.Foresee(record, request, Replacements.Voters, last: null) is null && Due(status, new ReplacementPlan(record, request, Replacements.Voters), request.ToNode) is { } change)
                Change(replica, status, record, change);
        });
    });

    private ReplicaChange? Due(ReplicaStatus status, ReplacementPlan plan, uint to)
    {
        if (plan.Removal is { } removal)
            return removal;
        if (plan.Learner == 0)
        {
            return IsAway(to) ? null
                : plan.Orphans(IsAway).FirstOrDefault() is { } orphan ? new ReplicaChange.Remove(orphan.Replica)
                : plan.WhyNoLearner([]) is null ? plan.Add(_run.NewReplicaId())
                : null;
        }

        var now = TimeSpan.FromMicroseconds(_run.NowUs);
        if (_catchUp?.Learner != plan.Learner)
            _catchUp = (plan.Learner, new ReplacementPlan.CatchUp(plan.Learner, LearnerPatience, now));
        return _catchUp.Value.Watch.Look(status, now) switch
        {
            true => plan.Last(plan.Learner),
            false => new ReplicaChange.Remove(plan.Learner),
            null => null,
        };
    }

    private void Change(ShardReplica replica, ReplicaStatus status, ShardRecord record, ReplicaChange change)
    {
        var majority = _majority!;
        if (majority.TryBegin(status, record, change, force: false) is { } refusal)
        {
            _run.Trace($"node {Id} refuses to {change}: {refusal}");
            return;
        }

        _run.Trace($"node {Id} is to {change}");
        // When the order ends is no part of the course; this is longer than any transaction of the coordinator is under way.
        InThisProcess(ChangeWithinUs, () => majority.End(record.Shard, change));
        Poll(replica.ChangeReplicasAsync(change), static _ => { });
    }

    private bool IsAway(uint node) => node != Id && (!_run.Nodes[(int)node - 1].IsThere || _run.IsCut(Id, node) || _run.IsCut(node, Id));

    /// <summary>It is asked, as the leader, whether a node's replica may stop; as StayingVoters of the host answers.</summary>
    /// <param name="node">Whose.</param>
    /// <param name="done">Told the epoch of the leadership that judges, and why not, or null.</param>
    public void Judge(uint node, Action<ulong, string?> done) => Deliver(() =>
    {
        if (Replica is not { IsServing: true } replica)
            done(0, "this node does not lead");
        else
            WithStatus(replica, (status, record) => done(status.Epoch, _majority!.TryLetGo(status, record, node, StayingVoters.GoneTime)));
    });

    /// <summary>An operator has its replica taken out of service, with the leave of the shard's leader, as AdminService of the host asks for it.</summary>
    public void AskForQuarantine() => Deliver(() =>
    {
        if (!_isUp || Replica is null)
            return;
        _run.Trace($"replica {ReplicaId:x} on node {Id} is to be quarantined");
        var process = _starts;
        var usableUntil = _clock.GetTimestamp() + (long)(StayingVoters.UseTimeMax.TotalSeconds * _clock.TimestampFrequency);
        _run.Call(_run.LeaderHint, leader => leader.Judge(Id, (epoch, refusal) => _run.Reply(() => Deliver(() =>
        {
            if (!_isUp || _starts != process || Replica is null)
                return;
            if (refusal is not null)
            {
                _run.Trace($"it must stay: {refusal}");
                _run.Tally.Count(ClusterFault.QuarantineRefused);
                return;
            }

            _mayBeQuarantined = true;
            Poll(Replica.QuarantineAsync(WhyQuarantined, new QuarantineLeave(epoch, usableUntil)), static _ => { });
        }))));
    });

    // On the pool the status becomes whole after the writer has described it: who asks waits for that, so that it is told in the same step whenever a seed is run.
    private void WithStatus(ShardReplica replica, Action<ReplicaStatus, ShardRecord> then)
    {
        var asked = replica.StatusAsync(digest: false, detail: true, CancellationToken.None);
        InThisProcess(StatusWithinUs, () => Deliver(() =>
        {
            if (_isUp && Replica == replica && asked.Wait(StatusWithin) && asked.Result is { Detail.Record: { } record } status)
                then(status, record);
        }));
    }

    // It counts for nothing from now on, and neither does one that stopped before: what is left must be a majority.
    private void OnQuarantined()
    {
        _run.Tally.Count(ClusterFault.Quarantine);
        var voters = _run.Coordinator.Record.Replicas.Where(static replica => !replica.Learner).ToArray();
        var staying = voters.Count(voter => voter.Node != Id && _run.Nodes[(int)voter.Node - 1] is { Lost: false } other && other.ReplicaId == voter.Replica);
        Violation.Unless(staying * 2 > voters.Length, Rule.Available, $"the replica on node {Id} was quarantined, and of {voters.Length} voters {staying} are left");
        Lose(WhyQuarantined);
    }

    public Etag Published()
    {
        using var snapshot = Replica!.OpenSnapshot();
        return Etag.FromValue(snapshot.Etag);
    }

    /// <summary>Digest of the published state; null if damage was found, which ends this node.</summary>
    public string? Digest()
    {
        try
        {
            using var snapshot = Replica!.OpenSnapshot();
            return Convert.ToHexString(TreeDigest.Of(snapshot));
        }
        catch (CorruptStoreException found) when (Damaged)
        {
            Lose(found.Message);
            return null;
        }
    }

    /// <summary>Compares the published state with what was committed, key by key.</summary>
    public void CheckTree(CommittedLog log)
    {
        using var snapshot = Replica!.OpenSnapshot();
        using var cursor = snapshot.Cursor(TreeId.Kv);
        var etag = Etag.FromValue(snapshot.Etag);
        foreach (var key in log.Keys)
        {
            var committed = log.At(key, etag);
            if (!committed.Exists)
                continue;
            var found = cursor.MoveNext() ? Found(cursor.Value) : default;
            Violation.Unless(
                found.Exists && Encoding.ASCII.GetString(cursor.Key) == key && found.Etag == committed.Etag && found.Value.AsSpan().SequenceEqual(committed.Value),
                Rule.CommittedStays, $"the tree of node {Id} does not hold what was committed under {key} at {committed.Etag}");
        }

        Violation.Unless(!cursor.MoveNext(), Rule.CommittedStays, $"the tree of node {Id} holds a key that was not committed");
    }

    private IEnumerable<string> FilesIn(string directory) => Disk.List(directory)
        .Order(StringComparer.Ordinal)
        .Select(name => $"{directory}/{name}")
        .SelectMany(path => Disk.DirectoryExists(path) ? FilesIn(path) : [path]);

    public static string NameOf(int key) => $"key{key}";

    public static byte[] Key(int key) => Encoding.UTF8.GetBytes(NameOf(key));

    public static byte[] Marker(long writeId) => Encoding.UTF8.GetBytes($"write{writeId:D8}");

    /// <summary>A value that tells whose it is, and whether all of it is there.</summary>
    public static byte[] Value(long writeId, int bytes = sizeof(long))
    {
        var value = new byte[bytes];
        for (var at = sizeof(long); at < bytes; at++)
            value[at] = (byte)((writeId * 31) + at);
        BinaryPrimitives.WriteInt64LittleEndian(value, writeId);
        return value;
    }

    /// <summary>The write that has put a value; 0: there is none.</summary>
    public static long WriteOf(ReadOnlySpan<byte> value) => value.IsEmpty ? 0 : BinaryPrimitives.ReadInt64LittleEndian(value);

    private static CommittedLog.Version Found(ReadOnlySpan<byte> stored)
    {
        var value = KvValue.Read(stored, out var etag).ToArray();
        return new CommittedLog.Version(Etag.FromValue(etag), value);
    }

    private ReplicaStore Open(StoreContext storage)
    {
        Disk.CreateDirectory("/data");
        Disk.SyncDirectory("/");
        return Disk.DirectoryExists(Directory)
            ? ReplicaStore.Open(storage, Directory, mayRecover: true)
            : ReplicaStore.Create(storage, Directory, new ControlState { ReplicaId = ReplicaId, Shard = 0 });
    }

    // As ReadOpener of the API does, with waits that are looked at after each item of work instead of awaited.
    private void Open(ShardReplica replica, ReadKind kind, Etag least, Action<ReadSnapshot, ulong?> read, Action refused)
    {
        switch (kind)
        {
            case ReadKind.Leader or ReadKind.Replica when Bug is InjectedBug.LeaseBeforeSnapshot or InjectedBug.LeaseOfAnotherEpoch:
                FaultyReads.OpenByLease(this, replica, Bug, _run.Random.NextInt64(FaultyReads.HeldUpMostUs), read, refused);
                break;
            case ReadKind.Session when Bug == InjectedBug.SessionReadUnwaited:
            case ReadKind.Replica when Bug == InjectedBug.FollowerReadUnasked:
                OpenNow(replica, null, read, refused);
                break;
            case ReadKind.Leader or ReadKind.Replica when TryOpenLinearizable(replica, out var snapshot):
                if (snapshot is { } opened)
                    read(opened, null);
                break;
            case ReadKind.Stale:
                // Before the snapshot, which may be newer but not older.
                var ageUs = replica.AgeUs;
                OpenNow(replica, ageUs, read, refused);
                break;
            case ReadKind.Session:
                if (!replica.HasApplied(least.Value))
                    _ = replica.AskLeaderAsync(CancellationToken.None);
                OpenWhenApplied(replica, least.Value, read, refused);
                break;
            case ReadKind.Replica when !replica.IsServing:
                Poll(replica.AskLeaderAsync(CancellationToken.None), committed =>
                {
                    if (committed is { } etag)
                        OpenWhenApplied(replica, etag, read, refused);
                    else
                        refused();
                });
                break;
            default:
                Poll(replica.ConfirmReadAsync(CancellationToken.None), confirmed =>
                {
                    if (confirmed is not null)
                        OpenNow(replica, null, read, refused);
                    else
                        refused();
                });
                break;
        }
    }

    private InjectedBug Bug => _run.Bug;

    private bool IsFaulty(InjectedBug bug) => Bug == bug && _run.Chance(FaultyPermille);

    // As the replica does it, but that now and then the reader's thread stands still between its snapshot and its look at the lease, while everything else goes on: writes, other
    // leaderships, the end of its own process. Opened without a snapshot: nobody answers.
    private bool TryOpenLinearizable(ShardReplica replica, out ReadSnapshot? snapshot)
    {
        var process = _starts;
        var opened = replica.OpenSnapshot();
        if (!_run.Healed && _run.Random.Next(ReadsStandInOneOf) == 0)
            _run.Stand(_run.Random.NextInt64(_run.Random.Next(2) == 0 ? ReadStandsShortUs : ReadStandsLongUs));
        // What the process held is gone with it, and so is the caller's answer.
        var isGone = !_isUp || _starts != process;
        var isCovered = !isGone && IsCovered(replica, opened);
        snapshot = isCovered ? opened : null;
        if (!isCovered && !isGone)
            opened.Dispose();
        return isCovered || isGone;
    }

    private bool IsCovered(ShardReplica replica, in ReadSnapshot snapshot)
    {
        if (Bug != InjectedBug.LeaseFromBefore)
            return replica.IsCovered(snapshot);
        var earlierUs = (_clock.GetTimestamp() / (_clock.TimestampFrequency / 1_000_000)) - FaultyReads.EarlierUs;
        return replica.IsServing && replica.Lease.Covers(Etag.FromValue(snapshot.Etag), earlierUs);
    }

    private void OpenWhenApplied(ShardReplica replica, UInt128 etag, Action<ReadSnapshot, ulong?> read, Action refused)
    {
        bool Applied()
        {
            if (!replica.HasApplied(etag))
                return false;
            OpenNow(replica, null, read, refused);
            return true;
        }

        if (!Applied())
            _pending.Add(Applied);
    }

    private void OpenNow(ShardReplica replica, ulong? ageUs, Action<ReadSnapshot, ulong?> read, Action refused) =>
        UnlessStopped(() => read(replica.OpenSnapshot(), ageUs), refused);

    // Where the store has just ended the caller gets an error; the replica itself is told in its next turn.
    private void UnlessStopped(Action read, Action stopped)
    {
        try
        {
            read();
        }
        catch (StoreStoppedException) when (_refuses || Damaged || _unreadable is not null)
        {
            stopped();
        }
    }

    private void Read(ReadSnapshot snapshot, int[] keys, ulong? ageUs, Action<ClusterRead?> done)
    {
        using (snapshot)
        {
            var found = new CommittedLog.Version[keys.Length];
            try
            {
                for (var i = 0; i < keys.Length; i++)
                {
                    if (snapshot.TryGet(TreeId.Kv, Key(keys[i]), out var stored))
                        found[i] = Found(stored);
                }
            }
            catch (CorruptStoreException damage) when (Damaged)
            {
                Lose(damage.Message);
                return;
            }

            done(new ClusterRead(Etag.FromValue(snapshot.Etag), found, _run.NowUs, ageUs));
        }
    }

    // Its pages stay while it rests between steps; what the process held is gone when it ends.
    private void Walk(ReadSnapshot snapshot, ScanRange range, Action<ClusterScan?> done)
    {
        var entries = new List<(string, CommittedLog.Version)>();
        var cursor = snapshot.Cursor(TreeId.Kv, Encoding.ASCII.GetBytes(range.Lower), Encoding.ASCII.GetBytes(range.Upper));
        Step();

        void Step()
        {
            var more = true;
            try
            {
                for (var left = ScanStepKeys; left > 0 && more; left--)
                {
                    more = entries.Count < range.CountMax && (range.Reverse ? cursor.MovePrevious() : cursor.MoveNext());
                    if (more)
                        entries.Add((Encoding.ASCII.GetString(cursor.Key), Found(cursor.Value)));
                }
            }
            catch (CorruptStoreException damage) when (Damaged)
            {
                Lose(damage.Message);
                return;
            }

            if (more)
            {
                InThisProcess(_run.Random.NextInt64(ScanRestUs), () => Deliver(Step));
                return;
            }

            cursor.Dispose();
            done(new ClusterScan(Etag.FromValue(snapshot.Etag), entries));
            snapshot.Dispose();
        }
    }

    private void OnRoute(ShardRoute route)
    {
        _run.LeaderHint = route.Leader == 0 ? _run.LeaderHint : route.Leader;
        RenewMap();
    }

    // Its process starts again after a while, with what the disk has made of what was not synced.
    private void ComeBack()
    {
        (Disk.Refuse, _refuses) = (null, false);
        Disk.Restart((UnsyncedWrites)_run.Random.Next(4), _run.Random.Next());
        _run.Time.After(_run.Random.NextInt64(1_000, 500_000), Start);
    }

    private void Lose(string why)
    {
        _run.Trace($"the replica of node {Id} is lost: {why}");
        Lost = true;
        if (Replica is not null)
            End();
    }

    // As Rejoin does: not while nobody else serves, and then as if the disk were gone.
    private void LoseOldCopy()
    {
        if (_run.Nodes.All(other => other == this || !other.Serves))
        {
            _run.Time.After(_run.Random.NextInt64(50_000, 200_000), Start);
            return;
        }

        _startsOfDisk = _starts;
        Lose("its disk is an old copy");
    }

    // As the host does: only a record that names it among those removed, and is as new as what the replica has seen, takes a directory away.
    private void Retire()
    {
        var held = Disk.DirectoryExists(Directory) ? Held() : null;
        if (held is null || new Retirement(held.Generation, held.PromisedEpoch, held.CoordinatorRevision).WhyNot(_run.Coordinator.Record, _run.Coordinator.Revision, ReplicaId) is null)
            Empty();
        else
            _run.Time.After(_run.Random.NextInt64(50_000, 200_000), Start);
    }

    private ControlState? Held()
    {
        using var control = Storage.Control.ControlFile.TryOpen(Disk, new StoreLayout(Directory).Control);
        return control?.State;
    }

    private void Empty()
    {
        if (_isUp)
            End();
        _run.Trace($"node {Id} removes replica {ReplicaId:x}");
        Disk.Restart(UnsyncedWrites.Kept);
        Disk.CreateDirectory("/data");
        Disk.DeleteDirectory(Directory);
        Disk.SyncDirectory("/data");
        (ReplicaId, Damaged, Lost, _startsOfDisk) = (0, false, false, _starts);
        (_isOutdated, _unreadable, _mayBeQuarantined) = (false, null, false);
    }

    private void End()
    {
        foreach (var executor in _executors)
            executor.Kill();
        Neighbour?.End();
        (_isUp, _isStopped, Replica) = (false, false, null);
        Map = ShardDirectorySnapshot.Empty;
        _run.NodeEnded(this);
        _pending.Clear();
        _whilePaused.Clear();
        Disk.Refuse = null;
        _refuses = false;
        _store?.Dispose();
        _store = null;
    }

    // The same record each time, also in the next process.
    private string? Unreadable(RecordRef record)
    {
        if (!_isOutdated)
            return null;
        if (_unreadable is null)
        {
            _unreadable = record;
            _run.Time.After(_run.Random.NextInt64(OutdatedLeastUs, OutdatedMostUs), ReplaceOrUpdate);
            InThisProcess(ToldWithinUs, () => Violation.Unless(
                Replica?.Failure is not null, Rule.GoesOn, $"the replica on node {Id} could not apply {Etag.FromValue(record.Etag)}, and does not say so"));
        }

        return record == _unreadable ? WhyUnreadable : null;
    }

    // The replica has stopped and says why; its process goes on, and the other shard there.
    private void OnUnreadable(UnreadableRecordException failure)
    {
        _run.Trace($"the replica of node {Id} stops: {failure.Message}");
        _isStopped = true;
        _run.Tally.Count(ClusterFault.Outdate);
        _run.Unapplied++;
        Violation.Unless(failure.Message == WhyUnreadable, Rule.GoesOn, $"the replica on node {Id} could not apply a record, and stops for another reason: {failure.Message}");
        if (Neighbour is { IsServing: true } neighbour)
        {
            var before = neighbour.Acknowledged;
            InThisProcess(WrittenWithinUs, () => Violation.Unless(
                neighbour.Acknowledged > before, Rule.GoesOn, $"the other shard on node {Id} takes no writes since the replica beside it stopped"));
        }

        if (Replica is not { } stopped)
            return;
        var request = WriteRequest.Rent();
        request.Put(Key(0), Value(0));
        var refused = stopped.WriteAsync(request);
        Violation.Unless(
            refused.IsCompletedSuccessfully && refused.Result.Outcome == WriteOutcome.Stopped, Rule.GoesOn, $"the replica on node {Id} has stopped and does not refuse a write");
        // It comes over the thread pool too, and is no part of the course.
        Poll(stopped.StatusAsync(digest: false, detail: false, CancellationToken.None), status => Violation.Unless(
            status is { Role: "failed", Failure: WhyUnreadable }, Rule.GoesOn, $"the replica on node {Id} has stopped, and its status is {status}"));
    }

    // Rebuilding does not help where the version stays: the node gets another one, or an operator has the replica replaced.
    private void ReplaceOrUpdate()
    {
        if (!_isOutdated || Lost)
            return;
        if (_run.Random.Next(2) == 0)
        {
            _run.Trace($"the replica of node {Id} is given up");
            Lost = true;
            return;
        }

        Update();
        Start();
    }

    private void Update()
    {
        _run.Trace($"node {Id} gets a newer version");
        (_isOutdated, _unreadable) = (false, null);
        Crash();
    }

    /// <summary>Acts after a while, or never if the process ends before.</summary>
    public void InThisProcess(long afterUs, Action action)
    {
        var process = _starts;
        _run.Time.After(afterUs, () =>
        {
            if (_isUp && _starts == process)
                action();
        });
    }

    /// <summary>Acts when a task has ended, after the item of work that ended it; never if the process ends before.</summary>
    /// <param name="task">What is waited for.</param>
    /// <param name="done">Told its result.</param>
    public void Poll<T>(Task<T> task, Action<T> done)
    {
        bool Completed()
        {
            if (!task.IsCompleted)
                return false;
            if (task.IsCompletedSuccessfully)
                done(task.Result);
            else
                CheckExcused(task.Exception!.InnerException!);
            return true;
        }

        if (!Completed())
            _pending.Add(Completed);
    }

    // An answer that is an error: the replica stops, or had stopped before, and says so at once; or a disk is full. One that goes on answers with values.
    private void CheckExcused(Exception error)
    {
        if (error is StorageIoException { IsDiskFull: true })
            return;
        InThisProcess(ToldWithinUs, () => Violation.Unless(
            Replica?.Failure is not null, Rule.GoesOn, $"a caller of node {Id}, whose replica goes on, is answered with {error}"));
    }

    private void Deliver(Action action)
    {
        if (_paused > 0)
            _whilePaused.Add(action);
        else
            action();
    }

    // After each item: what failed fails the run, and answers are seen at once.
    private void Guarded(Action item) => Deliver(() =>
    {
        if (!_isUp)
            return;
        try
        {
            item();
        }
        catch (SimulatedCrashException)
        {
            // Seen below, as where somebody has caught it.
        }

        if (Disk.IsOff)
        {
            _run.Trace($"the power of node {Id} is gone in the middle of a call to its disk");
            _run.Tally.Count(ClusterFault.CrashInCall);
            End();
            ComeBack();
            return;
        }

        Neighbour?.Look();
        if (!_isStopped && Replica?.Failure is { } failure)
        {
            OnStopped(failure);
            return;
        }

        if (Replica?.DigestsCompared is { } compared && compared != _compared)
        {
            _compared = compared;
            _run.DigestsCompared++;
        }

        foreach (var completed in _pending.ToArray())
        {
            if (completed())
                _pending.Remove(completed);
        }
    });

    // A disk that fails ends the process, as the host does, and it comes back; damage ends the replica.
    private void OnStopped(Exception failure)
    {
        if (_refuses && failure is StorageIoException)
        {
            _run.Restart(this, static () => { });
            return;
        }

        if (failure is UnreadableRecordException unreadable && _unreadable is not null)
        {
            OnUnreadable(unreadable);
            return;
        }

        if (failure is QuarantinedException && _mayBeQuarantined)
        {
            OnQuarantined();
            return;
        }

        Violation.Unless(
            Damaged && failure is not InvariantException,
            failure is InvariantException ? Rule.Invariant : Rule.GoesOn,
            $"the replica on node {Id} stops: {failure.Message}");
        Lose(failure.Message);
    }

    private sealed class Transport(ClusterRun run, ClusterNode node) : IPeerTransport
    {
        private readonly Dictionary<uint, long> _heldBackUntilUs = [];

        public void Send(uint to, Frame frame)
        {
            if (run.Bug == InjectedBug.BodiesHeldBack && run.IsCut(node.Id, to))
                _heldBackUntilUs[to] = run.NowUs + HeldBackUs;
            if (run.NowUs >= _heldBackUntilUs.GetValueOrDefault(to) || frame.PayloadCase is not (Frame.PayloadOneofCase.Append or Frame.PayloadOneofCase.Probe or Frame.PayloadOneofCase.SnapshotChunk))
                run.Send(node.Id, to, frame);
        }
    }

    private sealed class Coordination(ClusterRun run, ClusterNode node) : IShardCoordination
    {
        private readonly ulong _process = node._starts;

        public void Read(uint shard, Action<ShardRecordRead> done) => run.Coordinator.Read(node.Id, InProcess(done));

        public void CompareAndSet(uint shard, ShardRecord record, long expectedRevision, Action<CompareAndSetResult> done) =>
            run.Coordinator.CompareAndSet(node.Id, record, expectedRevision, InProcess(done));

        // Reaches the process that asked, or none.
        private Action<T> InProcess<T>(Action<T> done) => result => node.Deliver(() =>
        {
            if (node.Replica is not null && node._starts == _process)
                done(result);
        });
    }
}
