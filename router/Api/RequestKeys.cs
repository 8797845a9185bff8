using Google.Protobuf;
using KvCluster.ServiceDefaults;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Router.Api;

/// <summary>Finds keys and request ids in encoded requests, without decoding or copying anything else.</summary>
internal static class RequestKeys
{
    /// <summary>The memory of a key, or of a position and its etag, as objects with the reference to them.</summary>
    public const int PartBytes = 128;

    /// <summary>The first key of a request to one shard; empty if it names none.</summary>
    /// <exception cref="InvalidProtocolBufferException">The bytes are not a message.</exception>
    public static ReadOnlySpan<byte> First(Method method, ReadOnlySpan<byte> request)
    {
        var keys = new Walk(method, request);
        return keys.MoveNext() ? keys.Current : default;
    }

    /// <summary>Whether a change has a RequestId, so that repeating it is harmless.</summary>
    /// <exception cref="InvalidProtocolBufferException">The bytes are not a message.</exception>
    public static bool HasId(Method method, ReadOnlySpan<byte> request)
    {
        var idField = method switch
        {
            Method.Put => PutRequest.RequestIdFieldNumber,
            Method.Delete => DeleteRequest.RequestIdFieldNumber,
            Method.Write => WriteRequest.RequestIdFieldNumber,
            _ => 0,
        };
        var reader = new WireReader(request);
        for (int field; idField != 0 && (field = reader.ReadField()) != 0;)
        {
            if (field == idField)
                return true;
            reader.Skip();
        }
        return false;
    }

    /// <summary>The read mode of a Get; unspecified for other methods.</summary>
    /// <exception cref="InvalidProtocolBufferException">The bytes are not a message.</exception>
    public static ReadMode ModeOf(Method method, ReadOnlySpan<byte> request)
    {
        var reader = new WireReader(request);
        var mode = ReadMode.Unspecified;
        for (int field; method == Method.Get && (field = reader.ReadField()) != 0;)
        {
            if (field == GetRequest.ReadFieldNumber)
                mode = ModeIn(reader.ReadBytes());
            else
                reader.Skip();
        }
        return mode;
    }

    /// <summary>The error message for a caller that names more.</summary>
    public static readonly string TooManyPositions =
        $"read.seen may have at most {RequestLimits.PositionsMax:N0} positions; nothing was read. Send the newest position of each shard that is read.";

    /// <summary>Counts the keys of a GetMany and the positions in its read options.</summary>
    /// <exception cref="MalformedMessageException">The bytes are not a message.</exception>
    public static (int Keys, int Positions) CountMany(ReadOnlySpan<byte> request)
    {
        var (keys, positions) = (0, 0);
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == GetManyRequest.KeysFieldNumber)
                keys++;
            if (field == GetManyRequest.ReadFieldNumber)
                positions += PositionsIn(reader.ReadBytes());
            else
                reader.Skip();
        }
        return (keys, positions);
    }

    /// <summary>Counts the positions that a watch goes on after.</summary>
    /// <exception cref="MalformedMessageException">The bytes are not a message.</exception>
    public static int CountPositionsOfWatch(ReadOnlySpan<byte> request)
    {
        var positions = 0;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            positions += field == WatchRequest.AfterFieldNumber ? 1 : 0;
            reader.Skip();
        }
        return positions;
    }

    /// <summary>
    /// The memory that a call takes besides its bytes. The keys and positions of a GetMany become objects, to be sent to their shards. For other methods it
    /// is 0, because their bytes are passed on, and those with too many parts are refused.
    /// </summary>
    public static int ObjectBytes(Method method, ReadOnlySpan<byte> request)
    {
        if (method != Method.GetMany)
            return 0;
        try
        {
            var (keys, positions) = CountMany(request);
            return keys > KvLimits.KeysMax || positions > RequestLimits.PositionsMax ? 0 : (keys + positions) * PartBytes;
        }
        catch (MalformedMessageException)
        {
            // Its caller is told when it is forwarded.
            return 0;
        }
    }

    /// <summary>Counts the positions in the read options of a Scan.</summary>
    /// <exception cref="MalformedMessageException">The bytes are not a message.</exception>
    public static int CountPositionsOfScan(ReadOnlySpan<byte> request)
    {
        var positions = 0;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == ScanRequest.ReadFieldNumber)
                positions += PositionsIn(reader.ReadBytes());
            else
                reader.Skip();
        }
        return positions;
    }

    private static int PositionsIn(ReadOnlySpan<byte> options)
    {
        var positions = 0;
        var reader = new WireReader(options);
        for (int field; (field = reader.ReadField()) != 0; reader.Skip())
            positions += field == ReadOptions.SeenFieldNumber ? 1 : 0;
        return positions;
    }

    private static ReadMode ModeIn(ReadOnlySpan<byte> options)
    {
        var reader = new WireReader(options);
        var mode = ReadMode.Unspecified;
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == ReadOptions.ModeFieldNumber)
                mode = (ReadMode)reader.ReadUInt32();
            else
                reader.Skip();
        }
        return mode;
    }

    /// <summary>The keys of a request in the order of the message; of a Write, those of its conditions and operations.</summary>
    internal ref struct Walk(Method method, ReadOnlySpan<byte> request)
    {
        private readonly Method _method = method;
        private WireReader _reader = new(request);

        public ReadOnlySpan<byte> Current { get; private set; }

        /// <summary>Advances to the next key.</summary>
        public bool MoveNext()
        {
            for (int field; (field = _reader.ReadField()) != 0;)
            {
                if (_method == Method.Write && field is (WriteRequest.OperationsFieldNumber or WriteRequest.ConditionsFieldNumber))
                {
                    Current = KeyIn(field, _reader.ReadBytes());
                    return true;
                }
                if (_method != Method.Write && field == GetRequest.KeyFieldNumber)
                {
                    // Get, Put, Delete, OpenSession and GetMany have the key, or the keys, in field 1.
                    Current = _reader.ReadBytes();
                    return true;
                }
                _reader.Skip();
            }
            return false;
        }

        private static ReadOnlySpan<byte> KeyIn(int field, ReadOnlySpan<byte> part)
        {
            var reader = new WireReader(part);
            for (int inner; (inner = reader.ReadField()) != 0;)
            {
                if (field == WriteRequest.OperationsFieldNumber && inner is (Operation.PutFieldNumber or Operation.DeleteFieldNumber))
                    return FirstField(reader.ReadBytes());
                if (field == WriteRequest.ConditionsFieldNumber && inner == Condition.KeyFieldNumber)
                    return reader.ReadBytes();
                reader.Skip();
            }
            return default;
        }

        private static ReadOnlySpan<byte> FirstField(ReadOnlySpan<byte> operation)
        {
            var reader = new WireReader(operation);
            for (int field; (field = reader.ReadField()) != 0;)
            {
                if (field == PutOperation.KeyFieldNumber)
                    return reader.ReadBytes();
                reader.Skip();
            }
            return default;
        }
    }
}
