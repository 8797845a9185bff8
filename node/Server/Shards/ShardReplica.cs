using KvCluster.Node.Telemetry;
using KvCluster.Replication;
using KvCluster.Replication.Digests;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;
using KvCluster.V1;
using Event = KvCluster.Replication.Protocol.Event;
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Node.Shards;

/// <summary>
/// The driver of one replica. It passes events to the protocol's core, one at a time, on the shard's writer executor. Other threads
/// only leave events, submit writes and read snapshots. An exception here stops this replica and nothing else; it is kept and reported to
/// every later caller.
/// </summary>
internal sealed class ShardReplica : IStoreEvents, IWorkItem, IAsyncDisposable
{
    // Bounded so that one busy shard does not delay the others on the same executor.
    private const int EventsPerTurn = 256;

    private readonly ShardReplicaContext _context;
    private readonly ReplicaJournalView _journal;
    private readonly ReplicaCore _core;
    private readonly EffectPerformer _performer;
    private readonly ReplicaMailbox _mailbox;
    private readonly TickTimer _timer;
    private readonly PublishedState _published;
    private readonly ReplicaDisk _disk;
    private readonly StoreSwitch _stores;
    private readonly SnapshotTransfers _snapshots;
    private readonly Quarantine _quarantine;
    private readonly WaitingOrders _orders = new();
    private readonly DecisionLog _decisions;
    private readonly Queue<Event> _atOnce = new();
    private readonly Action<Event> _step;
    private readonly TaskCompletionSource _stopped = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private LifePhase _phase;
    private volatile Exception? _failure;
    private volatile bool _stopping;
    private bool _durableRose;

    /// <summary>Takes ownership of a recovered store. Nothing happens before <see cref="Start"/>.</summary>
    /// <param name="context">What the replica depends on.</param>
    /// <param name="store">The replica's store, not started.</param>
    /// <param name="record">The shard's record, which names this replica.</param>
    /// <param name="revision">The record's mod revision.</param>
    public ShardReplica(ShardReplicaContext context, ReplicaStore store, ShardRecord record, long revision)
    {
        _context = context;
        Shard = record.Shard;
        _journal = new ReplicaJournalView(store);
        _core = new ReplicaCore(
            new ReplicaStartup(
                record.Shard, context.Incarnation, store.Control.ToRecord(), Etag.FromValue(store.Published), record, revision, context.Seed, context.NowUs()),
            _journal,
            context.Replication);
        _mailbox = new ReplicaMailbox(context.Storage.Writer, this);
        _timer = new TickTimer(context.Clock, _mailbox.Wake);
        _published = new PublishedState(context.RouteChanged);
        _published.Adopt(record);
        _disk = new ReplicaDisk(context, Shard, _mailbox.Wake);
        _stores = new StoreSwitch(_journal, this);
        _snapshots = new SnapshotTransfers(context.Storage, _mailbox.Add, action => _mailbox.Leave(action), _stores.TryStop, _stores.LackRoom, _stores.Use, Fail);
        _quarantine = new Quarantine(context.Storage, _mailbox, Fail);
        _decisions = new DecisionLog(context, Shard);
        Reads = new ReplicaReads(context, _core, _journal, _published, _mailbox.Wake);
        Report = new ReplicaReport(context, _core, _journal, Reads, _published, _disk, _decisions, _mailbox, () => _failure);
        _performer = new EffectPerformer(
            context, _core, _journal, _stores, _snapshots, Reads, _orders, _published, _decisions, _mailbox, _atOnce, why => BeginQuarantine(why, ended: null));
        _step = Step;
    }

    /// <summary>Where a replica is between its start and its end. It only moves down this list. Writer executor.</summary>
    private enum LifePhase
    {
        /// <summary>It takes turns.</summary>
        Running,

        /// <summary>
        /// The quarantine mark is being written. The replica is silent from here on, so that no later leader counts on it, but it still receives visits.
        /// </summary>
        Quarantining,

        /// <summary>It has failed or was stopped, and all its callers were answered.</summary>
        Ended,
    }

    /// <summary>The shard's id.</summary>
    public uint Shard { get; }

    /// <summary>Its reads. Any thread.</summary>
    public ReplicaReads Reads { get; }

    /// <summary>Describes it. Any thread.</summary>
    public ReplicaReport Report { get; }

    /// <summary>The newest route this replica knows. Immutable; any thread.</summary>
    public ShardRoute Route => _published.Route;

    /// <summary>Why the replica stopped by itself; null while it runs.</summary>
    public Exception? Failure => _failure;

    /// <summary>Whether this replica leads and takes writes. Any thread. May be out of date when it returns.</summary>
    public bool IsServing => _published.IsServing;

    /// <summary>While it leads: the last comparison with the others' trees that found no difference. Writer executor.</summary>
    public DigestsCompared? DigestsCompared => _core.DigestsCompared;

    /// <summary>Whether a restart would have to replay so much that a checkpoint before it is worthwhile. Any thread.</summary>
    public bool HasMuchToReplay => _journal.Store.Statistics.HasMuchToReplay;

    /// <summary>For logs and messages.</summary>
    public override string ToString() => $"shard {Shard}";

    /// <summary>Starts the replica.</summary>
    public void Start()
    {
        _journal.Store.Start(this);
        _disk.Join(() => IsServing);
        _mailbox.Wake();
    }

    /// <summary>A frame of this shard arrived. Any thread.</summary>
    public void Receive(Frame frame) => _mailbox.Receive(frame);

    /// <summary>Nothing arrives from a node any more, or the stream from it ended. Any thread.</summary>
    public void NodeSilent(uint node) => _mailbox.Add(new Event.NodeSilent(node));

    /// <summary>The coordinator's watch showed the shard's record. Any thread.</summary>
    public void RecordChanged(ShardRecord record, long revision) => _mailbox.Add(new Event.ShardRecordRead(0, record, revision));

    /// <summary>
    /// Submits a write. The task ends when the write is committed and published, or certainly not applied, or when its outcome cannot be known. The
    /// request belongs to the store meanwhile and returns to its pool by itself. Any thread; never waits for space in the queue.
    /// </summary>
    public ValueTask<WriteResult> WriteAsync(WriteRequest request)
    {
        if (!IsServing)
            return Refuse(request, _failure is null ? WriteOutcome.NotLeader : WriteOutcome.Stopped);
        var completion = request.Completion;
        return _journal.Store.TrySubmit(request) ? completion : Refuse(request, WriteOutcome.Busy);
    }

    /// <summary>Writes a checkpoint and waits until it is durable.</summary>
    /// <returns>The etag that it covers, and the size of the data file in bytes.</returns>
    public async Task<(Etag Covered, long DataBytes)> CheckpointAsync()
    {
        Task<CheckpointPosition>? checkpoint = null;
        if (!await _mailbox.VisitAsync(() => checkpoint = _journal.Store.CheckpointAsync()).ConfigureAwait(false))
            throw new ReplicaHaltedException(_failure?.Message ?? "The replica is stopping.");
        var coverage = await checkpoint!.ConfigureAwait(false);
        return (Etag.FromValue(coverage.Etag), _journal.Store.Statistics.DataBytes);
    }

    /// <summary>
    /// Transfers this replica's leadership to another one. Writers see a pause of some milliseconds, and their client repeats what was refused.
    /// </summary>
    /// <param name="replica">The replica that should lead; 0: the most advanced voter.</param>
    public async Task<OrderResult> TransferAsync(ulong replica)
    {
        var result = await OrderAsync(id => new Event.TransferAsked(id, replica)).ConfigureAwait(false);
        _context.Metrics.TransferEnded(result.Done);
        return result;
    }

    /// <summary>Changes the shard's replicas, as its leader. Ends when the outcome is definite, or this replica stops leading.</summary>
    public Task<OrderResult> ChangeReplicasAsync(ReplicaChange change) => OrderAsync(id => new Event.ReplicasAsked(id, change));

    /// <summary>
    /// Ends this replica for good, like a failure of its own: it no longer votes, acknowledges or answers, not even after a restart. The result is not done
    /// if it had already stopped for another reason, if the disk failed while the mark was written, or (then without a failure) if the leave was no longer
    /// valid.
    /// </summary>
    /// <param name="why">The reason, for people.</param>
    /// <param name="leave">What the shard's leader stated; null: an operator forces it.</param>
    public async Task<OrderResult> QuarantineAsync(string why, QuarantineLeave? leave)
    {
        var ended = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
        var refusal = "the replica is stopping";
        var visited = await _mailbox.VisitAsync(() =>
        {
            if (leave is { } given && (_core.Epoch > given.Epoch || _context.Clock.GetTimestamp() > given.UsableUntil))
            {
                refusal = "the shard has a new leader, or the request took too long; try again";
                ended.TrySetResult(false);
                return;
            }
            BeginQuarantine(why, ended);
        }).ConfigureAwait(false);
        if (visited)
            await ended.Task.ConfigureAwait(false);
        return new OrderResult(_failure is QuarantinedException, _failure?.Message ?? refusal);
    }

    /// <summary>Stops the replica; waiting callers are answered. The store is closed when this completes.</summary>
    public async ValueTask DisposeAsync()
    {
        _stopping = true;
        _mailbox.Wake();
        await _stopped.Task.ConfigureAwait(false);
        await _timer.DisposeAsync().ConfigureAwait(false);
        await _stores.CloseAsync().ConfigureAwait(false);
    }

    void IWorkItem.Execute()
    {
        _mailbox.BeginTurn();
        try
        {
            if (_stopping)
                Stop();
            else if (_phase == LifePhase.Running)
                TakeTurn();
            while (_mailbox.TryTakeVisit(out var visit))
                visit.Run(works: _phase != LifePhase.Ended && !_stopping);
        }
        catch (Exception failure)
        {
            Fail(failure);
        }
    }

    void IStoreEvents.Durable(RecordRef record)
    {
        _durableRose = true;
        if (!_core.Leads)
            _context.Telemetry.Durable(record.Etag);
        _mailbox.Wake();
    }

    void IStoreEvents.ControlWritten(ControlState state)
    {
        _stores.ControlWritten();
        _mailbox.Add(new Event.ControlWritten(state.ToRecord()));
    }

    void IStoreEvents.CutDone(RecordRef last) => _mailbox.Add(Event.CutDone.Instance);

    void IStoreEvents.WorkQueued() => _mailbox.Wake();

    bool IStoreEvents.MayAnswerReads() => Reads.MayAnswerConditions();

    void IStoreEvents.Failed(Exception first) => Fail(first);

    private static ValueTask<WriteResult> Refuse(WriteRequest request, WriteOutcome outcome)
    {
        request.Return();
        return ValueTask.FromResult(WriteResult.Of(outcome));
    }

    private void TakeTurn()
    {
        if (_timer.TryTake() && _context.NowUs() >= _core.NextTickUs)
            Step(Event.Tick.Instance);
        var durableRose = _durableRose;
        if (durableRose)
        {
            _durableRose = false;
            Step(Event.Durable.Instance);
        }
        for (var left = EventsPerTurn; left > 0 && _mailbox.TryTake(out var happened); left--)
            Step(happened);
        Reads.Ask(_step);
        AppendBatches();
        _disk.Observe(_journal.Store, _core.Pace, durableRose);
        TellDisk();
        // After the events, so that what arrived meanwhile is in the journal before a long backlog is applied.
        var appliesMore = _journal.Store.ApplyMore();
        Reads.ReleaseApplied();
        _timer.Arm(_core.NextTickUs, _context.NowUs());
        if (appliesMore || _mailbox.HasEvents)
            _mailbox.Wake();
    }

    private void Step(Event happened)
    {
        if (happened is Event.FrameReceived { Frame: var frame })
        {
            if (frame.PayloadCase == Frame.PayloadOneofCase.Append && !_journal.Store.CanAppendBodies)
                return;
            if (_context.Telemetry.IsWatching)
                Note(frame);
        }

        _atOnce.Enqueue(happened);
        while (_phase != LifePhase.Ended && _atOnce.TryDequeue(out var next))
        {
            _core.Step(next, _context.NowUs());
            foreach (var effect in _core.Effects)
                _performer.Perform(effect);
        }
        // What the core calls committed is not applied before this point, and perhaps later.
        if (!_journal.Store.IsApplying)
            Reads.Advance(_core.CurrentUs);
    }

    private void Note(Frame frame)
    {
        if (frame.PayloadCase == Frame.PayloadOneofCase.Append && frame.Append.Traces.Count > 0)
            _context.Telemetry.Received(frame.Append);
        else if (frame.PayloadCase == Frame.PayloadOneofCase.Ack && _core.Leads && _core.View.NodeOf(frame.Sender) is not 0 and var node)
            _context.Telemetry.Acknowledged(node, frame.Ack.Durable.FromWire().Value);
    }

    /// <summary>Appends a batch for each free journal slot. Followers receive it while this replica's write is in progress.</summary>
    private void AppendBatches()
    {
        while (IsServing && _journal.Store.CanAppendBatch && !_journal.Store.QueueIsEmpty && !LeavesFullDisk()
            && _journal.Store.TryAppendBatch(_context.Clock.GetUtcNow(), out var record))
        {
            Step(new Event.RecordAppended(ReplicaJournalView.ToJournalRecord(record)));
        }
    }

    // While another replica is asked to take over from a full disk, writes wait. Their callers are then redirected and not refused.
    private bool LeavesFullDisk()
    {
        if (!_journal.Store.IsDiskFull)
            return false;
        TellDisk();
        return _core.MayHandOver;
    }

    private void TellDisk()
    {
        if (_disk.TryChange(_journal.Store))
            Step(new Event.DiskHealth(_disk.State != DiskState.Healthy));
    }

    private async Task<OrderResult> OrderAsync(Func<long, Event> order)
    {
        var ended = new TaskCompletionSource<OrderResult>(TaskCreationOptions.RunContinuationsAsynchronously);
        return await _mailbox.VisitAsync(() => _mailbox.Add(order(_orders.Add(ended)))).ConfigureAwait(false)
            ? await ended.Task.ConfigureAwait(false)
            : new OrderResult(false, _failure?.Message ?? "the replica is stopping");
    }

    private void BeginQuarantine(string why, TaskCompletionSource<bool>? ended)
    {
        if (_phase == LifePhase.Running)
            MoveTo(LifePhase.Quarantining);
        _quarantine.Begin(_journal.Store.Directory, why, ended);
    }

    private void Fail(Exception failure)
    {
        if (_failure is not null)
            return;
        // A store that has stopped refuses calls before its end is reported. What stopped it is the actual failure.
        if (failure is StoreStoppedException { InnerException: { } first })
            failure = first;
        if (!_context.Rules.Ends(failure))
            return;
        _failure = failure;
        _decisions.Fail(failure);
        End();
        _context.Failed(failure);
        _mailbox.Wake();
    }

    private void Stop()
    {
        End();
        _stopped.TrySetResult();
    }

    // Takes no more writes, unpins the checkpoints being sent, and answers waiting callers.
    private void End()
    {
        if (_phase == LifePhase.Ended)
            return;
        MoveTo(LifePhase.Ended);
        _published.Serve(false);
        _snapshots.CloseAll();
        Reads.RefuseAll();
        _orders.RefuseAll();
        _context.Telemetry.Ended();
        _journal.Store.StopLeading();
        _disk.Dispose();
    }

    private void MoveTo(LifePhase next)
    {
        Invariant.Check(next >= _phase, $"The replica was to become {next}, but it is {_phase}.");
        _phase = next;
    }
}
