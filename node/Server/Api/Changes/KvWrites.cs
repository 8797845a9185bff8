using System.Buffers.Binary;
using System.Security.Cryptography;
using Grpc.Core;
using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Hosting;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Sessions;
using KvCluster.V1;
using KvCluster.Wire;
using QueuedChange = KvCluster.Storage.Transactions.QueuedChange;
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Node.Api.Changes;

/// <summary>
/// The calls that change keys, sets and sessions, on encoded requests. Called by <see cref="KvCalls"/>. A change is submitted before the call returns, so
/// that changes keep the order in which they came.
/// </summary>
internal sealed class KvWrites(ShardLookup lookup)
{
    public ValueTask PutAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var put = new SingleChange(request, ChangeLayout.Put);
        if (RequestRules.CheckEntry(put.Key, put.Value) is { } bad)
            return Refusals.Send(sink, bad);
        if (ChangeReading.TryReadTerms(put.Number, put.Other, put.IsFlagged, put.KeepsExpiry, put.KeepsOwner, out var terms) is { } badTerms)
            return Refusals.Send(sink, badTerms);
        if (TryBegin(put, request, target, out var shard, out var write) is { } refusal)
            return Refusals.Send(sink, refusal);
        if (terms.IsNumbered && RequestRules.CheckNumbered(shard, lookup, put.Key) is { } badPrefix)
            return Refuse(sink, write, badPrefix);
        write.WantsResults = terms.IsNumbered;
        write.Put(put.Key, put.Value, terms);
        return FinishAsync(Submit(write, shard, target), shard, terms.IsNumbered ? ChangeKind.NumberedPut : ChangeKind.Put, sink);
    }

    public ValueTask DeleteAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var delete = new SingleChange(request, ChangeLayout.Delete);
        if (RequestRules.CheckKey(delete.Key) is { } bad)
            return Refusals.Send(sink, bad);
        if (TryBegin(delete, request, target, out var shard, out var write) is { } refusal)
            return Refusals.Send(sink, refusal);
        write.Delete(delete.Key);
        return FinishAsync(Submit(write, shard, target), shard, ChangeKind.Delete, sink);
    }

    public ValueTask IncrementAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var increment = new SingleChange(request, ChangeLayout.Increment);
        if (RequestRules.CheckKey(increment.Key) is { } bad)
            return Refusals.Send(sink, bad);
        if (TryBegin(increment, request, target, out var shard, out var write) is { } refusal)
            return Refusals.Send(sink, refusal);
        write.WantsResults = true;
        write.Increment(increment.Key, WireReader.Unfold(increment.Number ?? 0));
        return FinishAsync(Submit(write, shard, target), shard, ChangeKind.Increment, sink);
    }

    public ValueTask TouchAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var touch = new SingleChange(request, ChangeLayout.Touch);
        if ((RequestRules.CheckTtl(touch.Number) ?? RequestRules.CheckKey(touch.Key)) is { } bad)
            return Refusals.Send(sink, bad);
        if (TryBegin(touch, request, target, out var shard, out var write) is { } refusal)
            return Refusals.Send(sink, refusal);
        write.WantsResults = true;
        write.Touch(touch.Key, touch.Number ?? 0);
        return FinishAsync(Submit(write, shard, target), shard, ChangeKind.Touch, sink);
    }

    public ValueTask DeleteRangeAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var change = new SingleChange(request, ChangeLayout.DeleteRange);
        if (RequestRules.CheckBounds(change.Key, change.Value, change.Other) is { } tooLong)
            return Refusals.Send(sink, tooLong);
        if (change.Key.IsEmpty && change.Value.IsEmpty && change.Other.IsEmpty && !change.IsFlagged)
            return Refusals.Send(sink, ApiErrors.RangeUnnamed);
        var bounds = KeyBounds.Of(change.Key.ToArray(), change.Value.ToArray(), change.Other.ToArray());
        var from = bounds.Lower.Span;
        if (TryBegin(change, from, request, target, out var shard, out var write) is { } refusal)
            return Refusals.Send(sink, refusal);
        // Keys behind the shard's end belong to another shard.
        var endOfShard = shard.Route.End.Span;
        var isBeyond = !endOfShard.IsEmpty && (bounds.Upper.IsEmpty || bounds.Upper.Span.SequenceCompareTo(endOfShard) > 0);
        var to = isBeyond ? endOfShard : bounds.Upper.Span;
        // A range that ends before it begins has no keys.
        if (!to.IsEmpty && from.SequenceCompareTo(to) > 0)
            to = from;
        if (Math.Max(from.Length, to.Length) > KvLimits.KeyBytesMax)
        {
            var (first, behind) = KeyBounds.Shortened(from, to);
            from = first;
            to = behind;
        }
        write.WantsResults = true;
        write.DeleteRange(from, to);
        return FinishRangeAsync(Submit(write, shard, target), shard, isBeyond ? shard.Route.End.Memory : default, sink);
    }

    public ValueTask SetAddAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink => ChangeSetAsync(new SingleChange(request, ChangeLayout.SetAdd), isAdded: true, request, target, sink);

    public ValueTask SetRemoveAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink => ChangeSetAsync(new SingleChange(request, ChangeLayout.SetRemove), isAdded: false, request, target, sink);

    public ValueTask WriteAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var write = WriteRequest.Rent(request.Length);
        HostedShard? shard = null;
        ReadHead(request, V1.WriteRequest.RequestIdFieldNumber, V1.WriteRequest.WithResultsFieldNumber, out var id, out var hasId, out var wantsResults);
        (write.WantsResults, write.IsWhole) = (wantsResults, true);
        var first = RequestKeys.First(V1.Method.Write, request);
        if (ChangeReading.TryAddOperations(write, request, V1.WriteRequest.OperationsFieldNumber, first, lookup, target, ref shard) is { } bad)
            return Refuse(sink, write, bad);
        // Without operations there is no change whose etag could be returned.
        if (shard is null)
            return Refuse(sink, write, ApiErrors.BadRequest("The request has no operation."));
        if (hasId && ChangeReading.TryIdentify(write, id, shard) is { } badId)
            return Refuse(sink, write, badId);
        if (ConditionReading.TryAddAll(write, request, V1.WriteRequest.ConditionsFieldNumber, default, shard, lookup) is { } badCondition)
            return Refuse(sink, write, badCondition);
        return FinishWriteAsync(Submit(write, shard, target), shard, onlyReads: !write.HasChanges && !hasId, isTransact: false, sink);
    }

    /// <summary>Writes one chunk of a load.</summary>
    public ValueTask LoadAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var write = WriteRequest.Rent(request.Length);
        if (ChangeReading.TryAddEntries(write, request, lookup, target, out var shard) is { } bad)
            return Refuse(sink, write, bad);
        return FinishChunkAsync(Submit(write, shard!, target), shard!, target.Chunk, sink);
    }

    public ValueTask TransactAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var write = WriteRequest.Rent(request.Length);
        HostedShard? shard = null;
        ReadHead(request, TransactRequest.RequestIdFieldNumber, flagField: 0, out var id, out var hasId, out _);
        (write.WantsResults, write.IsWhole) = (true, true);
        var first = RequestKeys.First(V1.Method.Transact, request);
        if (ChangeReading.TryAddOperations(write, request, TransactRequest.SuccessFieldNumber, first, lookup, target, ref shard) is { } bad)
            return Refuse(sink, write, bad);
        write.BeginFailureList();
        if (ChangeReading.TryAddOperations(write, request, TransactRequest.FailureFieldNumber, first, lookup, target, ref shard) is { } badFailure)
            return Refuse(sink, write, badFailure);
        if (ConditionReading.TryAddAll(write, request, TransactRequest.ConditionsFieldNumber, first, target, lookup, ref shard) is { } badCondition)
            return Refuse(sink, write, badCondition);
        if (shard is null)
            return Refuse(sink, write, ApiErrors.BadRequest("The request has neither a condition nor an operation."));
        if (hasId && ChangeReading.TryIdentify(write, id, shard) is { } badId)
            return Refuse(sink, write, badId);
        return FinishWriteAsync(Submit(write, shard, target), shard, onlyReads: !write.HasChanges && !hasId, isTransact: true, sink);
    }

    public ValueTask OpenSessionAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        ReadOpening(request, out var key, out var caller, out var lifetimeMs);
        if (RequestRules.CheckKey(key) is { } bad)
            return Refusals.Send(sink, bad);
        if (lifetimeMs is < ApiErrors.LifetimeMsMin or > ApiErrors.LifetimeMsMax)
            return Refusals.Send(sink, ApiErrors.LifetimeInvalid);
        if (lookup.Find(key, target, isForLeader: true, out var refusal) is not { } shard)
            return Refusals.Send(sink, refusal);
        var write = WriteRequest.Rent();
        // The id is known to its caller only, so it must not appear in logs or error messages.
        Span<byte> id = stackalloc byte[WireWriter.SessionBytes];
        RandomNumberGenerator.Fill(id);
        var session = BinaryPrimitives.ReadUInt128LittleEndian(id);
        write.OpenSession(session, OwnerOf(target.Caller, caller), lifetimeMs ?? 0);
        return FinishOpeningAsync(Submit(write, shard, target), shard, session, sink);
    }

    public ValueTask EndSessionAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        ReadOnlySpan<byte> key = default;
        UInt128 session = 0;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == EndSessionRequest.KeyFieldNumber)
                key = reader.ReadBytes();
            else if (field == EndSessionRequest.SessionFieldNumber)
                session = ChangeReading.ReadSession(reader.ReadBytes());
            else
                reader.Skip();
        }
        if ((RequestRules.CheckKey(key) ?? (session == 0 ? ApiErrors.SessionInvalid : null)) is { } bad)
            return Refusals.Send(sink, bad);
        if (lookup.Find(key, target, isForLeader: true, out var refusal) is not { } shard)
            return Refusals.Send(sink, refusal);
        var write = WriteRequest.Rent();
        write.EndSession(session);
        return FinishEndAsync(Submit(write, shard, target), shard, sink);
    }

    // On a router's connection, the caller that the router names. On any other connection all sessions belong to one caller.
    private static QuotaOwner OwnerOf(ServerCallContext? context, uint caller) => context is null
        ? new QuotaOwner(0, caller)
        : new QuotaOwner(CallerNumbers.OfPeer(context), caller != 0 ? caller : CallerNumbers.OfConnection(context.Peer));

    private static void ReadOpening(ReadOnlySpan<byte> request, out ReadOnlySpan<byte> key, out uint caller, out ulong? lifetimeMs)
    {
        key = default;
        caller = 0;
        lifetimeMs = null;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == OpenSessionRequest.KeyFieldNumber)
                key = reader.ReadBytes();
            else if (field == OpenSessionRequest.CallerFieldNumber)
                caller = reader.ReadFixed32();
            else if (field == OpenSessionRequest.LifetimeMsFieldNumber)
                lifetimeMs = reader.ReadUInt64();
            else
                reader.Skip();
        }
    }

    private static ValueTask Refuse<TSink>(TSink sink, WriteRequest write, ApiError refusal)
        where TSink : struct, IReplySink
    {
        write.Return();
        return Refusals.Send(sink, refusal);
    }

    private static void ReadHead(ReadOnlySpan<byte> request, int idField, int flagField, out ReadOnlySpan<byte> id, out bool hasId, out bool isFlagged)
    {
        id = default;
        (hasId, isFlagged) = (false, false);
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == idField)
            {
                id = reader.ReadBytes();
                hasId = true;
            }
            else if (field == flagField)
            {
                isFlagged = reader.ReadBool();
            }
            else
            {
                reader.Skip();
            }
        }
    }

    private ApiError? TryBegin(in SingleChange change, ReadOnlySpan<byte> request, in CallTarget target, out HostedShard shard, out WriteRequest write) =>
        TryBegin(change, change.Key, request, target, out shard, out write);

    /// <summary>Finds the shard of a key and begins a write there, with the request's id and conditions. Null on success.</summary>
    private ApiError? TryBegin(
        in SingleChange change, ReadOnlySpan<byte> key, ReadOnlySpan<byte> request, in CallTarget target, out HostedShard shard, out WriteRequest write)
    {
        write = null!;
        shard = lookup.Find(key, target, isForLeader: true, out var refusal)!;
        if (shard is null)
            return refusal;
        var begun = WriteRequest.Rent(request.Length);
        var bad = change.HasId ? ChangeReading.TryIdentify(begun, change.Id, shard) : null;
        if (bad is null && change.HasConditions)
            bad = ConditionReading.TryAddAll(begun, request, change.ConditionsField, change.Key, shard, lookup);
        bad ??= RequestRules.CheckRoom(begun, key, change.Value);
        if (bad is null)
            write = begun;
        else
            begun.Return();
        return bad;
    }

    private ValueTask ChangeSetAsync<TSink>(in SingleChange change, bool isAdded, ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        if (RequestRules.CheckKey(change.Key) is { } bad)
            return Refusals.Send(sink, bad);
        if (TryBegin(change, request, target, out var shard, out var write) is { } refusal)
            return Refusals.Send(sink, refusal);
        write.CountsMembers = true;
        if (ChangeReading.TryAddMembers(write, request, change.Key, isAdded) is { } badMember)
            return Refuse(sink, write, badMember);
        if (change.IsFlagged == (write.OperationCount > 0))
            return Refuse(sink, write, ApiErrors.BadRequest(
                change.IsFlagged ? "The request names members beside all. Nothing was applied." : "The request names no member. Nothing was applied."));
        if (!change.IsFlagged)
            return FinishAsync(Submit(write, shard, target), shard, ChangeKind.Members, sink);
        write.SetDelete(change.Key);
        // A request with an id or conditions is one change, or none, and is not divided.
        write.IsWhole = change.HasId || change.HasConditions;
        // Further changes are submitted by another thread, and later.
        return FinishSetAsync(Submit(write, shard, target), shard, change.Key.ToArray(), target with { Notices = null }, sink);
    }

    private static Submitted Submit(WriteRequest write, HostedShard shard, in CallTarget target)
    {
        (write.DeadlineTimestamp, write.ArrivedTimestamp, write.Trace) = (target.DeadlineTimestamp, target.ArrivedTimestamp, target.Span);
        var change = new QueuedChange(write, write.Life);
        var completion = shard.Replica!.Writes.SubmitAsync(write, target.Notices);
        if (completion.IsCompleted)
            return new Submitted(completion, change, null, 0, default);
        target.Waits?.Begin(target.Id, change);
        return new Submitted(completion, change, target.Waits, target.Id, target.Waits is null ? change.GiveUpWith(target.CancellationToken) : default);
    }

    private async ValueTask FinishOpeningAsync<TSink>(Submitted submitted, HostedShard shard, UInt128 session, TSink sink)
        where TSink : struct, IReplySink
    {
        var result = await submitted.Completion.ConfigureAwait(false);
        submitted.End();
        if (result.Outcome == WriteOutcome.Applied)
            sink.AnswerChange(new SessionAnswer(shard.InLineage, result.Etag, session));
        else
            sink.Refuse(ApiErrors.Of(result, shard.Route, lookup.Node));
    }

    private async ValueTask FinishEndAsync<TSink>(Submitted submitted, HostedShard shard, TSink sink)
        where TSink : struct, IReplySink
    {
        var result = await submitted.Completion.ConfigureAwait(false);
        submitted.End();
        if (result.Outcome is WriteOutcome.Applied or WriteOutcome.SessionExpired)
            sink.AnswerChange(new EndSessionAnswer(shard.InLineage, result.Etag, result.Outcome == WriteOutcome.Applied, (ulong)result.Deleted));
        else
            sink.Refuse(ApiErrors.Of(result, shard.Route, lookup.Node));
    }

    private async ValueTask FinishAsync<TSink>(Submitted submitted, HostedShard shard, ChangeKind kind, TSink sink)
        where TSink : struct, IReplySink
    {
        var result = await submitted.Completion.ConfigureAwait(false);
        submitted.End();
        if (result.Outcome == WriteOutcome.Applied)
            Answer(result, shard.InLineage, kind, sink);
        else
            sink.Refuse(ApiErrors.Of(result, shard.Route, lookup.Node));
    }

    private static void Answer<TSink>(in WriteResult result, LineageShard shard, ChangeKind kind, TSink sink)
        where TSink : struct, IReplySink
    {
        var told = new OperationResultReader(result.Results);
        if (result.Results is not null)
            told.MoveNext();
        switch (kind)
        {
            case ChangeKind.NumberedPut:
                told.MoveToEntry();
                sink.AnswerChange(new NumberedPutAnswer(shard, result.Etag, told.EntryKey));
                break;
            case ChangeKind.Increment:
                sink.AnswerChange(new NumberAnswer(shard, result.Etag, WireWriter.Fold(told.Number ?? 0)));
                break;
            case ChangeKind.Members:
                sink.AnswerChange(new NumberAnswer(shard, result.Etag, (ulong)result.Deleted));
                break;
            case ChangeKind.Touch:
                sink.AnswerChange(new ChangeAnswer(shard, result.Etag, told.Existed == true));
                break;
            default:
                sink.AnswerChange(new ChangeAnswer(shard, result.Etag, kind == ChangeKind.Delete && result.Existed));
                break;
        }
    }

    /// <param name="endOfShard">Where the range goes on behind the shard; empty if it does not.</param>
    private async ValueTask FinishRangeAsync<TSink>(Submitted submitted, HostedShard shard, ReadOnlyMemory<byte> endOfShard, TSink sink)
        where TSink : struct, IReplySink
    {
        var result = await submitted.Completion.ConfigureAwait(false);
        submitted.End();
        if (result.Outcome != WriteOutcome.Applied)
        {
            sink.Refuse(ApiErrors.Of(result, shard.Route, lookup.Node));
            return;
        }
        var told = new OperationResultReader(result.Results);
        var isPartial = told.MoveNext() && told.More && told.MoveToEntry();
        sink.AnswerChange(new DeleteRangeAnswer(shard.InLineage, result.Etag, (ulong)result.Deleted, isPartial ? told.EntryKey : endOfShard.Span));
    }

    /// <summary>Goes on until nothing is left of a set of which one change can only remove a part.</summary>
    private async ValueTask FinishSetAsync<TSink>(Submitted submitted, HostedShard shard, byte[] key, CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var removed = 0ul;
        while (true)
        {
            var result = await submitted.Completion.ConfigureAwait(false);
            submitted.End();
            if (result.Outcome != WriteOutcome.Applied)
            {
                // A part of the members is gone, perhaps.
                sink.Refuse(removed == 0 ? ApiErrors.Of(result, shard.Route, lookup.Node) : ApiErrors.OutcomeUnknown);
                return;
            }
            removed += (ulong)result.Deleted;
            if (!result.IsPartial)
            {
                sink.AnswerChange(new NumberAnswer(shard.InLineage, result.Etag, removed));
                return;
            }
            var write = WriteRequest.Rent();
            write.CountsMembers = true;
            write.SetDelete(key);
            submitted = Submit(write, shard, target);
        }
    }

    private async ValueTask FinishChunkAsync<TSink>(Submitted submitted, HostedShard shard, ulong number, TSink sink)
        where TSink : struct, IReplySink
    {
        var result = await submitted.Completion.ConfigureAwait(false);
        submitted.End();
        if (result.Outcome == WriteOutcome.Applied)
            sink.AnswerChange(new ChunkAnswer(number, shard.InLineage, result.Etag));
        else
            sink.Refuse(ApiErrors.Of(result, shard.Route, lookup.Node));
    }

    /// <param name="onlyReads">Whether a refusal may say that nothing was applied, whatever the outcome.</param>
    private async ValueTask FinishWriteAsync<TSink>(Submitted submitted, HostedShard shard, bool onlyReads, bool isTransact, TSink sink)
        where TSink : struct, IReplySink
    {
        var result = await submitted.Completion.ConfigureAwait(false);
        submitted.End();
        if (result.Outcome != WriteOutcome.Applied)
            sink.Refuse(ApiErrors.Of(result, shard.Route, lookup.Node));
        else if (isTransact)
            Answer(new TransactAnswer(shard.InLineage, result.Etag, result.FailedCondition, result.Results), onlyReads, sink);
        else
            Answer(new WriteAnswer(shard.InLineage, result.Etag, result.Deleted, result.Results), onlyReads, sink);
    }

    // The answer to a read may be refused for lack of space, and then nothing is known of it.
    private static void Answer<T, TSink>(in T answer, bool onlyReads, TSink sink)
        where T : struct, IAnswer
        where TSink : struct, IReplySink
    {
        if (onlyReads)
            _ = sink.Answer(answer);
        else
            sink.AnswerChange(answer);
    }

    /// <summary>Which answer a single change has.</summary>
    private enum ChangeKind
    {
        Put,
        NumberedPut,
        Delete,
        Increment,
        Touch,
        Members,
    }

    /// <summary>A change that was submitted to its shard, and where it is registered for cancellation.</summary>
    private readonly record struct Submitted(
        ValueTask<WriteResult> Completion, QueuedChange Change, CallWaits? Waits, ulong Id, CancellationTokenRegistration Caller)
    {
        public void End()
        {
            Waits?.End(Id, Change);
            Caller.Dispose();
        }
    }
}
