using Google.Protobuf;
using KvCluster.Client.Transport;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Client.Sessions;

/// <summary>The identity of one change. It must be returned with <see cref="Settle"/> once, when nobody waits for its outcome any more.</summary>
/// <param name="Sessions">Where it was taken.</param>
/// <param name="Session">Its session.</param>
/// <param name="Sequence">Its sequence in the session.</param>
/// <param name="LowestOpen">The session's lowest open sequence when it was taken.</param>
internal readonly record struct RequestTicket(ShardSessions Sessions, ClientSession Session, ulong Sequence, ulong LowestOpen)
{
    private int IdBytes => WireWriter.RequestIdSize(Session.Shard, Sequence, LowestOpen);

    /// <summary>Marks the request as settled.</summary>
    public void Settle()
    {
        if (Session.Settle(Sequence))
            Sessions.TellRoom();
    }

    /// <summary>Encodes a put request with this identity, in one array.</summary>
    public ByteString Encode(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, KvCondition? condition)
    {
        var conditionBytes = condition?.Message.CalculateSize() ?? 0;
        var bytes = new byte[WireWriter.BytesFieldSize(key.Length) + WireWriter.BytesFieldSize(value.Length)
            + (condition is null ? 0 : WireWriter.BytesFieldSize(conditionBytes)) + WireWriter.BytesFieldSize(IdBytes)];
        var writer = new WireWriter(bytes);
        writer.BytesField(PutRequest.KeyFieldNumber, key);
        writer.BytesField(PutRequest.ValueFieldNumber, value);
        if (condition is not null)
        {
            writer.BytesHeader(PutRequest.ConditionsFieldNumber, conditionBytes);
            condition.Message.WriteTo(writer.Take(conditionBytes));
        }
        WriteId(ref writer, PutRequest.RequestIdFieldNumber);
        return UnsafeByteOperations.UnsafeWrap(bytes);
    }

    /// <summary>Encodes a request that has no identity yet, with this one added as its field.</summary>
    public ByteString Encode(IMessage request, int idField)
    {
        var requestBytes = request.CalculateSize();
        var bytes = new byte[requestBytes + WireWriter.BytesFieldSize(IdBytes)];
        var writer = new WireWriter(bytes);
        request.WriteTo(writer.Take(requestBytes));
        WriteId(ref writer, idField);
        return UnsafeByteOperations.UnsafeWrap(bytes);
    }

    /// <summary>Adds this identity to an encoded request that has none.</summary>
    public ByteString Encode(ReadOnlySpan<byte> request, int idField)
    {
        var bytes = new byte[request.Length + WireWriter.BytesFieldSize(IdBytes)];
        request.CopyTo(bytes);
        var writer = new WireWriter(bytes.AsSpan(request.Length));
        WriteId(ref writer, idField);
        return UnsafeByteOperations.UnsafeWrap(bytes);
    }

    /// <summary>Encodes a Write of puts with this identity, in the memory of the batch.</summary>
    public ByteString Encode(PutBatch puts)
    {
        var request = puts.RequestWith(out var field, WireWriter.BytesFieldSize(IdBytes));
        var writer = new WireWriter(field);
        WriteId(ref writer, WriteRequest.RequestIdFieldNumber);
        return request;
    }

    private void WriteId(ref WireWriter writer, int field) => writer.RequestIdField(field, Session.Id, Session.Shard, Sequence, LowestOpen);
}
