using Google.Protobuf;
using KvCluster.Client.Routing;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Client.Transport;

/// <summary>Puts of one shard, encoded as the operations of a Write while they are added. Used by the client library and the router; one thread.</summary>
internal sealed class PutBatch
{
    private byte[] _bytes;

    /// <param name="capacity">About how many bytes it will have.</param>
    public PutBatch(int capacity) => _bytes = GC.AllocateUninitializedArray<byte>(capacity);

    /// <summary>Puts added.</summary>
    public int Count { get; private set; }

    /// <summary>Their encoded size.</summary>
    public int Bytes { get; private set; }

    /// <summary>The key of the first put, by which the Write is routed.</summary>
    public ReadOnlyMemory<byte> FirstKey => _bytes.AsMemory(FirstKeyRange);

    /// <summary>Where that key is in <see cref="Request"/>.</summary>
    public Range FirstKeyRange { get; private set; }

    /// <summary>Where it is in the map by which puts were divided.</summary>
    public KeyPlace Place { get; init; }

    /// <summary>The Write. No more may be added while it is in use.</summary>
    public ByteString Request => UnsafeByteOperations.UnsafeWrap(_bytes.AsMemory(0, Bytes));

    /// <summary>Adds a put.</summary>
    public void Add(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value)
    {
        var putBytes = WireWriter.BytesFieldSize(key.Length) + WireWriter.BytesFieldSize(value.Length);
        var operationBytes = WireWriter.BytesFieldSize(putBytes);
        var writer = new WireWriter(RoomFor(WireWriter.BytesFieldSize(operationBytes)));
        var all = writer.Left;
        writer.BytesHeader(WriteRequest.OperationsFieldNumber, operationBytes);
        writer.BytesHeader(Operation.PutFieldNumber, putBytes);
        writer.BytesHeader(PutOperation.KeyFieldNumber, key.Length);
        if (Count++ == 0 && Bytes + all - writer.Left is var at)
            FirstKeyRange = at..(at + key.Length);
        key.CopyTo(writer.Take(key.Length));
        writer.BytesField(PutOperation.ValueFieldNumber, value);
        Bytes += all;
    }

    /// <summary>The Write with one more field behind the puts, which takes the place of an earlier one.</summary>
    /// <param name="field">The room for it, to be filled before the request is used.</param>
    /// <param name="bytes">The size of the field.</param>
    public ByteString RequestWith(out Span<byte> field, int bytes)
    {
        field = RoomFor(bytes);
        return UnsafeByteOperations.UnsafeWrap(_bytes.AsMemory(0, Bytes + bytes));
    }

    /// <summary>Reads the puts in order.</summary>
    public Reader Read() => new(_bytes.AsSpan(0, Bytes));

    /// <summary>The puts by their shards of today.</summary>
    public IReadOnlyList<PutBatch> Divide(RouteTable table)
    {
        var parts = new PutParts(table, Bytes);
        for (var puts = Read(); puts.MoveNext();)
            parts.Add(puts.Key, puts.Value);
        return parts.Batches;
    }

    private Span<byte> RoomFor(int bytes)
    {
        if (_bytes.Length - Bytes < bytes)
            Array.Resize(ref _bytes, checked((int)Math.Max((uint)_bytes.Length * 2, (uint)(Bytes + bytes))));
        return _bytes.AsSpan(Bytes, bytes);
    }

    /// <summary>Reads puts that this class has encoded.</summary>
    internal ref struct Reader(ReadOnlySpan<byte> operations)
    {
        private WireReader _operations = new(operations);

        /// <summary>The key of the present put.</summary>
        public ReadOnlySpan<byte> Key { get; private set; }

        /// <summary>Its value.</summary>
        public ReadOnlySpan<byte> Value { get; private set; }

        /// <summary>Goes to the next put.</summary>
        public bool MoveNext()
        {
            if (_operations.ReadField() == 0)
                return false;
            var operation = new WireReader(_operations.ReadBytes());
            operation.ReadField();
            // A put has key and value in the same fields as an entry.
            operation.ReadEntry(out var key, out var value);
            Key = key;
            Value = value;
            return true;
        }
    }
}
