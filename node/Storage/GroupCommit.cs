using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Transactions;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage;

/// <summary>
/// Callers' writes, from their submission to their answers. While this replica leads, the requests that wait together become one merged transaction: one
/// record and one unpublished state, which is answered when it is committed. While it does not lead, requests are refused. Owned by a store; writer
/// executor, unless a member says otherwise.
/// </summary>
internal sealed class GroupCommit
{
    private readonly StoreContext _context;
    private readonly StoreLifecycle _life;
    private readonly PageStore _pages;
    private readonly RecordLog _log;
    private readonly CheckpointSchedule _checkpoints;
    private readonly SpaceWatch _space;
    private readonly ShardClock _shardClock;
    private readonly Action<Exception> _fail;
    private readonly RequestQueue _queue;
    private readonly AnswerChain _chain;
    private readonly PendingAnswers _answers;
    private readonly MergedTransaction _transaction;
    private readonly HoldBack _holdBack;
    private IStoreEvents? _events;

    /// <summary>The epoch that this replica leads; null while it follows.</summary>
    private ulong? _epoch;

    /// <summary>Refuses requests until <see cref="Lead"/>.</summary>
    /// <param name="context">The shard's executors, clock and bounds.</param>
    /// <param name="life">Requests are refused when the store has ended.</param>
    /// <param name="pages">The trees.</param>
    /// <param name="log">Gets the records.</param>
    /// <param name="checkpoints">May be so far behind that batches are held back.</param>
    /// <param name="space">Bounds the records on a full disk.</param>
    /// <param name="shardClock">Gives records their time.</param>
    /// <param name="fail">Called with a failure.</param>
    public GroupCommit(
        StoreContext context, StoreLifecycle life, PageStore pages, RecordLog log, CheckpointSchedule checkpoints, SpaceWatch space, ShardClock shardClock, Action<Exception> fail)
    {
        (_context, _life, _pages, _log, _checkpoints, _space, _shardClock, _fail) = (context, life, pages, log, checkpoints, space, shardClock, fail);
        _chain = new AnswerChain(context.Completions);
        _answers = new PendingAnswers(_chain);
        _queue = new RequestQueue(context.Options.QueueCountMax, context.Options.QueueBytesMax, context.Writer, new WorkAction(OnQueueNotice));
        _transaction = new MergedTransaction(_queue, _chain, _answers, context.Time, context.Options);
        _holdBack = new HoldBack(context, TellWork);
    }

    /// <summary>Whether this replica leads.</summary>
    public bool IsLeading => _epoch is not null;

    /// <summary>Whether no request waits. Any thread.</summary>
    public bool QueueIsEmpty => _queue.IsEmpty;

    /// <summary>
    /// Whether the leader may append another batch. False while as many records as the journal has lanes are neither durable here nor committed; further
    /// requests gather for the next batch meanwhile. A record that a majority without this replica has does not count, so a slow local disk delays
    /// nothing until the records waiting for it exceed the memory bound. When checkpoints fall behind, each batch is also followed by a pause that grows
    /// with the lag, so that writers slow down gradually and are not stopped.
    /// </summary>
    public bool CanAppend =>
        IsLeading && !_life.HasEnded && !_holdBack.IsActive && _log.UnsettledCount < _context.JournalLanes.Count && _log.HasRoom;

    /// <summary>How many read answers have been held so far, including those released since.</summary>
    public long HeldReadAnswers => _answers.HeldCount;

    /// <summary>Sets the owner, once.</summary>
    public void Start(IStoreEvents events) => _events = events;

    /// <summary>
    /// Queues a request. Returns false at once when the queue is full; the request then still belongs to the caller. A store that does not lead or has
    /// stopped answers with that outcome. Any thread.
    /// </summary>
    public bool TrySubmit(WriteRequest request)
    {
        request.Complete();
        if (!_queue.TryAdd(request))
            return false;
        // After the end nobody runs the notice.
        if (_life.IsStopped)
            Refuse(WriteOutcome.Stopped, new AnswerChain(_context.Completions));
        return true;
    }

    /// <summary>Begins to lead an epoch. The newest state of the trees has all records of the journal.</summary>
    public void Lead(ulong epoch) => _epoch = epoch;

    /// <summary>Appends the epoch's first record.</summary>
    public RecordRef AppendEpochOpen(DateTimeOffset wallTime)
    {
        Invariant.Check(_log.Last.Epoch < _epoch, $"Epoch {_epoch} is already open, or this replica does not lead.");
        _shardClock.Open(wallTime);
        _log.TryFind(_pages.PublishedEtag, out var published);
        return Append(_pages.Begin(), _context.Rules.PrecedesEpoch(_log.Last, published), RecordFlags.EpochOpen, 0, [], merged: null);
    }

    /// <summary>
    /// Drains the queue into one merged transaction, applies it as an unpublished state and passes its record to the journal. False when there is no
    /// record: nothing was queued, all requests failed, or the engine has stopped.
    /// </summary>
    public bool TryAppendBatch(DateTimeOffset wallTime, out RecordRef record)
    {
        record = default;
        if (!CanAppend || _queue.IsEmpty)
            return false;
        try
        {
            record = MergeQueued(wallTime);
        }
        catch (Exception exception)
        {
            _fail(exception);
            return false;
        }
        Answer();
        _holdBack.Begin(_checkpoints.Behind);
        if (!_queue.IsEmpty && CanAppend)
            _queue.Notify();
        return record.BodyBytes > 0;
    }

    /// <summary>Answers what the published state allows, if there is an owner to ask.</summary>
    public void Answer()
    {
        if (_events is { } owner)
            _answers.Publish(_pages.PublishedEtag, owner);
    }

    /// <summary>Releases held read answers after the owner's leadership was confirmed.</summary>
    /// <param name="heldReadAnswers">
    /// The value of <see cref="HeldReadAnswers"/> when the confirmation was requested. Answers held after that wait for another one.
    /// </param>
    public void ReleaseReadAnswers(long heldReadAnswers) => _answers.ReleaseReads(heldReadAnswers);

    /// <summary>Tells the owner of requests that wait, if a batch may be appended.</summary>
    public void TellWork()
    {
        if (CanAppend && !_queue.IsEmpty)
            _events!.WorkQueued();
    }

    /// <summary>Drops the unpublished states, whose records stay in the journal, and answers everyone.</summary>
    public void StopLeading()
    {
        _epoch = null;
        _log.Disown();
        _pages.DropUnpublished();
        _shardClock.Reset(_pages);
        _answers.End(WriteOutcome.OutcomeUnknown, WriteOutcome.NotLeader);
        Refuse(WriteOutcome.NotLeader);
    }

    /// <summary>Answers everyone at the end of the store.</summary>
    /// <param name="reads">The outcome of requests that changed nothing.</param>
    public void End(WriteOutcome reads)
    {
        _epoch = null;
        _holdBack.Dispose();
        _answers.End(WriteOutcome.OutcomeUnknown, reads);
        Refuse(WriteOutcome.Stopped);
    }

    /// <summary>Answers all queued requests with this outcome.</summary>
    public void Refuse(WriteOutcome outcome) => Refuse(outcome, _chain);

    private void Refuse(WriteOutcome outcome, AnswerChain chain)
    {
        while (_queue.TryTake(out var request))
            chain.Add(request, WriteResult.Of(outcome));
        chain.Flush();
    }

    private void OnQueueNotice()
    {
        _queue.AcknowledgeNotice();
        if (_life.HasEnded)
            Refuse(WriteOutcome.Stopped);
        else if (!IsLeading)
            Refuse(WriteOutcome.NotLeader);
        else if (_space.IsStalled)
            Refuse(WriteOutcome.DiskFull);
        else
            _events!.WorkQueued();
    }

    /// <summary>A record without a body if there is nothing to record.</summary>
    private RecordRef MergeQueued(DateTimeOffset wallTime)
    {
        var (last, epoch) = (_log.Last, _epoch!.Value);
        Invariant.Check(last.Epoch == epoch, $"Epoch {epoch} is not open.");
        var batch = _pages.Begin();
        var bytesMax = _log.UnsettledCount == 0 ? _context.Options.BatchBytes : _context.Options.BatchBytesUnderLoad;
        _shardClock.Step(wallTime);
        _transaction.Collect(batch, last.Etag, new UInt128(epoch, last.Change + 1), _shardClock.Microseconds, bytesMax, _space.BytesLeft(_log.BytesInFlight));
        if (_transaction.OperationCount > 0)
            return Append(batch, last, RecordFlags.None, _transaction.OperationCount, _transaction.Payload, _transaction);
        if (_transaction.Payload.Length > 0)
            return Append(batch, last, RecordFlags.ResultOnly, 0, _transaction.Payload, _transaction);
        _pages.Abort(batch);
        return default;
    }

    /// <summary>Seals a batch and passes its record to the journal.</summary>
    private RecordRef Append(WriteBatch batch, in RecordRef previous, RecordFlags flags, int operationCount, ReadOnlySpan<byte> payload, MergedTransaction? merged)
    {
        var body = RecordBody.Encode(previous, flags, _epoch!.Value, operationCount, _shardClock.Microseconds, payload);
        RecordApplier.SetShardTime(batch, _shardClock.Microseconds);
        _ = RecordBody.TryReadHeader(body, out var record);
        _pages.Seal(batch, record.Etag);
        // Before a journal lane can complete the record.
        if (merged is not null && _context.Observer.IsWatching)
            _context.Observer.Appended(record, operationCount, merged.Waited, merged.Traces);
        _log.Append(record, body, isOwn: true);
        return record;
    }
}
