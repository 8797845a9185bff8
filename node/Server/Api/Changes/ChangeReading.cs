using System.Buffers.Binary;
using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Hosting;
using KvCluster.ServiceDefaults.Exchanges;
using KvCluster.Storage.Transactions;
using KvCluster.V1;
using KvCluster.Wire;
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Node.Api.Changes;

/// <summary>Reads operations and request ids into a write. Returns an error if the request is invalid, otherwise null.</summary>
/// <exception cref="MalformedMessageException">The bytes are not a valid message.</exception>
internal static class ChangeReading
{
    public static ApiError? TryIdentify(WriteRequest write, ReadOnlySpan<byte> id, HostedShard shard)
    {
        UInt128 session = default;
        ulong sequence = 0, lowestOpen = 0;
        ulong lineage = 0;
        ShardId sessionShard = default;
        var reader = new WireReader(id);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case RequestId.SessionFieldNumber: session = ReadSession(reader.ReadBytes()); break;
                case RequestId.SequenceFieldNumber: sequence = reader.ReadUInt64(); break;
                case RequestId.LowestOpenFieldNumber: lowestOpen = reader.ReadUInt64(); break;
                case RequestId.LineageFieldNumber: lineage = reader.ReadFixed64(); break;
                case RequestId.ShardFieldNumber: sessionShard = new(reader.ReadUInt32()); break;
                default: reader.Skip(); break;
            }
        }
        if (session == 0)
            return ApiErrors.SessionInvalid;
        if (!WriteRequest.IsIdentityValid(sequence, lowestOpen))
            return ApiErrors.SequenceInvalid;
        if (lineage != 0 && lineage != shard.InLineage.Lineage)
            return ApiErrors.LineageChanged(isIdentifiedChange: true);
        if (sessionShard != shard.Route.ShardId)
            return ApiErrors.SessionExpired;
        write.Identify(session, sequence, lowestOpen);
        return null;
    }

    /// <summary>The id of a session; 0, which is never one, if the bytes cannot be one.</summary>
    public static UInt128 ReadSession(ReadOnlySpan<byte> id) => id.Length == WireWriter.SessionBytes ? BinaryPrimitives.ReadUInt128BigEndian(id) : default;

    /// <summary>Adds the members of a SetAdd or SetRemove.</summary>
    public static ApiError? TryAddMembers(WriteRequest write, ReadOnlySpan<byte> request, ReadOnlySpan<byte> key, bool isAdded)
    {
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            // SetAdd and SetRemove have the members in the same field.
            if (field != SetAddRequest.MembersFieldNumber)
            {
                reader.Skip();
                continue;
            }
            var member = reader.ReadBytes();
            if (write.OperationCount == KvLimits.KeysMax)
                return ApiErrors.TooManyOperations;
            if ((RequestRules.CheckMember(member) ?? RequestRules.CheckRoom(write, key, member)) is { } bad)
                return bad;
            if (isAdded)
                write.SetAdd(key, member);
            else
                write.SetRemove(key, member);
        }
        return null;
    }

    /// <summary>What a put asks for besides its value.</summary>
    /// <param name="owner">The owner's session; empty: none.</param>
    public static ApiError? TryReadTerms(ulong? ttlMs, ReadOnlySpan<byte> owner, bool isNumbered, bool keepsExpiry, bool keepsOwner, out PutTerms terms)
    {
        terms = default;
        if (RequestRules.CheckTtl(ttlMs) is { } bad)
            return bad;
        if ((keepsExpiry && (ttlMs is not null || isNumbered)) || (keepsOwner && (!owner.IsEmpty || isNumbered)))
            return ApiErrors.KeepContradicted;
        var session = ReadSession(owner);
        if (session == 0 && !owner.IsEmpty)
            return ApiErrors.OwnerInvalid;
        terms = new PutTerms(ttlMs ?? 0, session, isNumbered, keepsExpiry, keepsOwner);
        return null;
    }

    /// <summary>Adds the operations of a Write, or of one list of a Transact.</summary>
    /// <param name="operationsField">The number of the field that has them.</param>
    /// <param name="first">The key by which the request is routed.</param>
    /// <param name="shard">The shard of all keys. If it is null, it becomes that of the first key, if there is any operation.</param>
    public static ApiError? TryAddOperations(
        WriteRequest write,
        ReadOnlySpan<byte> request,
        int operationsField,
        ReadOnlySpan<byte> first,
        ShardLookup lookup,
        in CallTarget target,
        ref HostedShard? shard)
    {
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field != operationsField)
            {
                reader.Skip();
                continue;
            }
            var operation = new OperationFields(reader.ReadBytes());
            if (write.ListCount == (write.WantsResults ? KvLimits.ResultsMax : KvLimits.KeysMax))
                return write.WantsResults ? ApiErrors.TooManyResults : ApiErrors.TooManyOperations;
            if (Check(operation, write) is { } bad)
                return bad;
            if (shard is null && (shard = lookup.Find(first, target, isForLeader: true, out var refusal)) is null)
                return refusal;
            if (TryAdd(write, operation, shard, lookup) is { } notAdded)
                return notAdded;
        }
        return null;
    }

    /// <summary>Adds the entries of a chunk of a load as puts.</summary>
    /// <param name="shard">The shard of all keys.</param>
    public static ApiError? TryAddEntries(WriteRequest write, ReadOnlySpan<byte> request, ShardLookup lookup, in CallTarget target, out HostedShard? shard)
    {
        shard = null;
        var told = 0ul;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == BulkLoadRequest.ChunkFieldNumber)
            {
                told = reader.ReadUInt64();
                continue;
            }
            if (field != BulkLoadRequest.EntriesFieldNumber)
            {
                reader.Skip();
                continue;
            }
            reader.ReadEntry(out var key, out var value);
            if (write.OperationCount == KvLimits.KeysMax)
                return ApiErrors.TooManyOperations;
            if (RequestRules.CheckEntry(key, value) is { } bad)
                return bad;
            if (shard is null && (shard = lookup.Find(key, target, isForLeader: true, out var refusal)) is null)
                return refusal;
            if (!shard.Owns(key))
                return ApiErrors.ShardsDiffer(shard, lookup.RouteOf(key));
            if (RequestRules.CheckRoom(write, key, value) is { } full)
                return full;
            write.Put(key, value);
        }
        if (told != target.Chunk)
            return ApiErrors.BadRequest(BulkLoadStream.WrongNumber(target.Chunk, told));
        return shard is null ? ApiErrors.BadRequest(BulkLoadStream.NoEntry) : null;
    }

    // Checks what does not depend on the shard.
    private static ApiError? Check(in OperationFields operation, WriteRequest write)
    {
        if (operation.Kind == Operation.OperationOneofCase.None)
            return ApiErrors.BadRequest("An operation does nothing that this version knows. Nothing was applied.");
        if (operation.NeedsResults && !write.WantsResults)
            return ApiErrors.BadRequest("A write with operations that read, increments or sequences must ask for results. Nothing was applied.");
        return operation.Kind switch
        {
            Operation.OperationOneofCase.Put => RequestRules.CheckEntry(operation.Key, operation.Value),
            Operation.OperationOneofCase.DeleteRange or Operation.OperationOneofCase.Scan => CheckRange(operation),
            Operation.OperationOneofCase.Touch => RequestRules.CheckKey(operation.Key) ?? RequestRules.CheckTtl(operation.TtlMs),
            Operation.OperationOneofCase.SetAdd => RequestRules.CheckKey(operation.Key) ?? RequestRules.CheckMember(operation.Value),
            Operation.OperationOneofCase.SetRemove or Operation.OperationOneofCase.SetGet =>
                RequestRules.CheckKey(operation.Key) ?? (operation.Value.IsEmpty ? null : RequestRules.CheckMember(operation.Value)),
            _ => RequestRules.CheckKey(operation.Key),
        };
    }

    private static ApiError? CheckRange(in OperationFields operation)
    {
        if (RequestRules.CheckBounds(operation.Key, operation.End) is { } tooLong)
            return tooLong;
        return operation.Limit <= KvLimits.ScanEntriesMax ? null
            : ApiErrors.BadRequest("The limit of a scan in a write or transaction is at most 1,000. Nothing was applied.");
    }

    private static ApiError? TryAdd(WriteRequest write, in OperationFields operation, HostedShard shard, ShardLookup lookup)
    {
        var key = operation.Key;
        var value = operation.Value;
        if (operation.Kind is Operation.OperationOneofCase.DeleteRange or Operation.OperationOneofCase.Scan)
            return TryAddRange(write, operation, shard, lookup);
        if (!shard.Owns(key))
            return ApiErrors.ShardsDiffer(shard, lookup.RouteOf(key));
        if (RequestRules.CheckRoom(write, key, value) is { } full)
            return full;
        switch (operation.Kind)
        {
            case Operation.OperationOneofCase.Put:
                return TryAddPut(write, operation, shard, lookup);
            case Operation.OperationOneofCase.Delete:
                write.Delete(key);
                break;
            case Operation.OperationOneofCase.Increment:
                write.Increment(key, operation.By);
                break;
            case Operation.OperationOneofCase.Touch:
                write.Touch(key, operation.TtlMs ?? 0);
                break;
            case Operation.OperationOneofCase.Get:
                write.Get(key);
                break;
            case Operation.OperationOneofCase.SetGet:
                write.SetGet(key, value);
                break;
            default:
                AddToSet(write, operation);
                break;
        }
        return null;
    }

    private static void AddToSet(WriteRequest write, in OperationFields operation)
    {
        write.LeavesOutUnchanged = true;
        if (operation.Kind == Operation.OperationOneofCase.SetAdd)
            write.SetAdd(operation.Key, operation.Value);
        else if (operation.Value.IsEmpty)
            write.SetDelete(operation.Key);
        else
            write.SetRemove(operation.Key, operation.Value);
    }

    private static ApiError? TryAddPut(WriteRequest write, in OperationFields operation, HostedShard shard, ShardLookup lookup)
    {
        if (TryReadTerms(operation.TtlMs, operation.Owner, operation.IsNumbered, operation.KeepsExpiry, operation.KeepsOwner, out var terms) is { } bad)
            return bad;
        if (terms.IsNumbered && RequestRules.CheckNumbered(shard, lookup, operation.Key) is { } badPrefix)
            return badPrefix;
        write.Put(operation.Key, operation.Value, terms);
        return null;
    }

    private static ApiError? TryAddRange(WriteRequest write, in OperationFields operation, HostedShard shard, ShardLookup lookup)
    {
        var from = operation.Key;
        if (RequestRules.CheckRange(shard, lookup, ref from, operation.End, out var to) is { } bad)
            return bad;
        if (RequestRules.CheckRoom(write, from, to) is { } full)
            return full;
        if (operation.Kind == Operation.OperationOneofCase.DeleteRange)
            write.DeleteRange(from, to);
        else
            write.Scan(from, to, operation.Limit == 0 ? KvLimits.ScanEntriesMax : (int)operation.Limit, operation.KeysOnly);
        return null;
    }
}
