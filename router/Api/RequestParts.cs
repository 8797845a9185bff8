using Google.Protobuf;
using KvCluster.ServiceDefaults;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Router.Api;

/// <summary>
/// Finds request ids, read modes and counts in encoded requests, without decoding or copying anything else. Their keys are found by <see cref="RequestKeys"/>.
/// </summary>
internal static class RequestParts
{
    /// <summary>The memory of a key, or of a position and its etag, as objects with the reference to them.</summary>
    public const int PartBytes = 128;

    /// <summary>The range of a DeleteRange without its id and conditions.</summary>
    /// <exception cref="MalformedMessageException">The bytes are not a message.</exception>
    public static DeleteRangeRequest RangeOf(ReadOnlySpan<byte> request)
    {
        var range = new DeleteRangeRequest();
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case DeleteRangeRequest.StartFieldNumber: range.Start = ByteString.CopyFrom(reader.ReadBytes()); break;
                case DeleteRangeRequest.EndFieldNumber: range.End = ByteString.CopyFrom(reader.ReadBytes()); break;
                case DeleteRangeRequest.PrefixFieldNumber: range.Prefix = ByteString.CopyFrom(reader.ReadBytes()); break;
                case DeleteRangeRequest.AllFieldNumber: range.All = reader.ReadBool(); break;
                default: reader.Skip(); break;
            }
        }
        return range;
    }

    /// <summary>Whether a change has a RequestId, so that repeating it is harmless.</summary>
    /// <exception cref="MalformedMessageException">The bytes are not a message.</exception>
    public static bool HasId(Method method, ReadOnlySpan<byte> request)
    {
        var idField = method.RequestIdField();
        var reader = new WireReader(request);
        for (int field; idField != 0 && (field = reader.ReadField()) != 0;)
        {
            if (field == idField)
                return true;
            reader.Skip();
        }
        return false;
    }

    /// <summary>
    /// The read mode of a read of one shard; unspecified for other methods. Pages of a List are read at the leader, because their snapshot is kept at one node.
    /// </summary>
    /// <exception cref="MalformedMessageException">The bytes are not a message.</exception>
    public static ReadMode ModeOf(Method method, ReadOnlySpan<byte> request)
    {
        var mode = ReadMode.Unspecified;
        var readField = method is Method.GetMany or Method.List ? 0 : method.ReadOptionsField();
        if (readField == 0)
            return mode;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == readField)
                mode = ModeIn(reader.ReadBytes());
            else
                reader.Skip();
        }
        return mode;
    }

    /// <summary>The error message for a reader that names more.</summary>
    public static readonly string TooManyPositions =
        $"read.seen may have at most {RequestLimits.PositionsMax:N0} positions; nothing was read. Send the newest position of each shard that is read.";

    /// <summary>The error message for a watcher that names more.</summary>
    public static readonly string TooManyPositionsOfWatch =
        $"after may have at most {RequestLimits.PositionsMax:N0} positions; nothing was watched. Send the newest position of each shard that is watched.";

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
                positions += CountFields(reader.ReadBytes(), ReadOptions.SeenFieldNumber);
            else
                reader.Skip();
        }
        return (keys, positions);
    }

    /// <summary>Counts the positions that a watch goes on after, also within the entries that it begins with.</summary>
    /// <exception cref="MalformedMessageException">The bytes are not a message.</exception>
    public static int CountPositionsOfWatch(ReadOnlySpan<byte> request) =>
        CountFields(request, WatchRequest.AfterFieldNumber) + CountFields(request, WatchRequest.InitialAfterFieldNumber);

    /// <summary>
    /// The memory that a call takes besides its bytes. The keys and positions of a GetMany become objects, to be sent to their shards, and so do the positions
    /// of a Count and of a search of the nearest key. For other methods it is 0, because their bytes are passed on. Requests with too many parts are refused.
    /// </summary>
    public static int ObjectBytes(Method method, ReadOnlySpan<byte> request)
    {
        if (method is not (Method.GetMany or Method.Count or Method.Get))
            return 0;
        try
        {
            if (method != Method.GetMany)
                return method == Method.Get && !IsOfNearest(request) ? 0 : CountPositions(request, method.ReadOptionsField()) is <= RequestLimits.PositionsMax and var seen ? seen * PartBytes : 0;
            var (keys, positions) = CountMany(request);
            return keys > KvLimits.KeysMax || positions > RequestLimits.PositionsMax ? 0 : (keys + positions) * PartBytes;
        }
        catch (MalformedMessageException)
        {
            // The caller of a malformed request gets the error when the request is forwarded.
            return 0;
        }
    }

    /// <summary>Counts the positions in the read options of a request.</summary>
    /// <param name="request">The encoded request.</param>
    /// <param name="readField">The number of the field with the options.</param>
    /// <exception cref="MalformedMessageException">The bytes are not a message.</exception>
    public static int CountPositions(ReadOnlySpan<byte> request, int readField)
    {
        var positions = 0;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == readField)
                positions += CountFields(reader.ReadBytes(), ReadOptions.SeenFieldNumber);
            else
                reader.Skip();
        }
        return positions;
    }

    /// <summary>Whether a Get asks for the nearest key.</summary>
    /// <exception cref="MalformedMessageException">The bytes are not a message.</exception>
    public static bool IsOfNearest(ReadOnlySpan<byte> get)
    {
        var reader = new WireReader(get);
        for (int field; (field = reader.ReadField()) != 0; reader.Skip())
        {
            if (field == GetRequest.NearestFieldNumber)
                return true;
        }
        return false;
    }

    private static int CountFields(ReadOnlySpan<byte> message, int counted)
    {
        var count = 0;
        var reader = new WireReader(message);
        for (int field; (field = reader.ReadField()) != 0; reader.Skip())
            count += field == counted ? 1 : 0;
        return count;
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
}
