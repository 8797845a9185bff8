// The calls of service Kv on encoded messages, for unary calls and for those of an exchange. Called on the API's threads. A call runs as
// far as it can without waiting, so that changes are submitted in the order in which they came. Everything a caller can get wrong ends
// as a refusal; an exception that leaves here is a bug.
using KvCluster.Node.Hosting;
using KvCluster.Node.Shards;
using KvCluster.Storage;
using KvCluster.Storage.Pages;
using KvCluster.V1;
using KvCluster.Wire;
using WriteRequest = KvCluster.Storage.WriteRequest;

namespace KvCluster.Node.Api;

/// <summary>Decodes, finds the shard, runs, and encodes the answer in place.</summary>
internal sealed class KvCalls(uint node, ShardHost shards)
{
    // What an operation or a condition takes besides its key and value, at most.
    private const int OverheadBytes = 32;

    /// <summary>Runs a call; its outcome goes to the sink, which may be after this returns. The request's bytes are not used any more then.</summary>
    public ValueTask StartAsync<TSink>(Method method, ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        try
        {
            return method switch
            {
                Method.Get => GetAsync(request, target, sink),
                Method.GetMany => GetManyAsync(request, target, sink),
                Method.Put => PutAsync(request, target, sink),
                Method.Delete => DeleteAsync(request, target, sink),
                Method.Write => WriteAsync(request, target, sink),
                Method.OpenSession => OpenSessionAsync(request, target, sink),
                _ => Refuse(sink, Refusals.BadRequest("The method is not known.")),
            };
        }
        catch (Exception failure) when (Refusals.Of(failure) is { } refusal)
        {
            return Refuse(sink, refusal);
        }
    }

    /// <summary>The replica that leads the shard of a key, or why there is none here.</summary>
    public HostedShard? Find(ReadOnlySpan<byte> key, in CallTarget target, out Refusal refusal)
    {
        refusal = null!;
        var found = shards.Find(key);
        if (found is null || (target.Generation != 0 && (target.Shard != found.Route.Shard || target.Generation != found.Route.Generation)))
            refusal = Refusals.WrongShard(found?.Route ?? shards.RouteOf(key));
        else if (found.Replica is null)
            refusal = Refusals.ReplicaFailed(found.Route, found.Failure);
        else if (!found.Replica.IsServing)
            refusal = Refusals.NotLeader(found.Route, node);
        else
            return found;
        return null;
    }

    /// <summary>A snapshot for a linearizable read that arrived before this call. False: this replica does not lead.</summary>
    public static async ValueTask<(bool IsOpen, ReadSnapshot Snapshot)> OpenAsync(ShardReplica replica, CancellationToken cancellationToken)
    {
        if (replica.TryOpenLinearizable(out var snapshot))
            return (true, snapshot);
        return await replica.ConfirmReadAsync(cancellationToken).ConfigureAwait(false) ? (true, replica.OpenSnapshot()) : default;
    }

    private static ValueTask Refuse<TSink>(TSink sink, Refusal refusal)
        where TSink : struct, IReplySink
    {
        sink.Refuse(refusal);
        return ValueTask.CompletedTask;
    }

    private static Refusal? CheckKey(ReadOnlySpan<byte> key) =>
        key.IsEmpty ? Refusals.KeyEmpty : key.Length > WriteRequest.KeyBytesMax ? Refusals.KeyTooLong : null;

    private ValueTask GetAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var reader = new WireReader(request);
        ReadOnlySpan<byte> key = default;
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == GetRequest.KeyFieldNumber)
                key = reader.ReadBytes();
            else
                reader.Skip();
        }
        if (CheckKey(key) is { } bad)
            return Refuse(sink, bad);
        if (Find(key, target, out var refusal) is not { } shard)
            return Refuse(sink, refusal);
        if (!shard.Replica!.TryOpenLinearizable(out var snapshot))
            return GetConfirmedAsync(key.ToArray(), shard, sink, target.CancellationToken);
        AnswerGet(shard, snapshot, key, sink);
        return ValueTask.CompletedTask;
    }

    private async ValueTask GetConfirmedAsync<TSink>(byte[] key, HostedShard shard, TSink sink, CancellationToken cancellationToken)
        where TSink : struct, IReplySink
    {
        try
        {
            if (await shard.Replica!.ConfirmReadAsync(cancellationToken).ConfigureAwait(false))
                AnswerGet(shard, shard.Replica.OpenSnapshot(), key, sink);
            else
                sink.Refuse(Refusals.NotLeader(shard.Route, node));
        }
        catch (Exception failure) when (Refusals.Of(failure) is { } refusal)
        {
            sink.Refuse(refusal);
        }
    }

    // Ends the snapshot.
    private static void AnswerGet<TSink>(HostedShard shard, ReadSnapshot snapshot, ReadOnlySpan<byte> key, TSink sink)
        where TSink : struct, IReplySink
    {
        using (snapshot)
            sink.Answer(Read(shard.Route.Shard, snapshot, key));
    }

    private static GetAnswer Read(uint shard, in ReadSnapshot snapshot, ReadOnlySpan<byte> key)
    {
        if (!snapshot.TryGet(TreeId.Kv, key, out var stored))
            return new GetAnswer(shard, snapshot.Etag, found: false, default, default);
        var value = KvValue.Read(stored, out var etag);
        return new GetAnswer(shard, snapshot.Etag, found: true, value, etag);
    }

    private ValueTask GetManyAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var reader = new WireReader(request);
        HostedShard? shard = null;
        var keyCount = 0;
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field != GetManyRequest.KeysFieldNumber)
            {
                reader.Skip();
                continue;
            }
            var key = reader.ReadBytes();
            if (CheckKey(key) is { } bad)
                return Refuse(sink, bad);
            if (++keyCount > WriteRequest.OperationCountMax)
                return Refuse(sink, Refusals.TooManyOperations);
            if (shard is not null && !shard.Owns(key))
                return Refuse(sink, Refusals.ShardsDiffer);
            if (shard is null && (shard = Find(key, target, out var refusal)) is null)
                return Refuse(sink, refusal);
        }
        if (shard is null)
            return Refuse(sink, Refusals.BadRequest("The request names no key."));
        if (!shard.Replica!.TryOpenLinearizable(out var snapshot))
            return GetManyConfirmedAsync(request.ToArray(), shard, sink, target.CancellationToken);
        AnswerGetMany(shard, snapshot, request, sink);
        return ValueTask.CompletedTask;
    }

    private async ValueTask GetManyConfirmedAsync<TSink>(byte[] request, HostedShard shard, TSink sink, CancellationToken cancellationToken)
        where TSink : struct, IReplySink
    {
        try
        {
            if (await shard.Replica!.ConfirmReadAsync(cancellationToken).ConfigureAwait(false))
                AnswerGetMany(shard, shard.Replica.OpenSnapshot(), request, sink);
            else
                sink.Refuse(Refusals.NotLeader(shard.Route, node));
        }
        catch (Exception failure) when (Refusals.Of(failure) is { } refusal)
        {
            sink.Refuse(refusal);
        }
    }

    // Ends the snapshot. The request has been checked.
    private static void AnswerGetMany<TSink>(HostedShard shard, ReadSnapshot snapshot, ReadOnlySpan<byte> request, TSink sink)
        where TSink : struct, IReplySink
    {
        var message = MessageBytes.Rent();
        using (snapshot)
        {
            var reader = new WireReader(request);
            for (int field; (field = reader.ReadField()) != 0;)
            {
                if (field != GetManyRequest.KeysFieldNumber)
                {
                    reader.Skip();
                    continue;
                }
                var entry = Read(shard.Route.Shard, snapshot, reader.ReadBytes());
                var entryBytes = entry.Size;
                if (message.Count + entryBytes > Refusals.AnswerBytesMax)
                {
                    message.Return();
                    sink.Refuse(Refusals.AnswerTooLarge);
                    return;
                }
                var writer = new WireWriter(message.Append(WireWriter.BytesFieldSize(entryBytes)));
                writer.BytesHeader(GetManyResponse.EntriesFieldNumber, entryBytes);
                entry.WriteTo(writer.Take(entryBytes));
            }
        }
        sink.Answer(new EncodedAnswer(message.Written));
        message.Return();
    }

    private ValueTask PutAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var reader = new WireReader(request);
        ReadOnlySpan<byte> key = default, value = default, id = default;
        bool hasConditions = false, hasId = false;
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case PutRequest.KeyFieldNumber: key = reader.ReadBytes(); break;
                case PutRequest.ValueFieldNumber: value = reader.ReadBytes(); break;
                case PutRequest.RequestIdFieldNumber:
                    id = reader.ReadBytes();
                    hasId = true;
                    break;
                default:
                    hasConditions |= field == PutRequest.ConditionsFieldNumber;
                    reader.Skip();
                    break;
            }
        }
        if ((CheckKey(key) ?? CheckValue(value)) is { } bad)
            return Refuse(sink, bad);
        if (Find(key, target, out var refusal) is not { } shard)
            return Refuse(sink, refusal);
        var write = WriteRequest.Rent();
        if (hasId && TryIdentify(write, id, shard) is { } badId)
            return Refuse(sink, write, badId);
        if (hasConditions && TryAddConditions(write, request, PutRequest.ConditionsFieldNumber, key, shard) is { } badCondition)
            return Refuse(sink, write, badCondition);
        if (!HasRoom(write, key.Length + value.Length))
            return Refuse(sink, write, Refusals.WriteTooLarge);
        write.Put(key, value);
        return SubmitAsync(write, shard, target, isDelete: false, sink);
    }

    private ValueTask DeleteAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var reader = new WireReader(request);
        ReadOnlySpan<byte> key = default, id = default;
        bool hasConditions = false, hasId = false;
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case DeleteRequest.KeyFieldNumber: key = reader.ReadBytes(); break;
                case DeleteRequest.RequestIdFieldNumber:
                    id = reader.ReadBytes();
                    hasId = true;
                    break;
                default:
                    hasConditions |= field == DeleteRequest.ConditionsFieldNumber;
                    reader.Skip();
                    break;
            }
        }
        if (CheckKey(key) is { } bad)
            return Refuse(sink, bad);
        if (Find(key, target, out var refusal) is not { } shard)
            return Refuse(sink, refusal);
        var write = WriteRequest.Rent();
        if (hasId && TryIdentify(write, id, shard) is { } badId)
            return Refuse(sink, write, badId);
        if (hasConditions && TryAddConditions(write, request, DeleteRequest.ConditionsFieldNumber, key, shard) is { } badCondition)
            return Refuse(sink, write, badCondition);
        write.Delete(key);
        return SubmitAsync(write, shard, target, isDelete: true, sink);
    }

    private ValueTask WriteAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        HostedShard? shard = null;
        var write = WriteRequest.Rent();
        if (TryAddOperations(write, request, target, ref shard, out var id, out var hasId) is { } bad)
            return Refuse(sink, write, bad);
        // Without operations there is no change whose etag could be answered.
        if (shard is null)
            return Refuse(sink, write, Refusals.BadRequest("The request has no operation."));
        if (hasId && TryIdentify(write, id, shard) is { } badId)
            return Refuse(sink, write, badId);
        if (TryAddConditions(write, request, V1.WriteRequest.ConditionsFieldNumber, default, shard) is { } badCondition)
            return Refuse(sink, write, badCondition);
        return SubmitAsync(write, shard, target, isDelete: false, sink);
    }

    private static ValueTask Refuse<TSink>(TSink sink, WriteRequest write, Refusal refusal)
        where TSink : struct, IReplySink
    {
        write.Return();
        return Refuse(sink, refusal);
    }

    private static Refusal? CheckValue(ReadOnlySpan<byte> value) => value.Length > WriteRequest.ValueBytesMax ? Refusals.ValueTooLarge : null;

    private static bool HasRoom(WriteRequest write, int bytes) => write.Bytes + bytes + OverheadBytes <= WriteRequest.BytesMax;

    private ValueTask OpenSessionAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var reader = new WireReader(request);
        ReadOnlySpan<byte> key = default;
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == OpenSessionRequest.KeyFieldNumber)
                key = reader.ReadBytes();
            else
                reader.Skip();
        }
        if (CheckKey(key) is { } bad)
            return Refuse(sink, bad);
        if (Find(key, target, out var refusal) is not { } shard)
            return Refuse(sink, refusal);
        var write = WriteRequest.Rent();
        write.OpenSession();
        return SubmitAsync(write, shard, target, isDelete: false, sink);
    }

    // A session of another shard is not known here, even if one of this shard's has the same etag.
    private static Refusal? TryIdentify(WriteRequest write, ReadOnlySpan<byte> id, HostedShard shard)
    {
        UInt128 session = default;
        ulong sequence = 0, lowestOpen = 0;
        uint sessionShard = 0;
        var reader = new WireReader(id);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case RequestId.SessionFieldNumber: session = ReadEtag(reader.ReadBytes()); break;
                case RequestId.SequenceFieldNumber: sequence = reader.ReadUInt64(); break;
                case RequestId.LowestOpenFieldNumber: lowestOpen = reader.ReadUInt64(); break;
                case RequestId.ShardFieldNumber: sessionShard = reader.ReadUInt32(); break;
                default: reader.Skip(); break;
            }
        }
        if (session == 0 || !WriteRequest.IsIdentityValid(sequence, lowestOpen))
            return Refusals.SequenceInvalid;
        if (sessionShard != shard.Route.Shard)
            return Refusals.SessionExpired;
        write.Identify(session, sequence, lowestOpen);
        return null;
    }

    private Refusal? TryAddOperations(
        WriteRequest write, ReadOnlySpan<byte> request, in CallTarget target, ref HostedShard? shard, out ReadOnlySpan<byte> id, out bool hasId)
    {
        id = default;
        hasId = false;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == V1.WriteRequest.RequestIdFieldNumber)
            {
                id = reader.ReadBytes();
                hasId = true;
                continue;
            }
            if (field != V1.WriteRequest.OperationsFieldNumber)
            {
                reader.Skip();
                continue;
            }
            var kind = ReadOperation(reader.ReadBytes(), out var key, out var value);
            if (kind == 0)
                return Refusals.BadRequest("An operation is neither a put nor a delete.");
            if ((CheckKey(key) ?? CheckValue(value)) is { } bad)
                return bad;
            if (write.OperationCount == WriteRequest.OperationCountMax)
                return Refusals.TooManyOperations;
            if (!HasRoom(write, key.Length + value.Length))
                return Refusals.WriteTooLarge;
            if (shard is not null && !shard.Owns(key))
                return Refusals.ShardsDiffer;
            if (shard is null && (shard = Find(key, target, out var refusal)) is null)
                return refusal;
            if (kind == Operation.PutFieldNumber)
                write.Put(key, value);
            else
                write.Delete(key);
        }
        return null;
    }

    // The operation's field number; 0: none that is known.
    private static int ReadOperation(ReadOnlySpan<byte> operation, out ReadOnlySpan<byte> key, out ReadOnlySpan<byte> value)
    {
        key = value = default;
        var kind = 0;
        var reader = new WireReader(operation);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field is not (Operation.PutFieldNumber or Operation.DeleteFieldNumber))
            {
                reader.Skip();
                continue;
            }
            // Of several members of a oneof the last counts.
            kind = field;
            key = value = default;
            var inner = new WireReader(reader.ReadBytes());
            for (int innerField; (innerField = inner.ReadField()) != 0;)
            {
                if (innerField == PutOperation.KeyFieldNumber)
                    key = inner.ReadBytes();
                else if (innerField == PutOperation.ValueFieldNumber && kind == Operation.PutFieldNumber)
                    value = inner.ReadBytes();
                else
                    inner.Skip();
            }
        }
        return kind;
    }

    /// <summary>Adds the conditions of a request; <paramref name="keyOfOperation"/> stands for those that name none.</summary>
    private static Refusal? TryAddConditions(WriteRequest write, ReadOnlySpan<byte> request, int conditionsField, ReadOnlySpan<byte> keyOfOperation, HostedShard shard)
    {
        var reader = new WireReader(request);
        var conditionCount = 0;
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field != conditionsField)
            {
                reader.Skip();
                continue;
            }
            if (++conditionCount > WriteRequest.OperationCountMax)
                return Refusals.TooManyOperations;
            if (TryAddCondition(write, reader.ReadBytes(), keyOfOperation, shard) is { } bad)
                return bad;
        }
        return null;
    }

    private static Refusal? TryAddCondition(WriteRequest write, ReadOnlySpan<byte> condition, ReadOnlySpan<byte> keyOfOperation, HostedShard shard)
    {
        var key = keyOfOperation;
        ConditionKind? kind = null;
        UInt128 etag = default;
        ReadOnlySpan<byte> value = default;
        var reader = new WireReader(condition);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case Condition.KeyFieldNumber:
                    key = reader.ReadBytes();
                    break;
                case Condition.EtagEqualsFieldNumber:
                    kind = ConditionKind.EtagEquals;
                    etag = ReadEtag(reader.ReadBytes());
                    break;
                case Condition.ExistsFieldNumber:
                    kind = reader.ReadBool() ? ConditionKind.Exists : ConditionKind.Absent;
                    break;
                case Condition.ValueEqualsFieldNumber:
                    kind = ConditionKind.ValueEquals;
                    value = reader.ReadBytes();
                    break;
                default:
                    reader.Skip();
                    break;
            }
        }
        if (kind is null)
            return Refusals.BadRequest("A condition has no test.");
        if ((CheckKey(key) ?? CheckValue(value)) is { } bad)
            return bad;
        if (!shard.Owns(key))
            return Refusals.ShardsDiffer;
        if (!HasRoom(write, key.Length + value.Length))
            return Refusals.WriteTooLarge;
        write.AddCondition(key, kind.Value, etag, value);
        return null;
    }

    private static UInt128 ReadEtag(ReadOnlySpan<byte> message)
    {
        ulong epoch = 0, change = 0;
        var reader = new WireReader(message);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == V1.Etag.EpochFieldNumber)
                epoch = reader.ReadFixed64();
            else if (field == V1.Etag.ChangeFieldNumber)
                change = reader.ReadFixed64();
            else
                reader.Skip();
        }
        return new UInt128(epoch, change);
    }

    private ValueTask SubmitAsync<TSink>(WriteRequest write, HostedShard shard, in CallTarget target, bool isDelete, TSink sink)
        where TSink : struct, IReplySink
    {
        write.DeadlineTimestamp = target.DeadlineTimestamp;
        return FinishAsync(shard.Replica!.WriteAsync(write), shard, isDelete, sink);
    }

    private async ValueTask FinishAsync<TSink>(ValueTask<WriteResult> completion, HostedShard shard, bool isDelete, TSink sink)
        where TSink : struct, IReplySink
    {
        var result = await completion.ConfigureAwait(false);
        if (result.Outcome == WriteOutcome.Applied)
            sink.Answer(new ChangeAnswer(shard.Route.Shard, result.Etag, isDelete && result.Existed));
        else
            sink.Refuse(RefusalOf(result, shard));
    }

    private Refusal RefusalOf(in WriteResult result, HostedShard shard) => result.Outcome switch
    {
        WriteOutcome.ConditionFailed => Refusals.ConditionFailed(shard.Route.Shard, result),
        WriteOutcome.NotLeader => Refusals.NotLeader(shard.Route, node),
        WriteOutcome.DeadlinePassed => Refusals.DeadlinePassed,
        WriteOutcome.DiskFull => Refusals.DiskFull,
        WriteOutcome.Busy => Refusals.Busy,
        WriteOutcome.Stopped => Refusals.Stopping,
        WriteOutcome.SessionExpired => Refusals.SessionExpired,
        WriteOutcome.SequenceClosed => Refusals.SequenceClosed,
        _ => Refusals.OutcomeUnknown,
    };
}
