using System.Buffers.Binary;
using System.Security.Cryptography;
using Grpc.Core;
using KvCluster.Node.Hosting;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Sessions;
using KvCluster.V1;
using KvCluster.Wire;
using QueuedChange = KvCluster.Storage.Transactions.QueuedChange;
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Node.Api;

/// <summary>
/// Put, Delete, Write, OpenSession and EndSession on encoded requests. Called by <see cref="KvCalls"/>. A change is submitted before the call returns, so
/// that changes keep the order in which they came.
/// </summary>
internal sealed class KvWrites(ShardLookup lookup)
{
    public ValueTask PutAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var put = new SingleChange(request, PutRequest.ValueFieldNumber, PutRequest.ConditionsFieldNumber, PutRequest.RequestIdFieldNumber);
        return ChangeAsync(put, request, target, isDelete: false, sink);
    }

    public ValueTask DeleteAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var delete = new SingleChange(request, valueField: 0, DeleteRequest.ConditionsFieldNumber, DeleteRequest.RequestIdFieldNumber);
        return ChangeAsync(delete, request, target, isDelete: true, sink);
    }

    public ValueTask WriteAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var write = WriteRequest.Rent(request.Length);
        if (ChangeReading.TryAddOperations(write, request, lookup, target, out var shard, out var id, out var hasId, out var wantsResults) is { } bad)
            return Refuse(sink, write, bad);
        // Without operations there is no change whose etag could be returned.
        if (shard is null)
            return Refuse(sink, write, ApiErrors.BadRequest("The request has no operation."));
        if (hasId && ChangeReading.TryIdentify(write, id, shard) is { } badId)
            return Refuse(sink, write, badId);
        if (ConditionReading.TryAddAll(write, request, V1.WriteRequest.ConditionsFieldNumber, default, shard, lookup) is { } badCondition)
            return Refuse(sink, write, badCondition);
        if (!wantsResults)
            return FinishWriteAsync(Submit(write, shard, target), shard, areDeletes: null, sink);
        if (write.OperationCount > KvLimits.ResultsMax)
            return Refuse(sink, write, ApiErrors.TooManyResults);
        // Before it is submitted, because it belongs to the store then.
        var areDeletes = ChangeReading.FindDeletes(request, write.OperationCount);
        return FinishWriteAsync(Submit(write, shard, target), shard, areDeletes, sink);
    }

    public ValueTask OpenSessionAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        ReadOpening(request, out var key, out var caller, out var lifetimeMs);
        if (RequestRules.CheckKey(key) is { } bad)
            return KvCalls.Refuse(sink, bad);
        if (lifetimeMs is < ApiErrors.LifetimeMsMin or > ApiErrors.LifetimeMsMax)
            return KvCalls.Refuse(sink, ApiErrors.LifetimeInvalid);
        if (lookup.Find(key, target, isForLeader: true, out var refusal) is not { } shard)
            return KvCalls.Refuse(sink, refusal);
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
                session = KvSessions.ReadSession(reader.ReadBytes());
            else
                reader.Skip();
        }
        if ((RequestRules.CheckKey(key) ?? (session == 0 ? ApiErrors.SessionInvalid : null)) is { } bad)
            return KvCalls.Refuse(sink, bad);
        if (lookup.Find(key, target, isForLeader: true, out var refusal) is not { } shard)
            return KvCalls.Refuse(sink, refusal);
        var write = WriteRequest.Rent();
        write.EndSession(session);
        return FinishEndAsync(Submit(write, shard, target), shard, sink);
    }

    // On a router's connection, the caller that the router names. On any other connection all sessions belong to one caller.
    private static SessionOwner OwnerOf(ServerCallContext? context, uint caller) => context is null
        ? new SessionOwner(0, caller)
        : new SessionOwner(CallerNumbers.OfPeer(context), caller != 0 ? caller : CallerNumbers.OfConnection(context));

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
        return KvCalls.Refuse(sink, refusal);
    }

    private ValueTask ChangeAsync<TSink>(in SingleChange change, ReadOnlySpan<byte> request, in CallTarget target, bool isDelete, TSink sink)
        where TSink : struct, IReplySink
    {
        if (RequestRules.CheckEntry(change.Key, change.Value) is { } bad)
            return KvCalls.Refuse(sink, bad);
        if (lookup.Find(change.Key, target, isForLeader: true, out var refusal) is not { } shard)
            return KvCalls.Refuse(sink, refusal);
        var write = WriteRequest.Rent(request.Length);
        if (change.HasId && ChangeReading.TryIdentify(write, change.Id, shard) is { } badId)
            return Refuse(sink, write, badId);
        if (change.HasConditions && ConditionReading.TryAddAll(write, request, change.ConditionsField, change.Key, shard, lookup) is { } badCondition)
            return Refuse(sink, write, badCondition);
        if (RequestRules.CheckRoom(write, change.Key, change.Value) is { } full)
            return Refuse(sink, write, full);
        if (isDelete)
            write.Delete(change.Key);
        else
            write.Put(change.Key, change.Value);
        return FinishAsync(Submit(write, shard, target), shard, isDelete, sink);
    }

    private static Submitted Submit(WriteRequest write, HostedShard shard, in CallTarget target)
    {
        (write.DeadlineTimestamp, write.ArrivedTimestamp, write.Trace) = (target.DeadlineTimestamp, target.ArrivedTimestamp, target.Span);
        var change = new QueuedChange(write, write.Life);
        var completion = shard.Replica!.Writes.SubmitAsync(write);
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
            sink.AnswerChange(new SessionAnswer(shard.Route.ShardId, result.Etag, session));
        else
            sink.Refuse(ApiErrors.Of(result, shard.Route, lookup.Node));
    }

    private async ValueTask FinishEndAsync<TSink>(Submitted submitted, HostedShard shard, TSink sink)
        where TSink : struct, IReplySink
    {
        var result = await submitted.Completion.ConfigureAwait(false);
        submitted.End();
        if (result.Outcome is WriteOutcome.Applied or WriteOutcome.SessionExpired)
            sink.AnswerChange(new EndSessionAnswer(shard.Route.ShardId, result.Etag, result.Outcome == WriteOutcome.Applied, (ulong)result.Deleted));
        else
            sink.Refuse(ApiErrors.Of(result, shard.Route, lookup.Node));
    }

    private async ValueTask FinishAsync<TSink>(Submitted submitted, HostedShard shard, bool isDelete, TSink sink)
        where TSink : struct, IReplySink
    {
        var result = await submitted.Completion.ConfigureAwait(false);
        submitted.End();
        if (result.Outcome == WriteOutcome.Applied)
            sink.AnswerChange(new ChangeAnswer(shard.Route.ShardId, result.Etag, isDelete && result.Existed));
        else
            sink.Refuse(ApiErrors.Of(result, shard.Route, lookup.Node));
    }

    private async ValueTask FinishWriteAsync<TSink>(Submitted submitted, HostedShard shard, bool[]? areDeletes, TSink sink)
        where TSink : struct, IReplySink
    {
        var result = await submitted.Completion.ConfigureAwait(false);
        submitted.End();
        if (result.Outcome == WriteOutcome.Applied)
            sink.AnswerChange(new WriteAnswer(shard.Route.ShardId, result.Etag, result.Deleted, areDeletes));
        else
            sink.Refuse(ApiErrors.Of(result, shard.Route, lookup.Node));
    }

    /// <summary>A change that was submitted to its shard, and where it is registered for cancellation.</summary>
    private readonly record struct Submitted(ValueTask<WriteResult> Completion, QueuedChange Change, CallWaits? Waits, ulong Id, CancellationTokenRegistration Caller)
    {
        public void End()
        {
            Waits?.End(Id, Change);
            Caller.Dispose();
        }
    }
}
