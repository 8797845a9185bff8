using System.Buffers.Binary;
using KvCluster.Node.Hosting;
using KvCluster.V1;
using KvCluster.Wire;
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Node.Api;

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

    // 0, which is never a session, if the bytes cannot be one.
    private static UInt128 ReadSession(ReadOnlySpan<byte> id) => id.Length == WireWriter.SessionBytes ? BinaryPrimitives.ReadUInt128BigEndian(id) : default;

    /// <summary>Adds the operations of a Write.</summary>
    /// <param name="shard">The shard of all its keys; null if it has no operation.</param>
    /// <param name="id">The encoded RequestId, if <paramref name="hasId"/>.</param>
    /// <param name="wantsResults">Whether the answer is to have a result for each operation.</param>
    public static ApiError? TryAddOperations(
        WriteRequest write, ReadOnlySpan<byte> request, ShardLookup lookup, in CallTarget target, out HostedShard? shard, out ReadOnlySpan<byte> id, out bool hasId, out bool wantsResults)
    {
        wantsResults = false;
        shard = null;
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
            if (field == V1.WriteRequest.WithResultsFieldNumber)
            {
                wantsResults = reader.ReadBool();
                continue;
            }
            if (field != V1.WriteRequest.OperationsFieldNumber)
            {
                reader.Skip();
                continue;
            }
            var kind = ReadOperation(reader.ReadBytes(), out var key, out var value);
            if (kind == 0)
                return ApiErrors.BadRequest("An operation is neither a put nor a delete.");
            if (RequestRules.CheckEntry(key, value) is { } bad)
                return bad;
            if (write.OperationCount == KvLimits.KeysMax)
                return ApiErrors.TooManyOperations;
            if (RequestRules.CheckRoom(write, key, value) is { } full)
                return full;
            if (shard is not null && !shard.Owns(key))
                return ApiErrors.ShardsDiffer(shard, lookup.RouteOf(key));
            if (shard is null && (shard = lookup.Find(key, target, isForLeader: true, out var refusal)) is null)
                return refusal;
            if (kind == Operation.PutFieldNumber)
                write.Put(key, value);
            else
                write.Delete(key);
        }
        return null;
    }

    /// <summary>For each operation of a Write whether it is a delete.</summary>
    public static bool[] FindDeletes(ReadOnlySpan<byte> request, int count)
    {
        var areDeletes = new bool[count];
        var index = 0;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == V1.WriteRequest.OperationsFieldNumber)
                areDeletes[index++] = ReadOperation(reader.ReadBytes(), out _, out _) == Operation.DeleteFieldNumber;
            else
                reader.Skip();
        }
        return areDeletes;
    }

    // Returns the operation's field number; 0 if none is known.
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
            // If several members of a oneof are present, the last one counts.
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
}
