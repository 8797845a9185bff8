using KvCluster.Internal.V1;
using KvCluster.Node.Shards.Context;
using KvCluster.Node.Shards.Disk;
using KvCluster.Node.Shards.Loop;
using KvCluster.Node.Shards.Reads;
using KvCluster.Node.Shards.Snapshots;
using KvCluster.Replication;
using KvCluster.Replication.Digests;
using KvCluster.Replication.Protocol;
using KvCluster.Storage;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Threads;
using KvCluster.V1;
using Event = KvCluster.Replication.Protocol.Event;

namespace KvCluster.Node.Shards;

/// <summary>
/// One replica: its parts, put together, and its life from start to end. Callers use the parts directly; <see cref="EventLoop"/> drives them. An exception in
/// a turn stops this replica and nothing else; it is kept and reported to every later caller.
/// </summary>
internal sealed class ShardReplica : IAsyncDisposable
{
    private readonly ShardReplicaContext _context;
    private readonly ReplicaJournalView _journal;
    private readonly ReplicaCore _core;
    private readonly ReplicaLife _life;
    private readonly TickTimer _timer;
    private readonly PublishedState _published;
    private readonly ReplicaDisk _disk;
    private readonly StoreNotices _notices;
    private readonly StoreSwitch _stores;
    private readonly SnapshotTransfers _snapshots;
    private readonly EventLoop _loop;

    /// <summary>Takes ownership of a recovered store. Nothing happens before <see cref="Start"/>.</summary>
    /// <param name="context">What the replica depends on.</param>
    /// <param name="store">The replica's store, not started.</param>
    /// <param name="record">The shard's record, which names this replica.</param>
    /// <param name="revision">The record's mod revision.</param>
    public ShardReplica(ShardReplicaContext context, ReplicaStore store, ShardRecord record, long revision)
    {
        _context = context;
        Shard = record.ShardId;
        _journal = new ReplicaJournalView(store, context.MicrosecondsOf);
        _core = new ReplicaCore(
            new ReplicaStartup(
                record.ShardId, context.Incarnation, store.Durable.Control, store.Pages.Roots.PublishedEtag, record, revision, context.Seed, context.NowUs()),
            _journal,
            context.Replication);
        var atOnce = new Queue<Event>();
        var decisions = new DecisionLog(context, Shard);
        Mailbox = new ReplicaMailbox(context.Storage.Writer, new WorkAction(() => _loop!.TakeTurn()));
        _life = new ReplicaLife(context, decisions, Mailbox.Wake) { Ended = OnEnded };
        _timer = new TickTimer(context.Clock, Mailbox.Wake);
        _published = new PublishedState(context.RouteChanged);
        _published.Adopt(record);
        _disk = new ReplicaDisk(context.Disk, context.NowUs, context.Log, Shard, Mailbox.Wake);
        Reads = new ReplicaReads(context, _core, _journal, _published, Mailbox.Wake);
        Writes = new ReplicaWrites(_journal, _published, _life);
        Sessions = new SessionKeeping(Reads, Writes, _journal);
        Orders = new ReplicaOrders(Mailbox, _life, context.Metrics);
        Quarantine = new Quarantine(context, _core, _journal, Mailbox, _life);
        _notices = new StoreNotices(_core, Reads, Mailbox, context.Telemetry, _life);
        _stores = new StoreSwitch(_journal, _notices);
        _snapshots = new SnapshotTransfers(
            context.Storage, Mailbox.Add, action => Mailbox.Leave(action), _stores.TryStop, _stores.LackRoom, _stores.Use, _life.Fail)
        {
            RoomKnown = _disk.KnowRoom,
        };
        Report = new ReplicaReport(context, _core, _journal, Reads, _published, _disk, decisions, Mailbox, _life);
        var performer = new EffectPerformer(
            context, _core, _journal, new JournalFrames(context, _journal, atOnce), _snapshots, Reads, Orders, _published,
            decisions, Mailbox, atOnce, Quarantine);
        _loop = new EventLoop(context, _life, _core, performer, _journal, _notices, Mailbox, _timer, Reads, _published, _disk, atOnce);
    }

    /// <summary>The shard's id.</summary>
    public ShardId Shard { get; }

    /// <summary>Takes what happens elsewhere. Any thread.</summary>
    public ReplicaMailbox Mailbox { get; }

    /// <summary>Its reads. Any thread.</summary>
    public ReplicaReads Reads { get; }

    /// <summary>Its sessions. Any thread.</summary>
    public SessionKeeping Sessions { get; }

    /// <summary>Its writes. Any thread.</summary>
    public ReplicaWrites Writes { get; }

    /// <summary>Transfers and changes of replicas. Any thread.</summary>
    public ReplicaOrders Orders { get; }

    /// <summary>Ends it for good. Any thread.</summary>
    public Quarantine Quarantine { get; }

    /// <summary>Describes it. Any thread.</summary>
    public ReplicaReport Report { get; }

    /// <summary>The store in use, which is replaced when a snapshot was received. Any thread.</summary>
    public ReplicaStore Store => _journal.Store;

    /// <summary>The newest route this replica knows. Immutable; any thread.</summary>
    public ShardRoute Route => _published.Route;

    /// <summary>Why the replica stopped by itself; null while it runs.</summary>
    public Exception? Failure => _life.Failure;

    /// <summary>Whether this replica leads and takes writes. Any thread. May be out of date when it returns.</summary>
    public bool IsServing => _published.IsServing;

    /// <summary>The space that its disk lacks for a snapshot without which it cannot continue; null if none. Any thread.</summary>
    public RoomLack? LacksRoom => Failure is null ? _disk.Lack : null;

    /// <summary>While it leads: the last comparison with the others' trees that found no difference. Writer executor.</summary>
    public DigestsCompared? DigestsCompared => _core.DigestsCompared;

    /// <summary>Whether a restart would have to replay so much that a checkpoint before it is worthwhile. Any thread.</summary>
    public bool HasMuchToReplay => _journal.Store.Statistics.HasMuchToReplay;

    /// <summary>For logs and messages.</summary>
    public override string ToString() => $"shard {Shard}";

    /// <summary>Starts the replica.</summary>
    public void Start()
    {
        _journal.Store.Start(_notices);
        _disk.Join(() => IsServing);
        Mailbox.Wake();
    }

    /// <summary>Somebody waits for a comparison of the voters' digests. If it leads, it begins one as soon as it may. Any thread.</summary>
    public void WantDigests() => Mailbox.Add(Event.DigestsWanted.Instance);

    /// <summary>Writes a checkpoint and waits until it is durable.</summary>
    /// <returns>The etag that it covers, and the size of the data file in bytes.</returns>
    public async Task<(Etag Covered, long DataBytes)> CheckpointAsync()
    {
        Task<CheckpointPosition>? checkpoint = null;
        if (!await Mailbox.VisitAsync(() => checkpoint = _journal.Store.Checkpoints.RequestAsync()).ConfigureAwait(false))
            throw new ReplicaHaltedException(Failure?.Message ?? "The replica is stopping.");
        var coverage = await checkpoint!.ConfigureAwait(false);
        return (coverage.Etag, _journal.Store.Statistics.DataBytes);
    }

    /// <summary>Stops the replica; waiting callers are answered. The store is closed when this completes.</summary>
    public async ValueTask DisposeAsync()
    {
        await _life.StopAsync().ConfigureAwait(false);
        await _timer.DisposeAsync().ConfigureAwait(false);
        await _stores.CloseAsync().ConfigureAwait(false);
    }

    // Takes no more writes, unpins the checkpoints being sent, and answers waiting callers.
    private void OnEnded()
    {
        _published.Serve(false);
        _snapshots.CloseAll();
        Reads.RefuseAll();
        Orders.RefuseAll();
        _context.Telemetry.Ended();
        _journal.Store.Writes.StopLeading();
        _disk.Dispose();
    }
}
