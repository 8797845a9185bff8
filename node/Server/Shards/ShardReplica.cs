using System.Collections.Concurrent;
using KvCluster.Node.Telemetry;
using KvCluster.Replication;
using KvCluster.Replication.Digests;
using KvCluster.Replication.Leading;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;
using KvCluster.V1;
using Event = KvCluster.Replication.Protocol.Event;
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Node.Shards;

/// <summary>
/// The driver of one replica. It passes events to the protocol's core, one at a time, on the shard's writer executor. Other threads
/// only queue events, submit writes and read snapshots. An exception here stops this replica and nothing else; it is kept and reported to
/// every later caller.
/// </summary>
internal sealed class ShardReplica : IStoreEvents, IWorkItem, IAsyncDisposable
{
    // Bounded so that one busy shard does not delay the others on the same executor.
    private const int EventsPerTurn = 256;

    /// <summary>Heartbeats of a quiescent leader that may remain unanswered before it counts as alone.</summary>
    private const ulong QuiescentRoundsUnansweredMax = 3;

    // Several windows of a leader's bodies and snapshot. Beyond it frames are dropped, as a network may do, and sent again.
    private const long FrameBytesWaitingMax = 32 << 20;

    // Divides the heartbeat interval, and is short compared to any timeout.
    private const long TickGridUs = 20_000;

    // For events more than FarUs away: heartbeats of quiescent leaders, and the timeouts of their followers.
    private const long FarTickGridUs = 500_000;
    private const long FarUs = 2_000_000;

    private readonly ShardReplicaContext _context;
    private readonly ReplicaJournalView _journal;
    private readonly ReplicaCore _core;
    private readonly EffectPerformer _performer;
    private readonly WaitingReads _waitingReads = new();
    private readonly WaitingReads _followerReads = new();
    private readonly AppliedWaits _appliedWaits = new();
    private readonly ConcurrentQueue<Event> _mailbox = new();
    private readonly ConcurrentQueue<Visit> _visits = new();
    private readonly Queue<Event> _atOnce = new();
    private readonly DiskPace _diskPace = new();
    private NodeDisk.Share? _disk;
    private volatile bool _nodeDiskIsSlow;
    private long _paceJudgedUs = long.MinValue;
    private DiskState _diskTold;
    private readonly List<Task> _retired = [];
    private TaskCompletionSource? _switched;
    private readonly ITimer _timer;
    private readonly TaskCompletionSource _stopped = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly long _clockTicksPerMicrosecond;
    private volatile Exception? _failure;
    private volatile bool _stopping;
    private bool _durableRose;
    private bool _failedConditionsWait;

    // The quarantine mark is being written. The replica is silent from then on, so that no later leader counts on it.
    private bool _quarantines;
    private long _timerDueUs;
    private int _tickDue = 1;
    private int _scheduled;
    private long _frameBytesWaiting;
    private long _orderIdLast;
    private long _currentUs = long.MinValue;

    /// <summary>Takes ownership of a recovered store. Nothing happens before <see cref="Start"/>.</summary>
    /// <param name="context">What the replica depends on.</param>
    /// <param name="store">The replica's store, not started.</param>
    /// <param name="record">The shard's record, which names this replica.</param>
    /// <param name="revision">The record's mod revision.</param>
    public ShardReplica(ShardReplicaContext context, ReplicaStore store, ShardRecord record, long revision)
    {
        _context = context;
        _clockTicksPerMicrosecond = context.Clock.TimestampFrequency / 1_000_000;
        _journal = new ReplicaJournalView(store);
        var snapshots = new SnapshotTransfers(context.Storage, Enqueue, action => LeaveVisit(new Visit(action, null)), TryStopStore, full => _journal.Store.EndRequests(full), UseStore, Fail);
        _performer = new EffectPerformer(context, _journal, _waitingReads, _followerReads, Enqueue, _atOnce.Enqueue, why => Quarantine(why, null), snapshots);
        Shard = record.Shard;
        _performer.Remember(record, revision);
        _core = new ReplicaCore(
            new ReplicaStartup(
                record.Shard, context.Incarnation, store.Control.ToRecord(), Etag.FromValue(store.Published), record, revision, context.Seed, NowUs()),
            _journal,
            context.Replication);
        _timer = context.Clock.CreateTimer(OnTimer, null, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);
    }

    /// <summary>The shard's id.</summary>
    public uint Shard { get; }

    /// <summary>The newest route this replica knows. Immutable; any thread.</summary>
    public ShardRoute Route => _performer.Route;

    /// <summary>Why the replica stopped by itself; null while it runs.</summary>
    public Exception? Failure => _failure;

    /// <summary>Whether this replica leads and takes writes. Any thread. May be out of date when it returns.</summary>
    public bool IsServing => _performer.Serving;

    /// <summary>The lease under which reads need no round. Any thread.</summary>
    public Lease Lease => _core.Lease;

    /// <summary>While it leads: the last comparison with the others' trees that found no difference. Writer executor.</summary>
    public DigestsCompared? DigestsCompared => _core.DigestsCompared;

    /// <summary>For logs and messages.</summary>
    public override string ToString() => $"shard {Shard}";

    /// <summary>Starts the replica.</summary>
    public void Start()
    {
        _journal.Store.Start(this);
        _disk = _context.Disk.Join(() => IsServing, OnNodeDisk);
        Schedule();
    }

    /// <summary>A frame of this shard arrived. Any thread.</summary>
    public void Receive(Frame frame)
    {
        var bytes = FrameBytes.Of(frame);
        if (Interlocked.Add(ref _frameBytesWaiting, bytes) <= FrameBytesWaitingMax)
            Enqueue(new Event.FrameReceived(frame));
        else
            Interlocked.Add(ref _frameBytesWaiting, -bytes);
    }

    /// <summary>Nothing arrives from a node any more, or the stream from it ended. Any thread.</summary>
    public void NodeSilent(uint node) => Enqueue(new Event.NodeSilent(node));

    /// <summary>The coordinator's watch showed the shard's record. Any thread.</summary>
    public void RecordChanged(ShardRecord record, long revision) => Enqueue(new Event.ShardRecordRead(0, record, revision));

    /// <summary>
    /// Opens a snapshot for a linearizable read that arrived before this call, if the lease covers it. The snapshot is taken first, then the
    /// lease is read, which must be of the same leadership. If false, await <see cref="ConfirmReadAsync"/> and then open a snapshot with
    /// <see cref="OpenSnapshot"/>. Any thread, no lock.
    /// </summary>
    public bool TryOpenLinearizable(out ReadSnapshot snapshot)
    {
        snapshot = OpenSnapshot();
        if (IsCovered(snapshot))
            return true;
        snapshot.Dispose();
        snapshot = default;
        return false;
    }

    /// <summary>
    /// The second half of <see cref="TryOpenLinearizable"/>: whether the lease covers a snapshot that was opened after the read arrived. A snapshot from
    /// before this replica's present leadership is never covered, whatever happens between the two. Any thread, no lock.
    /// </summary>
    public bool IsCovered(in ReadSnapshot snapshot) => IsServing && Lease.Covers(Etag.FromValue(snapshot.Etag), NowUs());

    /// <summary>
    /// Confirms that this replica leads, by a heartbeat round that is sent after this call and shared by all waiting reads. A snapshot opened afterwards may
    /// answer. Null if it does not lead. Cancelling a wait does not affect the others.
    /// </summary>
    public Task<UInt128?> ConfirmReadAsync(CancellationToken cancellationToken) =>
        IsServing ? JoinAsync(_waitingReads, cancellationToken) : Task.FromResult<UInt128?>(null);

    /// <summary>
    /// Asks the leader for the committed etag, after this call and once for all waiting reads. A snapshot that has that etag may answer a linearizable read.
    /// Null if this replica leads, knows no leader, or got no answer. Cancelling a wait does not affect the others.
    /// </summary>
    public Task<UInt128?> AskLeaderAsync(CancellationToken cancellationToken) => JoinAsync(_followerReads, cancellationToken);

    /// <summary>Waits until this replica has applied an etag. False if the time is up or it has stopped.</summary>
    /// <param name="etag">The etag to wait for.</param>
    /// <param name="limit">The longest wait; <see cref="Timeout.InfiniteTimeSpan"/>: until the caller gives up.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    public ValueTask<bool> WaitForAppliedAsync(UInt128 etag, TimeSpan limit, CancellationToken cancellationToken) => HasApplied(etag)
        ? ValueTask.FromResult(true)
        : new ValueTask<bool>(_appliedWaits.JoinAsync(etag, Schedule, limit, cancellationToken));

    /// <summary>Whether a snapshot opened from now on has this etag. Any thread.</summary>
    public bool HasApplied(UInt128 etag) => _journal.Store.Published >= etag;

    /// <summary>
    /// How long, in microseconds, a snapshot opened from now on may be out of date, as far as this replica can know (kv.proto,
    /// Position.age_us). Null if it has not heard of a leader since its start. Any thread.
    /// </summary>
    public ulong? AgeUs
    {
        get
        {
            if (LeaseHolds())
                return 0;
            var currentUs = Volatile.Read(ref _currentUs);
            return currentUs == long.MinValue ? null : (ulong)Math.Max(0, NowUs() - currentUs);
        }
    }

    /// <summary>Opens a snapshot of the published state, whatever its age. Any thread, no lock.</summary>
    public ReadSnapshot OpenSnapshot() => _journal.Store.OpenSnapshot();

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

    /// <summary>The replica's entry in <c>kv status</c>. With <paramref name="digest"/> it reads the whole tree, unless cancelled.</summary>
    public async Task<ReplicaStatus> StatusAsync(bool digest, bool detail, CancellationToken cancellationToken)
    {
        var status = new ReplicaStatus { Route = Route, Replica = _journal.Store.Control.ReplicaId };
        if (detail)
            status.Detail = new ReplicaDetail { Incarnation = _context.Incarnation, Decisions = { _performer.Decisions.ToArray() } };
        if (!await VisitAsync(() => Describe(status)).ConfigureAwait(false))
        {
            status.Role = "failed";
            status.Failure = _failure?.Message ?? "stopped";
            return status;
        }
        if (digest)
            await AddDigestAsync(status, cancellationToken).ConfigureAwait(false);
        return status;
    }

    /// <summary>The replica's state for metrics.</summary>
    public async Task<ReplicaReading> ReadAsync()
    {
        ReplicaReading? reading = null;
        await VisitAsync(() => reading = Read()).ConfigureAwait(false);
        return reading ?? new ReplicaReading { Shard = Shard, Role = "failed" };
    }

    /// <summary>The newest generation, epoch and revision of the shard's record that this replica has seen. The epoch includes the promised one.</summary>
    public async Task<(ulong Generation, ulong Epoch, long Revision)> SeenAsync()
    {
        var (generation, epoch, revision) = (0UL, 0UL, 0L);
        // For a replica that has stopped, the control file has these values.
        await VisitAsync(() => (generation, epoch, revision) = (_performer.Record.Generation, Math.Max(_core.Epoch, _performer.Record.Epoch), _performer.RecordRevision)).ConfigureAwait(false);
        var held = _journal.Store.Control;
        return (Math.Max(generation, held.Generation), Math.Max(epoch, held.PromisedEpoch), Math.Max(revision, held.CoordinatorRevision));
    }

    /// <summary>Whether a restart would have to replay so much that a checkpoint before it is worthwhile. Any thread.</summary>
    public bool HasMuchToReplay => _journal.Store.Statistics.HasMuchToReplay;

    /// <summary>Writes a checkpoint and waits until it is durable.</summary>
    /// <returns>The etag that it covers, and the size of the data file in bytes.</returns>
    public async Task<(Etag Covered, long DataBytes)> CheckpointAsync()
    {
        Task<CheckpointPosition>? checkpoint = null;
        if (!await VisitAsync(() => checkpoint = _journal.Store.CheckpointAsync()).ConfigureAwait(false))
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
        var visited = await VisitAsync(() =>
        {
            if (leave is { } given && (_core.Epoch > given.Epoch || _context.Clock.GetTimestamp() > given.UsableUntil))
            {
                refusal = "the shard has a new leader, or the request took too long; try again";
                ended.TrySetResult(false);
                return;
            }
            Quarantine(why, ended);
        }).ConfigureAwait(false);
        if (visited)
            await ended.Task.ConfigureAwait(false);
        return new OrderResult(_failure is QuarantinedException, _failure?.Message ?? refusal);
    }

    /// <summary>Stops the replica; waiting callers are answered. The store is closed when this completes.</summary>
    public async ValueTask DisposeAsync()
    {
        _stopping = true;
        Schedule();
        await _stopped.Task.ConfigureAwait(false);
        await _timer.DisposeAsync().ConfigureAwait(false);
        // While stores are being switched it is not known which one is in use.
        if (_switched is not null)
            await _switched.Task.ConfigureAwait(false);
        await Task.WhenAll([.. _retired, _journal.Store.CloseAsync()]).ConfigureAwait(false);
    }

    void IWorkItem.Execute()
    {
        // A full fence: whoever queues something after this schedules again.
        Interlocked.Exchange(ref _scheduled, 0);
        try
        {
            if (_stopping)
                Stop();
            else if (_failure is null && !_quarantines)
                TakeTurn();
            RunVisits();
        }
        catch (Exception failure)
        {
            Fail(failure);
        }
    }

    void IStoreEvents.Durable(RecordRef record)
    {
        _durableRose = true;
        if (!_performer.Leading)
            _context.Telemetry.Durable(record.Etag);
        Schedule();
    }

    void IStoreEvents.ControlWritten(ControlState state) => _performer.ControlWritten(state);

    void IStoreEvents.CutDone(RecordRef last) => Enqueue(Event.CutDone.Instance);

    void IStoreEvents.WorkQueued() => Schedule();

    bool IStoreEvents.MayAnswerReads()
    {
        if (LeaseHolds() || _context.Rules.AnswersConditionsWithoutLease)
            return true;
        _failedConditionsWait = true;
        Schedule();
        return false;
    }

    void IStoreEvents.Failed(Exception first) => Fail(first);

    private static ValueTask<WriteResult> Refuse(WriteRequest request, WriteOutcome outcome)
    {
        request.Return();
        return ValueTask.FromResult(WriteResult.Of(outcome));
    }

    private Task<UInt128?> JoinAsync(WaitingReads reads, CancellationToken cancellationToken)
    {
        var answer = reads.Join();
        Schedule();
        return answer.WaitAsync(cancellationToken);
    }

    private bool LeaseHolds() => IsServing && NowUs() < _core.LeaseEndUs;

    private long NowUs() => _context.Clock.GetTimestamp() / _clockTicksPerMicrosecond;

    private void TakeTurn()
    {
        if (Interlocked.Exchange(ref _tickDue, 0) == 1)
        {
            _timerDueUs = long.MaxValue;
            if (NowUs() >= _core.NextTickUs)
                Step(Event.Tick.Instance);
        }
        var durableRose = _durableRose;
        if (durableRose)
        {
            _durableRose = false;
            Step(Event.Durable.Instance);
        }
        for (var left = EventsPerTurn; left > 0 && _mailbox.TryDequeue(out var happened); left--)
            Step(happened);
        AskForReads();
        AppendBatches();
        JudgeDisk(durableRose);
        // After the events, so that what arrived meanwhile is in the journal before a long backlog is applied.
        var appliesMore = _journal.Store.ApplyMore();
        _appliedWaits.Release(_journal.Store.Published);
        ArmTimer();
        if (appliesMore || !_mailbox.IsEmpty)
            Schedule();
    }

    private void Step(Event happened)
    {
        if (happened is Event.FrameReceived { Frame: var frame })
        {
            Interlocked.Add(ref _frameBytesWaiting, -FrameBytes.Of(frame));
            if (frame.PayloadCase == Frame.PayloadOneofCase.Append && !_journal.Store.CanAppendBodies)
                return;
            if (_context.Telemetry.IsWatching)
                Note(frame);
        }

        _atOnce.Enqueue(happened);
        while (_failure is null && _atOnce.TryDequeue(out var next))
        {
            _core.Step(next, NowUs());
            foreach (var effect in _core.Effects)
                _performer.Perform(effect);
        }
        // What the core calls committed is not applied before this point, and perhaps later.
        if (!_journal.Store.IsApplying)
            Volatile.Write(ref _currentUs, Math.Max(_currentUs, _core.CurrentUs));
    }

    private void Note(Frame frame)
    {
        if (frame.PayloadCase == Frame.PayloadOneofCase.Append && frame.Append.Traces.Count > 0)
            _context.Telemetry.Received(frame.Append);
        else if (frame.PayloadCase == Frame.PayloadOneofCase.Ack && _performer.Leading && _performer.NodeOf(frame.Sender) is not 0 and var node)
            _context.Telemetry.Acknowledged(node, frame.Ack.Durable.FromWire().Value);
    }

    private void AskForReads()
    {
        if (_failedConditionsWait)
        {
            _failedConditionsWait = false;
            _waitingReads.JoinConditions(_journal.Store.HeldReadAnswers);
        }
        if (_waitingReads.TryClose(out var readId))
            Step(new Event.ReadArrived(readId));
        if (_followerReads.TryClose(out readId))
            Step(new Event.FollowerReadArrived(readId));
    }

    private void JudgeDisk(bool durableRose)
    {
        var store = _journal.Store;
        // Records that wait for space on a full disk tell nothing of its speed.
        _diskPace.Observe(NowUs(), durableRose, waits: store.Durable.Etag < store.Last.Etag && !store.IsDiskFull);
        if (_core.Pace.JudgedUs != _paceJudgedUs)
        {
            _paceJudgedUs = _core.Pace.JudgedUs;
            _disk?.Judge(_core.Pace.IsSlow);
        }
        TellDisk();
    }

    private void TellDisk()
    {
        var state = _journal.Store.IsDiskFull ? DiskState.Full : _diskPace.IsSlow || _nodeDiskIsSlow ? DiskState.Slow : DiskState.Healthy;
        if (state == _diskTold)
            return;
        _diskTold = state;
        ShardLog.Disk(_context.Log, Shard, state.ToString().ToLowerInvariant());
        Step(new Event.DiskHealth(state != DiskState.Healthy));
    }

    // While another replica is asked to take over from a full disk, writes wait. Their callers are then redirected and not refused.
    private bool LeavesFullDisk()
    {
        if (!_journal.Store.IsDiskFull)
            return false;
        TellDisk();
        return _core.MayHandOver;
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

    // Due times are rounded up, so that the replicas of an idle node wake it rarely and together.
    private void ArmTimer()
    {
        var nowUs = NowUs();
        var dueUs = _core.NextTickUs <= nowUs ? _core.NextTickUs : RoundedUp(_core.NextTickUs, _core.NextTickUs - nowUs < FarUs ? TickGridUs : FarTickGridUs);
        if (dueUs >= _timerDueUs)
            return;
        _timerDueUs = dueUs;
        var waitUs = Math.Max(0, _timerDueUs - nowUs);
        _timer.Change(TimeSpan.FromMicroseconds(waitUs), Timeout.InfiniteTimeSpan);
    }

    private static long RoundedUp(long dueUs, long gridUs) => dueUs > long.MaxValue - gridUs ? long.MaxValue : (dueUs + gridUs - 1) / gridUs * gridUs;

    private void OnNodeDisk(bool isSlow)
    {
        _nodeDiskIsSlow = isSlow;
        Schedule();
    }

    private void OnTimer(object? state)
    {
        Volatile.Write(ref _tickDue, 1);
        Schedule();
    }

    private void Enqueue(Event happened)
    {
        _mailbox.Enqueue(happened);
        Schedule();
    }

    private void Schedule()
    {
        if (Interlocked.Exchange(ref _scheduled, 1) == 0)
            _context.Storage.Writer.Post(this);
    }

    private async Task<OrderResult> OrderAsync(Func<long, Event> order)
    {
        var ended = new TaskCompletionSource<OrderResult>(TaskCreationOptions.RunContinuationsAsynchronously);
        var asked = await VisitAsync(() =>
        {
            _performer.AwaitOrder(++_orderIdLast, ended);
            Enqueue(order(_orderIdLast));
        }).ConfigureAwait(false);
        return asked ? await ended.Task.ConfigureAwait(false) : new OrderResult(false, _failure?.Message ?? "the replica is stopping");
    }

    /// <summary>Runs an action between two events. False if the replica had failed or stopped before.</summary>
    private Task<bool> VisitAsync(Action action)
    {
        var done = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
        LeaveVisit(new Visit(action, done));
        return done.Task;
    }

    private void LeaveVisit(Visit visit)
    {
        _visits.Enqueue(visit);
        Schedule();
    }

    private void RunVisits()
    {
        while (_visits.TryDequeue(out var visit))
        {
            var works = _failure is null && !_stopping;
            try
            {
                if (works)
                    visit.Action();
            }
            catch
            {
                // The exception ends the replica. Whoever waits for the visit must not wait for ever.
                visit.Done?.TrySetResult(false);
                throw;
            }
            visit.Done?.TrySetResult(works);
        }
    }

    private void Describe(ReplicaStatus status)
    {
        var store = _journal.Store;
        status.Role = _core.Role.ToString().ToLowerInvariant();
        status.Epoch = _core.Epoch;
        status.Last = ToMessage(store.Last.Etag);
        status.Durable = ToMessage(store.Durable.Etag);
        status.Committed = ToMessage(_core.Committed.Value);
        status.Applied = ToMessage(store.Published);
        status.Keys = store.Statistics.Keys;
        status.DataBytes = (ulong)store.Statistics.DataBytes;
        status.JournalBytes = (ulong)store.Statistics.JournalBytes;
        if (status.Detail is { } detail)
            Describe(detail, NowUs());
    }

    private void Describe(ReplicaDetail detail, long nowUs)
    {
        detail.Record = _performer.Record;
        detail.Rests = _core.IsQuiescent;
        detail.LeaseLeftUs = Math.Max(0, _core.LeaseEndUs - nowUs);
        detail.ScrubbedPages = (ulong)_journal.Store.Statistics.ScrubbedPages;
        detail.ScrubPasses = (ulong)_journal.Store.Statistics.ScrubPasses;
        detail.GrantLeftUs = Math.Max(0, _core.GrantEndUs - nowUs);
        if (DigestsCompared is { } compared)
            detail.Compared = new ComparedDigests { Etag = ToMessage(compared.Etag.Value), Replicas = (uint)compared.Replicas, AgoUs = nowUs - compared.AtUs };
        foreach (var follower in _core.Followers)
        {
            detail.Followers.Add(new FollowerStatus
            {
                Replica = follower.Replica,
                Node = _performer.NodeOf(follower.Replica),
                State = follower.State.ToString().ToLowerInvariant(),
                Acknowledged = ToMessage(follower.Acked.Value),
                Sent = ToMessage(follower.Sent.Etag.Value),
                OutstandingBytes = (ulong)follower.OutstandingBytes,
                GrantLeftUs = Math.Max(0, follower.GrantEndUs - nowUs),
                SilentUs = nowUs - follower.HeardUs,
                SnapshotBytes = (ulong)follower.SnapshotBytes,
                SnapshotStored = (ulong)follower.SnapshotStored,
                SnapshotVerified = (ulong)follower.SnapshotVerified,
                DiskImpaired = follower.DiskImpaired,
            });
        }
    }

    private ReplicaReading Read()
    {
        var store = _journal.Store;
        var statistics = store.Statistics;
        var role = _core.Role;
        // A quiescent leader has no lease between its heartbeats, and some of these may be lost.
        var isFollowed = role == ReplicaRole.Leader && (LeaseHolds() || (_core.IsQuiescent && AgeUs <= QuiescentRoundsUnansweredMax * (ulong)_context.Replication.QuiescentIntervalUs));
        return new ReplicaReading
        {
            Shard = Shard,
            Role = role.ToString().ToLowerInvariant(),
            Epoch = _core.Epoch,
            IsFollowed = isFollowed,
            IsLeaderless = !isFollowed && (role == ReplicaRole.Leader || !_core.HasLeader(NowUs())),
            Change = (ulong)store.Published,
            HasLease = LeaseHolds(),
            Disk = _diskTold.ToString().ToLowerInvariant(),
            Keys = (long)statistics.Keys,
            DataBytes = statistics.DataBytes,
            JournalBytes = statistics.JournalBytes,
            ChangedBytes = statistics.ScratchBytes,
            Readers = statistics.Readers,
            SnapshotAge = statistics.OldestSnapshotAge(),
            PinnedBytes = statistics.PinnedBytes,
            Followers = [.. _core.Followers.Select(follower => new FollowerReading(
                _performer.NodeOf(follower.Replica),
                statistics.JournalBytesBehind(follower.Acked.Value),
                (long)(store.Last.Change - Math.Min(store.Last.Change, follower.Acked.Change))))],
        };
    }

    private async Task AddDigestAsync(ReplicaStatus status, CancellationToken cancellationToken)
    {
        using var snapshot = OpenSnapshot();
        var digest = await TreeDigest.OfAsync(snapshot, _context.Clock, cancellationToken).ConfigureAwait(false);
        // Too much was written meanwhile; there is no digest this time.
        if (digest is null)
            return;
        status.Digest = Google.Protobuf.ByteString.CopyFrom(digest);
        status.DigestEtag = ToMessage(snapshot.Etag);
    }

    private static V1.Etag ToMessage(UInt128 etag) => new() { Epoch = (ulong)(etag >> 64), Change = (ulong)etag };

    /// <summary>
    /// Stops the store for a received state, unless it still writes its control file. Until the new store is in use, the old one only serves reads.
    /// </summary>
    private bool TryStopStore(Action quiet)
    {
        if (_performer.ControlWritesUnderWay > 0)
            return false;
        _switched = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        _journal.Store.Stop(quiet);
        return true;
    }

    private void UseStore(ReplicaStore? store)
    {
        if (store is not null)
        {
            var old = _journal.Store;
            _journal.Store = store;
            store.Start(this);
            store.TakeOver(old);
            // Readers of the old state may continue for a while.
            _retired.RemoveAll(static closed => closed.IsCompletedSuccessfully);
            _retired.Add(old.CloseAsync());
        }
        else
        {
            _journal.Store.EndRequests();
        }
        _switched!.SetResult();
    }

    /// <summary>Marks the directory on the checkpoint thread, because the sync may take long, and then fails the replica.</summary>
    private void Quarantine(string why, TaskCompletionSource<bool>? ended)
    {
        _quarantines = true;
        var (storage, directory) = (_context.Storage, _journal.Store.Directory);
        storage.Checkpoints.Post(new WorkAction(() =>
        {
            Exception outcome = new QuarantinedException(why);
            try
            {
                QuarantineMark.Write(storage.Files, directory, why);
            }
            catch (StorageIoException full) when (full.IsDiskFull)
            {
                // On a full disk the replica fails without its mark: it must not run with wrong contents until there is space.
                outcome = new QuarantinedException($"{why}; this could not be recorded, so the replica may run again after a restart: {full.Message}");
            }
            catch (Exception failure)
            {
                outcome = failure;
            }
            LeaveVisit(new Visit(() => Fail(outcome), ended));
        }));
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
        _context.Metrics.ReplicaFailed();
        _context.Metrics.Alarmed();
        if (failure is QuarantinedException)
            _context.Metrics.Quarantined();
        _performer.Keep($"stopped: {failure.Message}", alarm: true);
        ShardLog.Stopped(_context.Log, Shard, failure);
        End();
        _context.Failed(failure);
        Schedule();
    }

    private void Stop()
    {
        if (_stopped.Task.IsCompleted)
            return;
        if (_failure is null)
            End();
        _stopped.SetResult();
    }

    private void End()
    {
        _performer.End();
        _disk?.Dispose();
        _context.Telemetry.Ended();
        _appliedWaits.RefuseAll();
    }

    private readonly record struct Visit(Action Action, TaskCompletionSource<bool>? Done);
}
