using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage;

/// <summary>
/// The writes of a leader. The requests that wait together become one merged transaction: one record and one unpublished state, which is published and
/// answered when it is committed. Owned by a store; writer executor.
/// </summary>
internal sealed class GroupCommit
{
    /// <summary>
    /// So many requests, or bytes of them, are worth a record of their own at any time. A record costs three nodes as much as seven small requests.
    /// </summary>
    private const int GatheredCount = 32;
    private const int GatheredBytes = 32 << 10;

    private readonly StoreContext _context;
    private readonly StoreLifecycle _life;
    private readonly PageStore _pages;
    private readonly PublishedRoots _roots;
    private readonly RecordLog _log;
    private readonly DurableRecords _durable;
    private readonly CommittedRecords _committed;
    private readonly RequestAdmission _requests;
    private readonly CheckpointSchedule _checkpoints;
    private readonly StoreMemory _memory;
    private readonly FullDiskWatch _space;
    private readonly ShardClock _shardClock;
    private readonly PendingAnswers _answers;
    private readonly RecordDraft _draft = new();
    private readonly MergedTransaction _transaction;
    private readonly LifeEnds _lives;
    private IStoreEvents? _events;

    /// <summary>Appends nothing until <see cref="Lead"/>.</summary>
    /// <param name="context">The shard's executors, clock and bounds.</param>
    /// <param name="life">Nothing is appended when the store has ended.</param>
    /// <param name="pages">The trees.</param>
    /// <param name="log">Gets the records.</param>
    /// <param name="durable">Bounds the records that wait for the disk.</param>
    /// <param name="committed">Applies what a follower has left.</param>
    /// <param name="requests">Provides the queue.</param>
    /// <param name="checkpoints">May be so far behind that batches are held back.</param>
    /// <param name="memory">Says how much a batch may take, and how long to wait after it.</param>
    /// <param name="space">Bounds the records on a full disk.</param>
    /// <param name="shardClock">Gives records their time.</param>
    public GroupCommit(
        StoreContext context, StoreLifecycle life, PageStore pages, RecordLog log, DurableRecords durable, CommittedRecords committed,
        RequestAdmission requests, CheckpointSchedule checkpoints, StoreMemory memory, FullDiskWatch space, ShardClock shardClock)
    {
        (_context, _life, _pages, _roots, _log, _durable) = (context, life, pages, pages.Roots, log, durable);
        (_committed, _requests, _checkpoints, _memory, _space, _shardClock) = (committed, requests, checkpoints, memory, space, shardClock);
        _answers = new PendingAnswers(requests.Answers);
        _lives = new LifeEnds(context, shardClock, requests.Prefetch, OnLifeDue);
        var ahead = new ReadAhead(requests.Prefetch, context.Writer, OnRequestRead);
        _transaction = new MergedTransaction(requests.Queue, requests.Answers, _answers, _lives, ahead, _draft.Operations, context.Time, context.Options);
    }

    /// <summary>Whether this replica leads.</summary>
    public bool IsLeading => _log.OwnEpoch is not null;

    /// <summary>
    /// Whether the leader may append another batch. False while as many records as the journal has lanes are neither durable here nor committed; further
    /// requests gather for the next batch meanwhile. A committed record no longer counts, even if this replica's disk has not written it yet, so a slow disk
    /// delays nothing until the records waiting for it exceed their bound, which shrinks while memory is short. When checkpoints fall behind, or the node's
    /// memory nears its budget, each batch is also followed by a pause that grows with the lag, so that writers slow down gradually and are not stopped.
    /// False also while requests gather behind a record: its commit, after which the owner asks again, ends that.
    /// </summary>
    public bool CanAppend =>
        IsLeading && !_life.HasEnded && !_memory.IsHeldBack
            && _durable.UnsettledCount < _context.JournalLanes.Count && _durable.BytesInFlight < _memory.BodyBytesWaitingMax && !IsGathering;

    /// <summary>The countdowns of sessions with a lifetime; null if this replica does not lead. Any thread.</summary>
    public SessionLifetimes? Lifetimes => _lives.Lifetimes;

    // A record with a wall time of its own is followed by no other, so that a node that has not heard of the raised level continues with both times.
    private bool HasShardTimes => _context.Options.HasShardTimes || _roots.Newest.WallTime != 0;

    // Few requests wait for the record before them to be committed while other shards wait for the writer. Those requests are answered no later: each record
    // that is saved is time for the others, of which this one has its share.
    private bool IsGathering =>
        _roots.NewestEtag != _roots.PublishedEtag && _requests.Queue.Count < GatheredCount && _requests.Queue.Bytes < GatheredBytes && _context.Writer.IsBehind;

    // Whether this replica leads and the first record of its epoch is committed.
    private bool IsOpen => _roots.PublishedEtag.Epoch == _log.OwnEpoch;

    /// <summary>
    /// Whether there is something to record: requests, or the end of keys and sessions. A leader ends nothing before its first record is committed: what is cut
    /// off before can end nothing.
    /// </summary>
    public bool HasWork => !_requests.Queue.IsEmpty || (IsOpen && _lives.IsDue());

    /// <summary>The shard time, in microseconds, that a record would have now. Only while this replica leads and its first record is appended.</summary>
    public long ShardTime => _shardClock.Now;

    /// <summary>How many read answers have been held so far, including those released since.</summary>
    public long HeldReadAnswers => _answers.HeldCount;

    /// <summary>Sets the owner, once.</summary>
    public void Start(IStoreEvents events) => _events = events;

    /// <summary>
    /// Changes from following to leading an epoch. The prepared tail is applied as one unpublished state, because a leader evaluates conditions on its
    /// whole journal. From here on a commit names a record of this epoch and covers all records before it.
    /// </summary>
    public void Lead(ulong epoch) => _life.Guard(() =>
    {
        Invariant.Check(!IsLeading && _roots.NewestEtag == _roots.PublishedEtag, $"Lead({epoch}) was called while leading or with unpublished state.");
        Invariant.Check(epoch > _log.Last.Epoch, $"Epoch {epoch} is not higher than that of the last record {_log.Last}.");
        var scratchBefore = _pages.ScratchBytes;
        _committed.ApplyAll();
        _committed.ApplyPrepared();
        _log.Own(epoch);
        _memory.StepEnded(scratchBefore, behind: 0);
    });

    /// <summary>Appends the epoch's first record, which has no operations and takes one change. The result has no body if the engine has stopped.</summary>
    /// <param name="wallTime">The wall clock.</param>
    /// <param name="heard">The shard time that this replica last heard in the epoch of its last record. By default it has heard none.</param>
    public RecordRef AppendEpochOpen(DateTimeOffset wallTime, HeardTime heard = default)
    {
        var record = default(RecordRef);
        _life.Guard(() =>
        {
            Invariant.Check(_log.Last.Epoch < _log.OwnEpoch, $"Epoch {_log.OwnEpoch} is already open, or this replica does not lead.");
            _shardClock.Open(wallTime, heard);
            var batch = _pages.Begin();
            _lives.Begin(batch, _log.OwnEpoch!.Value);
            _transaction.BeginLeadership();
            _draft.Begin(0);
            // Its change number continues that of the journal's last record, committed or not.
            record = Append(batch, _log.Last, RecordFlags.EpochOpen, 0, merged: null);
        });
        return record;
    }

    /// <summary>
    /// Drains the queue into one merged transaction, with ends that are due, applies it as an unpublished state and passes its record to the journal. False
    /// when there is no record to send: nothing was queued, all requests failed, or the engine has stopped. True: the caller calls again, because requests may
    /// be left.
    /// </summary>
    public bool TryAppendBatch(DateTimeOffset wallTime, out RecordRef record)
    {
        record = default;
        if (!CanAppend || !HasWork || !_memory.TryBegin())
            return false;
        var scratchBefore = _pages.ScratchBytes;
        try
        {
            record = MergeQueued(wallTime);
            _space.Observe();
        }
        catch (Exception exception)
        {
            _life.Fail(exception);
            return false;
        }
        finally
        {
            _draft.End();
        }
        Answer();
        _lives.Arm();
        _memory.StepEnded(scratchBefore, _checkpoints.JournalBehind);
        if (record.BodyBytes > 0)
            return true;
        // Requests are left if the step took too long, and nobody calls again.
        if (!_requests.Queue.IsEmpty && CanAppend)
            _requests.Queue.Notify();
        return false;
    }

    /// <summary>Everything up to an etag is committed. Publishes the states up to it and answers their callers in etag order.</summary>
    public void Commit(Etag etag) => _life.Guard(() =>
    {
        var wasOpen = IsOpen;
        _roots.Publish(etag);
        _lives.Committed(etag);
        _durable.Settle(etag);
        Answer();
        _checkpoints.StartIfDue();
        if (!wasOpen)
            OnLifeDue();
    });

    /// <summary>Releases held read answers after the owner's leadership was confirmed.</summary>
    /// <param name="heldReadAnswers">
    /// The value of <see cref="HeldReadAnswers"/> when the confirmation was requested. Answers held after that wait for another one.
    /// </param>
    public void ReleaseReadAnswers(long heldReadAnswers) => _answers.ReleaseReads(heldReadAnswers);

    /// <summary>Tells the owner of requests that wait, if a batch may be appended.</summary>
    public void TellWork()
    {
        if (CanAppend && HasWork)
            _events!.WorkQueued();
    }

    /// <summary>
    /// Changes from leading to following. Unpublished states are dropped and their records become prepared. Requests already appended are answered
    /// <see cref="WriteOutcome.OutcomeUnknown"/>, queued ones and reads <see cref="WriteOutcome.NotLeader"/>.
    /// </summary>
    public void StopLeading() => _life.Guard(() =>
    {
        if (!IsLeading)
            return;
        _log.Disown();
        _lives.Stop();
        _roots.DropUnpublished();
        _shardClock.Reset(_pages);
        _answers.End(WriteOutcome.OutcomeUnknown, WriteOutcome.NotLeader);
        _requests.Refuse(WriteOutcome.NotLeader);
    });

    /// <summary>Answers everyone at the end of the store.</summary>
    /// <param name="reads">The outcome of requests that changed nothing.</param>
    public void End(WriteOutcome reads)
    {
        _log.Disown();
        _lives.Stop();
        _lives.Dispose();
        _answers.End(WriteOutcome.OutcomeUnknown, reads);
        _requests.Refuse(WriteOutcome.Stopped);
    }

    /// <summary>Answers what the published state allows, if there is an owner to ask.</summary>
    private void Answer()
    {
        if (_events is { } owner)
            _answers.Publish(_roots.PublishedEtag, owner);
    }

    /// <summary>The pages of the request that was put off are in memory.</summary>
    private void OnRequestRead()
    {
        _requests.Queue.Release();
        _requests.Queue.Notify();
    }

    /// <summary>Something may be due: countdowns begin, or a timer has fired. It fires again if nothing could be done.</summary>
    private void OnLifeDue() => _life.Guard(() =>
    {
        if (!IsOpen)
            return;
        if (CanAppend && _lives.IsDue())
            _events!.WorkQueued();
        _lives.Arm();
    });

    /// <summary>A record without a body if there is nothing to record.</summary>
    private RecordRef MergeQueued(DateTimeOffset wallTime)
    {
        var (last, epoch) = (_log.Last, _log.OwnEpoch!.Value);
        Invariant.Check(last.Epoch == epoch, $"Epoch {epoch} is not open.");
        var batch = _pages.Begin();
        var bytesMax = _durable.UnsettledCount == 0 ? _context.Options.BatchBytes : _context.Options.BatchBytesUnderLoad;
        _shardClock.Step(wallTime);
        var recordBytesLeft = _space.BytesLeft(_durable.BytesInFlight);
        var pagesMax = Math.Min(_memory.PagesMax(), _space.PagesLeft);
        // Much may wait while a batch may have little, because memory or space is short.
        _draft.Begin((int)Math.Min(_requests.Queue.BytesOfBatch(bytesMax), (long)pagesMax * Page.Bytes));
        _transaction.Collect(
            batch, last.Etag, new Etag(epoch, last.Change + 1), _shardClock.Microseconds, bytesMax, pagesMax, recordBytesLeft);
        if (_transaction.OperationCount > 0)
            return Append(batch, last, RecordFlags.None, _transaction.OperationCount, _transaction);
        if (_draft.Operations.Count > 0)
            return Append(batch, last, RecordFlags.ResultOnly, 0, _transaction);
        if (recordBytesLeft is null && IsOpen && _lives.IsTimeDue)
            return Append(batch, last, RecordFlags.Control, 0, merged: null);
        _roots.Abort(batch);
        return default;
    }

    /// <summary>
    /// Passes a batch's record to the journal, applies what the transaction has left while the disk writes it, and seals the batch. Nothing that the journal's
    /// threads complete is handled before, because that needs this executor.
    /// </summary>
    private RecordRef Append(WriteBatch batch, in RecordRef previous, RecordFlags flags, int operationCount, MergedTransaction? merged)
    {
        var (epoch, shardTime) = (_log.OwnEpoch!.Value, _shardClock.Microseconds);
        var wallTime = HasShardTimes ? _shardClock.WallMicroseconds : shardTime;
        flags |= HasShardTimes ? RecordFlags.ShardTime : RecordFlags.None;
        var body = _draft.Seal(previous, flags, epoch, operationCount, wallTime, shardTime, _context.Options.CompressRecords);
        var record = body.Record;
        // The observer is told before a journal lane can complete the record.
        if (merged is not null && _context.Observer.IsWatching)
            _context.Observer.Appended(record, operationCount, merged.Waited, merged.Traces);
        _log.Append(body);
        merged?.ApplyLeft(batch);
        _lives.Saw(batch);
        batch.ShardTime = shardTime;
        if (HasShardTimes)
            batch.WallTime = wallTime;
        _roots.Seal(batch, record.Etag);
        return record;
    }
}
