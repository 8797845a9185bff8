using System.Collections.Immutable;
using KvCluster.Disk;
using KvCluster.Internal.V1;
using KvCluster.Node.Hosting;
using KvCluster.Node.Map;
using KvCluster.Node.Runtime;
using KvCluster.Node.Shards;
using KvCluster.Node.Shards.Context;
using KvCluster.Node.Telemetry;
using KvCluster.Replication.Digests;
using KvCluster.Replication.Protocol;
using KvCluster.Simulation.Cluster.Routing;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Recovery;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// One node with at most one replica: the real <see cref="ShardReplica"/> over the real <see cref="ReplicaStore"/> on a simulated disk. This class
/// has the life cycles of its process and its replica, and the input from other nodes and the coordinator.
/// </summary>
internal sealed class ClusterNode : IDisposable
{
    // Of a node whose coordinator has an older state than it must follow.
    private const long WaitUs = 100_000;

    // So few that a set takes several parts. A range of the three keys that all callers share has fewer.
    private const int RangeLeavesOfSets = 4;

    // Without listeners, so it costs no time and does not affect the run.
    private static readonly NodeMetrics Unmeasured = new(new NodeIdentity("simulated", "", new(1), 1, ""), shardSeriesMax: 0);

    private readonly ClusterRun _run;
    private readonly NodeCalls _calls;
    private readonly NodeClock _clock;
    private VirtualExecutor[] _executors = [];
    private ReplicaStore? _store;
    private DigestsCompared? _compared;
    private bool _isStopped;
    private (ShardRecord Record, long Revision) _told;
    private RecoveryClaim? _bound;

    public ClusterNode(ClusterRun run, NodeId id, ReplicaId replica)
    {
        _run = run;
        _calls = new NodeCalls(this);
        Id = id;
        ReplicaId = replica;
        Joined = run.Coordinator.Cluster;
        Disk = new NodeDisk(run, this);
        Events = new NodeEvents(run, this);
        Requests = new NodeRequests(run, this);
        Admin = new NodeAdmin(run, this);
        Version = new OutdatedVersion(run, this);
        var drift = run.Conditions.DriftPermille;
        _clock = new NodeClock(run, run.Random.Next(-drift, drift + 1));
        Neighbour = run.Conditions.HasNeighbours ? new Neighbour(run, this) : null;
    }

    public NodeId Id { get; }

    public NodeDisk Disk { get; }

    public NodeEvents Events { get; }

    public NodeRequests Requests { get; }

    public NodeAdmin Admin { get; }

    public OutdatedVersion Version { get; }

    /// <summary>Null if there is none or it does not run.</summary>
    public ShardReplica? Replica { get; private set; }

    public TimeProvider Clock => _clock;

    /// <summary>The thread pool of its process; null if it does not run.</summary>
    public VirtualExecutor? Pool { get; private set; }

    /// <summary>The watches of its process; null if it does not run.</summary>
    public NodeWatches? Watches { get; private set; }

    /// <summary>What it knows of all shards: of its own replicas from themselves, of the others from the coordinator.</summary>
    public ShardDirectorySnapshot Map { get; private set; } = ShardDirectorySnapshot.Empty;

    /// <summary>Another shard's replica in the same process.</summary>
    public Neighbour? Neighbour { get; }

    /// <summary>The id of the replica whose directory it has, or 0.</summary>
    public ReplicaId ReplicaId { get; private set; }

    /// <summary>Its replica does not return.</summary>
    public bool Lost { get; private set; }

    /// <summary>The number of its newest process, which is also the number of processes started.</summary>
    public ulong Process { get; private set; }

    /// <summary>Its disk is not the one of its last start, and the content has not been set aside.</summary>
    public bool IsOldCopy => new DirectoryStarts(new NodeStarts(), StartOf(Disk.LastProcess)).IsOldCopy(StartOf(Process));

    /// <summary>Its process runs, whether or not its replica works.</summary>
    public bool IsUp { get; private set; }

    /// <summary>Its process has started and waits, because the coordinator's data is lost.</summary>
    public bool IsWaiting { get; private set; }

    /// <summary>The shard's record on its disk; null if it never had a replica. It has what its replica goes by.</summary>
    public ShardRecord? Known { get; private set; }

    /// <summary>The cluster's record that it goes by, on its disk.</summary>
    public ClusterRecord Joined { get; private set; }

    /// <summary>Its process runs, or would run if it had a replica.</summary>
    public bool IsThere => IsUp || Lost || ReplicaId.IsNone;

    /// <summary>Nothing is wrong with its disk, its version or its replica, and no fault is about to happen.</summary>
    public bool IsWhole => !Disk.IsDamaged && !Disk.MayErr && !Lost && !Version.IsActive && !IsOldCopy;

    /// <summary>The published state of its replica, which must work.</summary>
    public PublishedState Published => new(this);

    /// <summary>The epoch in which its replica follows or leads.</summary>
    public ulong Epoch => Replica?.Route.Epoch ?? 0;

    /// <summary>Its process and its disk have their ordinary speed, and nothing is wrong with its replica.</summary>
    public bool Works => Replica is { Failure: null } && !Events.IsPaused && Disk.Works && !Version.IsActive;

    /// <summary>Its replica leads and accepts writes.</summary>
    public bool Serves => Replica is { IsServing: true };

    public string State =>
        $"replica {ReplicaId:x}{(Disk.IsDamaged ? ", damaged" : "")}{(Version.IsActive ? ", outdated" : "")}"
            + (Lost ? ", lost" : Replica is null ? ", down" : $", epoch {Replica.Route.Epoch}, serves {Serves}");

    public void Start()
    {
        if (Lost || ReplicaId.IsNone || IsUp)
            return;
        var found = _run.Coordinator.FoundBy(Id);
        IsWaiting = found is not { } coordinator
            || coordinator.Cluster.Recovery < Joined.Recovery || (Bound is { } bound && coordinator.Cluster.Recovery < bound.Recovery);
        if (IsWaiting)
        {
            // Somebody else starts it when the records are rebuilt.
            if (found is not null)
                _run.Time.After(WaitUs, Start);
            return;
        }
        if (IsOldCopy && _run.Bug != InjectedBug.OldCopyTrusted)
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
            // Power is lost again while the replica recovers.
            ComeBack();
        }
    }

    /// <summary>The record assigns it a new replica: creates its directory in place of any former one.</summary>
    public void Create(ReplicaId replica)
    {
        Empty();
        (ReplicaId, Lost) = (replica, false);
        Start();
    }

    /// <summary>A copy of the shard's record reaches its replica, and is on its disk before. Not while it is bound to a recovery.</summary>
    public bool TryKeep(ShardRecord record)
    {
        if (Bound is not null)
            return false;
        if (Known is null || record.Rank.CompareTo(Known.Rank) > 0)
            Known = record;
        return true;
    }

    /// <summary>The recovery for which it has reported, on its disk, until it has joined that one or a later one.</summary>
    public RecoveryClaim? Bound => _bound is not null && _bound.Recovery > Joined.Recovery ? _bound : null;

    /// <summary>Binds it to a recovery. Returns why not, or nothing.</summary>
    public string Bind(RecoveryClaim claim)
    {
        if (_run.Coordinator.ShowsOldTo(Id))
            return "its coordinator is another store";
        if (_run.Bug != InjectedBug.ReportBindsNobody)
            _bound = claim;
        return "";
    }

    /// <summary>That recovery has ended.</summary>
    public void Release(RecoveryClaim claim) => _bound = claim.Equals(_bound) ? null : _bound;

    /// <summary>What its replica is told of an answer of the coordinator: nothing of a recovery that this node has not joined yet.</summary>
    public ShardRecordRead Believe(ShardRecordRead read)
    {
        return read.Record is null || read.Record.Recovery > Joined.Recovery || !TryKeep(read.Record) ? new ShardRecordRead(null, 0) : read;
    }

    /// <summary>It finds that a recovery is complete.</summary>
    public void Join(ClusterRecord cluster)
    {
        if (IsWaiting)
            Start();
        Events.Deliver(() =>
        {
            if (!IsUp || Joined.Recovery >= cluster.Recovery)
                return;
            Joined = cluster;
            _run.Coordinator.TellTo(this);
        });
    }

    public void Crash()
    {
        if (!IsUp)
            return;
        _run.Trace($"node {Id} crashes");
        End();
        Disk.Restart();
    }

    /// <summary>Its process ends and restarts after a while.</summary>
    public void Restart(Action whileDown)
    {
        if (!IsUp)
            return;
        Crash();
        whileDown();
        _run.Time.After(_run.Random.NextInt64(1_000, 500_000), Start);
    }

    /// <summary>Its replica no longer works and does not return.</summary>
    public void Lose(string why)
    {
        _run.Trace($"the replica of node {Id} is lost: {why}");
        Lost = true;
        if (Replica is not null)
            End();
    }

    /// <summary>Its disk is lost, and its replica with it.</summary>
    public void LoseDisk()
    {
        Crash();
        Disk.Lose();
        Lose("its disk is gone");
    }

    /// <summary>While it is down, replaces its disk with a copy.</summary>
    public void RestoreDisk()
    {
        if (Disk.Restore() is { } replica)
            ReplicaId = replica;
    }

    /// <summary>Operators have its replica replaced, although it may work.</summary>
    public void GiveUpReplica()
    {
        _run.Trace($"the replica of node {Id} is abandoned");
        Lost = true;
    }

    /// <summary>Its wall clock jumps; its boot clock does not.</summary>
    public void JumpWallClock(TimeSpan by) => _clock.WallOffset += by;

    /// <summary>Faults are over.</summary>
    public void Heal()
    {
        Disk.Heal();
        if (Version.IsActive && !Lost)
            Version.Update();
    }

    /// <summary>Ends the run.</summary>
    public void Dispose()
    {
        if (IsUp)
            End();
        Disk.Dispose();
    }

    public void Receive(Frame frame) => Events.Deliver(() => Replica?.Mailbox.Receive(frame));

    public void NodeSilent(NodeId node) => Events.Deliver(() => Replica?.Mailbox.NodeSilent(node));

    public void RecordChanged(ShardRecord record, long revision) => Events.Deliver(() =>
    {
        if (record.Recovery != Joined.Recovery || (IsUp && !TryKeep(record)))
            return;
        if (IsUp && IsAbsentIn(record))
        {
            Lose("the record was rebuilt without it");
            return;
        }

        Replica?.Mailbox.RecordChanged(record, revision);
        if (_told.Record is null || RecordVersion.Of(record, revision) > RecordVersion.Of(_told.Record, _told.Revision))
            _told = (record, revision);
        RenewMap();
    });

    /// <summary>A call of a client or router arrives.</summary>
    public void Serve(Call call, Action<Reply> done) => Events.Deliver(() =>
    {
        if (IsUp)
            UnlessStopped(() => _calls.Start(call, done), static () => { });
    });

    /// <summary>A new id for a session that is opened here.</summary>
    public UInt128 DrawSession() => _run.DrawSession();

    public void Checkpoint() => Events.Deliver(() =>
    {
        if (Replica is not null)
            Events.Poll(Replica.CheckpointAsync(), _ => { });
    });

    /// <summary>Acts as soon as the replica has applied this, or never if the process ends before.</summary>
    public void WhenApplied(ShardReplica replica, Etag etag, Action then)
    {
        if (!replica.Reads.HasApplied(etag))
            _ = replica.Reads.AskLeaderAsync(CancellationToken.None);
        Events.Until(() =>
        {
            if (!replica.Reads.HasApplied(etag))
                return false;
            UnlessStopped(then, static () => { });
            return true;
        });
    }

    /// <summary>If the store has just ended, the caller gets an error. The replica itself is told in its next turn.</summary>
    public void UnlessStopped(Action read, Action stopped)
    {
        try
        {
            read();
        }
        catch (StoreStoppedException) when (Disk.HasFailed || Disk.IsDamaged || Version.HasMetRecord)
        {
            stopped();
        }
    }

    /// <summary>Learns of shards as its process does at its start or from its neighbour.</summary>
    public void RenewMap()
    {
        if (!_run.Conditions.RoutedCallers || !IsUp)
            return;
        var records = _run.Nodes.Select(static node => node.Neighbour!).Where(static neighbour => neighbour is not null)
            .Select(static neighbour => (neighbour.Record, neighbour.Revision)).Append(_told);
        IEnumerable<ShardRoute?> own = [Replica?.Route, Neighbour?.Replica?.Route];
        Map = new ShardDirectorySnapshot(
            records.ToImmutableDictionary(static entry => entry.Item1.ShardId),
            own.OfType<ShardRoute>().ToImmutableDictionary(static route => route.ShardId),
            _run.Nodes.ToImmutableDictionary(
                static node => node.Id, static node => new NodeRecord { NodeId = node.Id, Address = RoutedNetwork.AddressOf(node.Id) }),
            revision: 0);
        _run.MapChanged(this);
    }

    private void StartReplica()
    {
        var (record, revision, cluster) = _run.Coordinator.FoundBy(Id)!.Value;
        // As a node does when the record does not name the replica of a directory.
        if (record.Replicas.All(replica => replica.ReplicaId != ReplicaId))
        {
            Retire();
            return;
        }

        _run.Trace($"node {Id} starts replica {ReplicaId:x}");
        Joined = cluster;
        TryKeep(record);
        if (IsAbsentIn(record))
        {
            Lose("the record was rebuilt without it");
            return;
        }

        var shared = MakeContext();
        UnreadableRecordException? stopped = null;
        var storage = shared with { Unreadable = Version.WhyNot };
        try
        {
            _store = Disk.OpenStore(storage);
        }
        catch (UnreadableRecordException unreadable) when (Version.HasMetRecord)
        {
            stopped = unreadable;
        }
        catch (RecoveryRefusedException refused) when (Admin.MayBeQuarantined)
        {
            // Power was lost after the mark was written and before anybody was told.
            _run.Trace($"node {Id}: {refused.Message}");
            Admin.OnQuarantined();
            return;
        }
        catch (Exception refused) when (Disk.IsDamaged && refused is RecoveryRefusedException or CorruptStoreException)
        {
            Lose(refused.Message);
            return;
        }
        catch (StorageIoException failure) when (Disk.HasFailed || Disk.IsDamaged || failure.IsDiskFull)
        {
            // The process ends, as it does at run time. If the disk is full, the host tries again after a while.
            ComeBack();
            return;
        }

        Disk.LastProcess = ++Process;
        var paces = new NodePaces();
        for (var others = 0; _run.HasManyShards && others < 3 * NodePaces.HeartbeatsOfInterval; others++)
        {
            paces.Heartbeats.Count(isOne: true);
            paces.Controls.Count(isOne: true);
        }
        var context = new ShardReplicaContext(
            Id, (Process << 32) | (uint)_run.Random.Next(), storage, _clock, new NodeTransport(_run, this), new NodeCoordination(_run, this), _run.Options,
            (ulong)_run.Random.NextInt64(), OnRoute, new AlarmLog(text => _run.OnAlarm(this, text)))
        {
            Metrics = Unmeasured,
            Telemetry = new ShardTelemetry(record.ShardId, Unmeasured),
            Paces = paces,
        };
        IsUp = true;
        if (_run.Conditions.RoutedCallers)
            Watches = new NodeWatches(_run, this, storage.Options);
        Admin.Begin();
        _told = (record, revision);
        Neighbour?.Open(context with { Storage = shared });
        if (stopped is not null)
        {
            OnUnreadable(stopped);
            return;
        }

        Replica = new ShardReplica(context, _store!, record, revision);
        Replica.Start();
        RenewMap();
    }

    // The context of the process's replicas: its threads and its disk.
    private StoreContext MakeContext()
    {
        var writer = new VirtualExecutor(_run.Time, _run.Random, () => 20, Guarded);
        VirtualExecutor[] lanes = [.. Enumerable.Range(0, 2).Select(_ => new VirtualExecutor(_run.Time, _run.Random, () => Disk.SyncUs, Guarded))];
        var checkpoints = new VirtualExecutor(_run.Time, _run.Random, () => Disk.BackgroundUs, Guarded);
        var completions = new VirtualExecutor(_run.Time, _run.Random, () => 20, Guarded);
        var prefetch = new VirtualExecutor(_run.Time, _run.Random, () => Disk.PrefetchUs, Guarded);
        Pool = new VirtualExecutor(_run.Time, _run.Random, () => 20, Guarded);
        _executors = [writer, .. lanes, checkpoints, completions, prefetch, Pool];
        // While one journal lane writes, the writer and the other lane continue, so a later write may be durable first.
        Disk.Files.DuringWrite = _ =>
        {
            if (lanes.Any(lane => lane.IsRunning) && _run.Random.Next(4) == 0 && writer.RunOneBeside())
                lanes.Any(lane => lane.RunOneBeside());
        };
        var options = new StoreOptions
        {
            CheckpointJournalBytes = _run.Conditions.IsLarge ? 2 << 20 : 128 << 20,
            SegmentBytesMin = Math.Min(64 << 10, _run.Conditions.SegmentBytesMax),
            SegmentBytesMax = _run.Conditions.SegmentBytesMax,
            RetainedJournalBytes = _run.Conditions.RetainedJournalBytes,
            SessionsMax = _run.Conditions.SessionsMax,
            ClockDriftPermille = _run.Bug == InjectedBug.LifeDriftIgnored ? 0 : _run.Conditions.DriftPermille,
            SessionIdleMin = _run.Conditions.SessionIdleMin,
            RangeLeavesMax = _run.Conditions.HasSets ? RangeLeavesOfSets : new StoreOptions().RangeLeavesMax,
            RangeLeavesUnreadMax = _run.Conditions.HasSets ? RangeLeavesOfSets : new StoreOptions().RangeLeavesUnreadMax,
            Pages = new PageStoreOptions { MapBytes = 64 << 20, StepPages = 32 },
        };
        return new StoreContext(FaultyFiles.Of(Disk.Files, _run.Bug), writer, lanes, checkpoints, _clock, NullLogger.Instance, options, completions)
        {
            Prefetch = prefetch,
        };
    }

    private void OnRoute(ShardRoute route)
    {
        _run.LeaderHint = route.LeaderId.IsNone ? _run.LeaderHint : route.LeaderId;
        RenewMap();
    }

    // Its process restarts after a while, with whatever the disk has made of unsynced writes.
    private void ComeBack()
    {
        Disk.StopFailing();
        Disk.Restart();
        _run.Time.After(_run.Random.NextInt64(1_000, 500_000), Start);
    }

    // As StartWithOldCopy does: not while nobody else serves, and then as if the disk were lost.
    private void LoseOldCopy()
    {
        if (_run.Nodes.All(other => other == this || !other.Serves))
        {
            _run.Time.After(_run.Random.NextInt64(50_000, 200_000), Start);
            return;
        }

        Disk.LastProcess = Process;
        // It joins what the coordinator has now as a node without data.
        Joined = _run.Coordinator.FoundBy(Id)!.Value.Cluster;
        Lose("its disk is an old copy");
    }

    private bool IsAbsentIn(ShardRecord record) => record.Replicas.Any(replica => replica.ReplicaId == ReplicaId && replica.Absent);

    private static NodeStarts StartOf(ulong process) => new() { Starts = process, Incarnation = process };

    // As the host does: a directory is retired only by a record that lists it as removed and is at least as new as what the replica has seen.
    private void Retire()
    {
        var held = Disk.ReadControl();
        var (record, revision, _) = _run.Coordinator.FoundBy(Id)!.Value;
        if (held is null || new Retirement(held.Generation, held.PromisedEpoch, new RecordVersion(held.Recovery, held.CoordinatorRevision))
            .WhyNot(record, revision, ReplicaId) is null)
            Empty();
        else
            _run.Time.After(_run.Random.NextInt64(50_000, 200_000), Start);
    }

    private void Empty()
    {
        if (IsUp)
            End();
        _run.Trace($"node {Id} removes replica {ReplicaId:x}");
        Disk.Empty();
        Disk.LastProcess = Process;
        (ReplicaId, Lost) = (ReplicaId.None, false);
        Version.Forget();
        Admin.Forget();
    }

    private void End()
    {
        foreach (var executor in _executors)
            executor.Kill();
        Pool = null;
        Watches?.Dispose();
        Watches = null;
        Neighbour?.End();
        (IsUp, _isStopped, Replica) = (false, false, null);
        Map = ShardDirectorySnapshot.Empty;
        _run.NodeEnded(this);
        Events.End();
        Disk.StopFailing();
        _store?.Dispose();
        _store = null;
    }

    // After each item, so that failures end the run and answers are seen at once.
    private void Guarded(Action item) => Events.Deliver(() =>
    {
        if (!IsUp)
            return;
        try
        {
            item();
        }
        catch (SimulatedCrashException)
        {
            // Handled below, even if somebody has caught it.
        }

        if (Disk.Files.IsOff)
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

        Events.Look();
    });

    // A failing disk ends the process, as in the host, and it restarts. Damage ends the replica.
    private void OnStopped(Exception failure)
    {
        if (Disk.HasFailed && failure is StorageIoException)
        {
            Restart(static () => { });
            return;
        }

        if (failure is UnreadableRecordException unreadable && Version.HasMetRecord)
        {
            OnUnreadable(unreadable);
            return;
        }

        if (failure is QuarantinedException && Admin.MayBeQuarantined)
        {
            Admin.OnQuarantined();
            return;
        }

        Violation.Unless(
            Disk.IsDamaged && failure is not InvariantException,
            failure is InvariantException ? Rule.Invariant : Rule.GoesOn,
            $"the replica on node {Id} stops: {failure.Message}");
        Lose(failure.Message);
    }

    private void OnUnreadable(UnreadableRecordException failure)
    {
        _isStopped = true;
        Version.OnStopped(failure);
    }
}
