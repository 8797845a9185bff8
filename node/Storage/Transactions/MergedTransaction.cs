using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// Merges queued requests into one transaction. Each request's conditions are evaluated on the newest state, which includes the requests before it in the
/// same transaction. A request that fails does not affect the others. An identified request that already has a result is answered with that result; a
/// different request under the same sequence is refused. The last puts whose answers do not depend on the state are left for <see cref="ApplyLeft"/>, which is
/// called when the record is on its way to the disk. Writer executor.
/// </summary>
internal sealed class MergedTransaction(
    RequestQueue queue,
    AnswerChain chain, PendingAnswers answers, LifeEnds lives, ReadAhead ahead, ByteBuffer payload, TimeProvider time, StoreOptions options)
{
    /// <summary>Requests between two checks of the clock, whose cost is negligible beside so many.</summary>
    private const int LookEvery = 16;

    /// <summary>Puts that may be left to apply: about as many as the writer applies in the time of a fast disk's write.</summary>
    private const int LeftMax = 256;

    /// <summary>Pages that a put may make beside those of its value: a leaf, what a split of it makes, and a branch.</summary>
    private const int PagesPerPut = 4;

    /// <summary>Trees that a put changes where keys have lives: those of the keys, the expiries and the owned ones.</summary>
    private const int TreesWithLives = 3;

    /// <summary>Bytes for ending the session that makes room for another.</summary>
    private const int RoomBytesMax = 1 + Operations.SessionBytes;

    /// <summary>Sessions of which it is remembered when they were looked at.</summary>
    private const int SweptOwnersMax = 256;

    /// <summary>The operations of the record, and the requests' results. Empty before <see cref="Collect"/>.</summary>
    private readonly ByteBuffer _payload = payload;
    private readonly byte[] _rangeEnd = new byte[KvLimits.KeyBytesMax];
    private readonly OperationResults _operationResults = new();
    private readonly TransactionResults _results = new();
    private readonly IdleSessions _idleSessions = new(options);
    private Etag _etagLast;
    private Etag _etagFirst;
    private Etag _next;
    private long _shardTime;
    private int _operationCount;

    /// <summary>
    /// The puts that the batch does not have yet: where they are in the payload, the etag of the first one, and the most pages that they can make.
    /// </summary>
    private Range _left;
    private int _leftCount;
    private Etag _leftNext;
    private int _leftPagesMax;

    /// <summary>Whether the transaction deletes or reads ranges or sets, each of which may take as long as a full batch.</summary>
    private bool _hasRange;
    private readonly List<object> _traces = [];

    /// <summary>Requests that may have deleted ranges, and how many there were when stale entries of a session were looked for.</summary>
    private long _rangesDeleted;
    private readonly Dictionary<Etag, long> _sweptOwners = [];

    /// <summary>Operations collected that take a change.</summary>
    public int OperationCount => _operationCount;

    /// <summary>The trace objects of the requests collected, of those that have one.</summary>
    public IReadOnlyList<object> Traces => _traces;

    /// <summary>How long the first of the collected requests had waited; zero if unknown.</summary>
    public TimeSpan Waited { get; private set; }

    /// <summary>
    /// Applies queued requests to a batch until the queue is empty, the payload has <paramref name="bytesMax"/> bytes, enough pages are made, or the step takes
    /// too long. At least one request is applied if any waits, even if ending idle sessions has used the whole step. Nothing is appended to the payload when
    /// there is nothing to record.
    /// </summary>
    /// <param name="batch">A batch on the newest root.</param>
    /// <param name="etagLast">The newest etag before the transaction.</param>
    /// <param name="etagFirst">The etag of the first operation.</param>
    /// <param name="shardTime">The shard time that the record will have.</param>
    /// <param name="bytesMax">Size of the payload at which the transaction is closed.</param>
    /// <param name="pagesMax">Pages made at which the transaction is closed, because memory is short.</param>
    /// <param name="recordBytesLeft">
    /// Not null on a full disk: puts are refused then, and so is any other change with which the record would exceed this size.
    /// </param>
    public void Collect(WriteBatch batch, Etag etagLast, Etag etagFirst, long shardTime, int bytesMax, int pagesMax, long? recordBytesLeft)
    {
        _results.Clear();
        _traces.Clear();
        Waited = TimeSpan.Zero;
        (_operationCount, _hasRange, _leftCount, _leftPagesMax) = (0, false, 0, 0);
        (_etagLast, _etagFirst, _next, _shardTime) = (etagLast, etagFirst, etagFirst, shardTime);
        var step = new StepBound(time, options);
        EndIdleSessions(batch, pagesMax);
        EndLives(batch, bytesMax, pagesMax, recordBytesLeft, step);
        var now = time.GetTimestamp();
        for (var taken = 0; (taken == 0 || HasRoom(batch, bytesMax, pagesMax)) && !TookTooLong(++taken, now, step) && queue.TryTake(out var request);)
        {
            if (!MayBegin(batch, request))
            {
                queue.Hold(request);
                break;
            }
            if (request.ArrivedTimestamp != 0)
                Note(request, now);
            if (request.DeadlineTimestamp != 0 && request.DeadlineTimestamp < now)
                chain.Add(request, WriteResult.Of(WriteOutcome.DeadlinePassed));
            else if (recordBytesLeft is { } left && (request.HasPut || (request.MayBeRecorded && RecordBytesWith(batch, request) > left)))
                chain.Add(request, WriteResult.Of(request.OutcomeOnFullDisk));
            else if (request.OpensSession && !TryMakeRoom(batch, request))
                chain.Add(request, WriteResult.Of(WriteOutcome.SessionsFull));
            else
                Apply(batch, request);
        }
        if (lives.HasExpiry(_shardTime) && HasRoom(batch, bytesMax, pagesMax) && !step.HasReadEnough)
            ExpireBehind(batch, bytesMax, pagesMax, recordBytesLeft, step);
        if (LifeEnds.HasStaleExpiries(batch) && HasRoom(batch, bytesMax, pagesMax) && !step.HasReadEnough)
            SweepBehind(batch, bytesMax, pagesMax, recordBytesLeft, step);
        AppendResults(batch);
        // Answers of the record before may be waiting there.
        chain.Flush(mayWait: true);
    }

    /// <summary>
    /// Applies what <see cref="Collect"/> has left. Called when the record was passed to the journal, so that the disk writes it meanwhile, and by this class
    /// before anything reads or changes what these puts change.
    /// </summary>
    public void ApplyLeft(WriteBatch batch)
    {
        if (_leftCount == 0)
            return;
        var (next, count) = (_leftNext, 0);
        RecordApplier.ApplyOperations(batch, _payload.Written[_left], _etagFirst, _shardTime, ref next, ref count);
        Invariant.Check(count == _leftCount, $"{_leftCount} puts were left to apply, and there were {count}.");
        (_leftCount, _leftPagesMax) = (0, 0);
    }

    private bool HasRoom(WriteBatch batch, int bytesMax, int pagesMax)
    {
        // The puts that are left make fewer pages than they may, and how many is known when they are applied.
        if (batch.PagesMade + _leftPagesMax >= pagesMax)
            ApplyLeft(batch);
        return _payload.Count + _results.BytesMax < bytesMax && batch.PagesMade < pagesMax;
    }

    // At least one request is applied, also if what ended before it has taken all.
    private bool TookTooLong(int taken, long since, in StepBound step) =>
        (taken > 1 && step.HasReadEnough) || ((taken % LookEvery == 0 || _hasRange) && time.GetElapsedTime(since) >= options.StepTimeMax);

    /// <summary>Whether the pages that a request needs are in memory, or few.</summary>
    private bool MayBegin(WriteBatch batch, WriteRequest request)
    {
        if (!request.EndsSession)
            return ahead.MayBegin(request);
        return !SessionTable.TryRead(batch, request.Session, out var state)
            || ahead.MayBegin(ahead.WorkOf(request), (int)OwnedKeys.SumOf(batch, state.Opened).Keys, LifeEnds.KeysOwned(state.Opened));
    }

    /// <summary>The etag of the newest state, which is unpublished or in this transaction.</summary>
    private Etag Newest => _operationCount == 0 ? _etagLast : _next.Predecessor;

    private void Note(WriteRequest request, long now)
    {
        if (Waited == TimeSpan.Zero)
            Waited = time.GetElapsedTime(request.ArrivedTimestamp, now);
        if (request.Trace is { } trace)
            _traces.Add(trace);
    }

    private void EndIdleSessions(WriteBatch batch, int pagesMax)
    {
        _idleSessions.Collect(batch, _shardTime, _payload, LifeEnds.CountFor(pagesMax));
        ApplyFrom(batch, 0);
    }

    /// <summary>
    /// Ends what is due before the requests. The ends of sessions are applied before expiries are looked for, because both may end the same key.
    /// </summary>
    private void EndLives(WriteBatch batch, int bytesMax, int pagesMax, long? recordBytesLeft, in StepBound step)
    {
        var begin = _payload.Count;
        lives.AppendSessions(batch, _payload, bytesMax, LeftForEnds(recordBytesLeft), step);
        lives.AppendRests(_payload, bytesMax, pagesMax, recordBytesLeft);
        ApplyFrom(batch, begin);
        var late = _payload.Count;
        lives.AppendLate(batch, _shardTime, _payload, bytesMax, late - begin, pagesMax - batch.PagesMade, LeftForEnds(recordBytesLeft), step);
        ApplyFrom(batch, late);
    }

    /// <summary>Ends what is due with what the requests have left of the record.</summary>
    private void ExpireBehind(WriteBatch batch, int bytesMax, int pagesMax, long? recordBytesLeft, in StepBound step)
    {
        ApplyLeft(batch);
        var operationBytes = _payload.Count;
        var bytesLeft = Math.Min(bytesMax - _payload.Count, LeftForEnds(recordBytesLeft) ?? long.MaxValue);
        lives.AppendBehind(batch, _shardTime, _payload, bytesLeft, pagesMax - batch.PagesMade, step);
        ApplyFrom(batch, operationBytes);
    }

    /// <summary>Has some of the expiries forgotten that deletes of ranges have left.</summary>
    private void SweepBehind(WriteBatch batch, int bytesMax, int pagesMax, long? recordBytesLeft, in StepBound step)
    {
        ApplyLeft(batch);
        var operationBytes = _payload.Count;
        var bytesLeft = Math.Min(bytesMax - _payload.Count, LeftForEnds(recordBytesLeft) ?? long.MaxValue);
        lives.AppendStale(batch, _payload, bytesLeft, pagesMax - batch.PagesMade, step);
        ApplyFrom(batch, operationBytes);
    }

    /// <summary>Applies the operations of the payload from a byte on; returns how many keys they deleted.</summary>
    private ulong ApplyFrom(WriteBatch batch, int begin) =>
        RecordApplier.ApplyOperations(batch, _payload.Written[begin..], _etagFirst, _shardTime, ref _next, ref _operationCount);

    // What the record may still take now, less the block that its envelope may begin.
    private long? LeftForEnds(long? recordBytesLeft) => recordBytesLeft - RecordBytes(RecordEnvelope.BlockBytes);

    private bool TryMakeRoom(WriteBatch batch, WriteRequest opening)
    {
        if (opening.LifetimeMilliseconds != 0)
            return _idleSessions.HasRoomWithLifetime(batch, opening.Owner);
        if (_idleSessions.HasRoom(batch))
            return true;
        if (IdleSessions.FindUnfair(batch, opening.Owner, _results) is not { } unfair)
            return false;
        ApplyLeft(batch);
        var operationBytes = _payload.Count;
        Operations.SessionEnd(_payload, unfair);
        ApplyFrom(batch, operationBytes);
        return true;
    }

    private void AppendResults(WriteBatch batch)
    {
        if (_results.Count == 0)
            return;
        var operationBytes = _payload.Count;
        _results.WriteTo(_payload, _etagFirst);
        ApplyFrom(batch, operationBytes);
    }

    private int RecordBytesWith(WriteBatch batch, WriteRequest request)
    {
        var more = request.RecordBytesMore;
        if (request.EndsSession && SessionTable.TryRead(batch, request.Session, out var state))
            more += (int)LifeEnds.BytesOfEnd(batch, state);
        return RecordBytes(RoomBytesMax + request.EncodedOperations.Length + more);
    }

    /// <summary>What the record takes in the journal, with so many bytes more.</summary>
    private int RecordBytes(int moreBytes) => RecordEnvelope.RecordBytes(
        RecordBody.HeaderBytes + RecordBody.ShardTimeBytes + _payload.Count + _results.BytesMax + moreBytes + RecordBody.TrailerBytes);

    private void Apply(WriteBatch batch, WriteRequest request)
    {
        try
        {
            if (request.Sequence == 0)
                ApplyPlain(batch, request);
            else
                ApplyIdentified(batch, request);
        }
        catch
        {
            // The request is in no queue any more, and the transaction that it would have been part of is abandoned.
            chain.Add(request, WriteResult.Of(WriteOutcome.Stopped));
            throw;
        }
        answers.Add(request);
    }

    private void ApplyPlain(WriteBatch batch, WriteRequest request)
    {
        var before = _operationCount;
        request.Result = Execute(batch, request);
        request.ReleaseEtag = request.Result.Etag;
        request.IsReadAnswer = _operationCount == before;
    }

    private void ApplyIdentified(WriteBatch batch, WriteRequest request)
    {
        var session = _results.Find(batch, request.Session);
        if (ExactlyOnce.TryAnswer(batch, session, request.Sequence, request.LowestOpen, request.Digest, out var answer))
        {
            request.Result = answer;
            request.IsReadAnswer = answer.Outcome is WriteOutcome.SessionExpired or WriteOutcome.SequenceClosed;
        }
        else
        {
            request.Result = Execute(batch, request);
            // A refusal is no result: the same request may be accepted later.
            if (request.Result.Outcome is not (WriteOutcome.Applied or WriteOutcome.ConditionFailed))
                request.IsReadAnswer = true;
            else
                _results.Add(session, request.Sequence, request.Result, request.Digest);
        }
        // If this transaction has gathered results or operations, the answer depends on the state that this transaction's record produces.
        request.ReleaseEtag = _results.Count > 0 || _operationCount > 0 ? Etag.Max(Newest, _etagFirst) : _etagLast;
    }

    private WriteResult Execute(WriteBatch batch, WriteRequest request)
    {
        if (TryLeave(batch, request))
            return new WriteResult(WriteOutcome.Applied, _next.Predecessor, -1, 0);
        ApplyLeft(batch);
        if (request.EndsSession)
            return EndSession(batch, request.Session);
        if (request.KeepsSessions)
            return KeepSessions(batch, request);
        var failed = ConditionEvaluation.FindFailed(batch, request.EncodedConditions);
        if (failed == ConditionEvaluation.TooManyKeys)
            return Refusal(WriteOutcome.RangeTooLarge);
        if (failed >= 0 && !request.HasFailureList)
            return new WriteResult(WriteOutcome.ConditionFailed, Newest, failed, 0);
        if (request.IsExecuted)
            return ExecuteList(batch, request, failed);
        if (request.OperationCount == 0)
            return new WriteResult(WriteOutcome.Applied, Newest, -1, 0);
        var operationBytes = _payload.Count;
        var isPartial = false;
        if (!request.HasRange)
            _payload.Append(request.EncodedOperations);
        else if (!TryAppendRanges(batch, request, out isPartial))
            return Refusal(WriteOutcome.RangeTooLarge);
        var deleted = ApplyFrom(batch, operationBytes);
        if (request.LifetimeMilliseconds != 0)
            lives.Opened(request.Session, request.LifetimeMilliseconds);
        return new WriteResult(WriteOutcome.Applied, _next.Predecessor, -1, (int)deleted, isPartial);
    }

    private WriteResult Refusal(WriteOutcome outcome) => new(outcome, Newest, -1, 0);

    /// <summary>Applies one list of a request operation by operation, if all of them can be.</summary>
    private WriteResult ExecuteList(WriteBatch batch, WriteRequest request, int failed)
    {
        var operations = request.List(isFailure: failed >= 0);
        var resultBytesMax = !request.WantsResults ? 0 : request.Sequence == 0 ? KvLimits.ResultsBytesMax : KvLimits.KeptResultsBytesMax;
        var check = new RequestCheck(batch, operations, resultBytesMax).Run();
        if (check == WriteOutcome.TooManyOwned && ForgetStaleOwned(batch, operations.Encoded))
            check = new RequestCheck(batch, operations, resultBytesMax).Run();
        if (check != WriteOutcome.Applied)
            return Refusal(check);
        _hasRange |= request.HasRange || request.ReadsRange;
        _rangesDeleted += request.HasRange ? 1 : 0;
        var partEnd = 0;
        if (request.HasRange && !TryFindPart(batch, operations.Encoded, operations.Count == 1 && !request.IsWhole, out partEnd))
            return Refusal(WriteOutcome.RangeTooLarge);
        _operationResults.Clear();
        var execution = new RequestExecution(
            batch, _payload, request.WantsResults ? _operationResults : null, resultBytesMax, _etagFirst, _shardTime, ref _next, ref _operationCount);
        if (!execution.Run(operations, _rangeEnd.AsSpan(0, partEnd)))
            return Refusal(WriteOutcome.ResultsTooLarge);
        return new WriteResult(
            WriteOutcome.Applied, Newest, failed, (int)(request.CountsMembers ? execution.MembersChanged : execution.KeysDeleted), partEnd > 0)
        {
            Results = request.WantsResults ? _operationResults.Written.ToArray() : null,
        };
    }

    /// <summary>
    /// Has the entries forgotten that deletes of ranges have left of the sessions that are to own keys of a request. Returns whether there were any. A
    /// session is looked at again when a range was deleted since, because a full one would otherwise cost 10,000 lookups with each refusal.
    /// </summary>
    private bool ForgetStaleOwned(WriteBatch batch, ReadOnlySpan<byte> operations)
    {
        // A node of format level 1 could not apply it.
        if (!options.HasShardTimes)
            return false;
        var operationBytes = _payload.Count;
        for (var reader = new RequestReader(operations); reader.MoveNext();)
        {
            if (reader.Code != RequestOperation.PutOnTerms || reader.Terms.Owner == 0 || !SessionTable.TryFindOwner(batch, reader.Terms.Owner, out var opened))
                continue;
            if (_sweptOwners.TryGetValue(opened, out var ranges) && ranges == _rangesDeleted)
                continue;
            if (_sweptOwners.Count == SweptOwnersMax)
                _sweptOwners.Clear();
            _sweptOwners[opened] = _rangesDeleted;
            OwnedKeys.AppendStale(batch, opened, _payload);
        }
        if (_payload.Count == operationBytes)
            return false;
        ApplyFrom(batch, operationBytes);
        return true;
    }

    /// <summary>A leadership begins. Others may have deleted ranges since the last one, and what it recorded last may be gone.</summary>
    public void BeginLeadership() => _sweptOwners.Clear();

    /// <summary>Ends a session, and with it the keys that it owns.</summary>
    private WriteResult EndSession(WriteBatch batch, UInt128 session)
    {
        if (!SessionTable.TryRead(batch, session, out var state))
            return new WriteResult(WriteOutcome.SessionExpired, Newest, -1, 0);
        _results.Drop(session);
        var operationBytes = _payload.Count;
        lives.AppendEnd(batch, session, state, _payload);
        var deleted = ApplyFrom(batch, operationBytes);
        return new WriteResult(WriteOutcome.Applied, _next.Predecessor, -1, (int)deleted);
    }

    /// <summary>Appends of each session of which a record says what is left that this does not hold any more.</summary>
    private WriteResult KeepSessions(WriteBatch batch, WriteRequest request)
    {
        var operationBytes = _payload.Count;
        for (var reader = new OperationReader(request.EncodedOperations); reader.MoveNext();)
        {
            // All operations of this request wait for the etag of the first, because they are committed together.
            if (lives.TryForgetRest(reader.Session, _next))
                Operations.SessionLeft(_payload, reader.Session, 0);
        }
        ApplyFrom(batch, operationBytes);
        return new WriteResult(WriteOutcome.Applied, Newest, -1, 0);
    }

    /// <summary>
    /// Appends a request's puts to the record and leaves them for later, if they are few and their etags are all that the request's answer depends on.
    /// </summary>
    private bool TryLeave(WriteBatch batch, WriteRequest request)
    {
        if (!request.IsBlind)
            return false;
        var trees = KeyLives.Any(batch) ? TreesWithLives : 1;
        if (_leftCount + request.OperationCount > LeftMaxWith(trees))
            return false;
        var start = _leftCount == 0 ? _payload.Count : _left.Start.Value;
        if (_leftCount == 0)
            _leftNext = _next;
        _payload.Append(request.EncodedOperations);
        _left = start.._payload.Count;
        _leftCount += request.OperationCount;
        _leftPagesMax += (request.OperationCount * PagesPerPut * trees) + (request.EncodedOperations.Length / Page.Bytes);
        _next = new Etag(_next.Epoch, _next.Change + (ulong)request.OperationCount);
        _operationCount += request.OperationCount;
        return true;
    }

    /// <summary>
    /// Puts that may be left. They are applied at once, so while leaves may have to be read they are no more than a step may read, in each tree that they
    /// change.
    /// </summary>
    private int LeftMaxWith(int trees) => ahead.IsCold ? Math.Min(LeftMax, options.StepReadsMax / trees) : LeftMax;

    /// <summary>
    /// Appends operations among which ranges or sets are deleted. If one of these is the only operation and is too large, only its first part is deleted. The
    /// record has the end of that part, because other replicas may divide the same keys or members among other leaves. False if they are too large together
    /// with other operations, or for a request that is not to be divided; nothing is appended then.
    /// </summary>
    private bool TryAppendRanges(WriteBatch batch, WriteRequest request, out bool isPartial)
    {
        isPartial = false;
        if (!TryFindPart(batch, request.EncodedOperations, request.OperationCount == 1 && !request.IsWhole, out var partEnd))
            return false;
        _hasRange = true;
        _rangesDeleted++;
        isPartial = partEnd > 0;
        if (!isPartial)
        {
            _payload.Append(request.EncodedOperations);
            return true;
        }
        var only = new RequestReader(request.EncodedOperations);
        only.MoveNext();
        if (only.Code == RequestOperation.SetDelete)
            Operations.SetDelete(_payload, only.Key, _rangeEnd.AsSpan(0, partEnd));
        else
            Operations.DeleteRange(_payload, only.Key, _rangeEnd.AsSpan(0, partEnd));
        return true;
    }

    /// <summary>
    /// Looks for the part of a range or set that can be deleted at once. False if the ranges and sets are larger together and must not be divided.
    /// </summary>
    /// <param name="batch">The newest state.</param>
    /// <param name="operations">What is to be applied.</param>
    /// <param name="mayDivide">Whether a part may be deleted.</param>
    /// <param name="partEnd">The bytes of <see cref="_rangeEnd"/> that are the end of the part; 0 if everything can be deleted.</param>
    private bool TryFindPart(WriteBatch batch, ReadOnlySpan<byte> operations, bool mayDivide, out int partEnd)
    {
        var allowance = new RangeAllowance(options.RangeLeavesMax, options.RangeLeavesUnreadMax);
        partEnd = 0;
        for (var reader = new RequestReader(operations); reader.MoveNext();)
        {
            if (!TakesLeaves(batch, reader))
                continue;
            // Earlier ones of the request have taken all.
            if (allowance.IsSpent)
                return false;
            var isSet = reader.Code == RequestOperation.SetDelete;
            var end = isSet ? batch.EndOfSetPart(reader.Key, ref allowance, _rangeEnd)
                : batch.EndOfPart(TreeId.Kv, reader.Key, reader.KeyEnd, ref allowance, _rangeEnd);
            if (end.SequenceEqual(isSet ? default : reader.KeyEnd))
                continue;
            if (!mayDivide)
                return false;
            partEnd = end.Length;
        }
        return true;
    }

    /// <summary>Whether an operation deletes by whole leaves: not in a range without keys, nor in a set that is a value.</summary>
    private static bool TakesLeaves(WriteBatch batch, in RequestReader operation) => operation.Code switch
    {
        // An empty end is the end of the tree, so it never makes a range without keys.
        RequestOperation.DeleteRange => operation.KeyEnd.IsEmpty || !operation.Key.SequenceEqual(operation.KeyEnd),
        RequestOperation.SetDelete => batch.TryGetSet(operation.Key, out var set) && set.IsPromoted,
        _ => false,
    };
}
