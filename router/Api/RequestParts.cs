using Google.Protobuf;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Router.Api;

/// <summary>
/// What an encoded request has besides its keys that matters on its way: its id, its read mode and counts. Read without decoding or copying anything else. The
/// keys are found by <see cref="RequestKeys"/>.
/// </summary>
/// <param name="HasId">Whether a change has a RequestId, so that repeating it is harmless.</param>
/// <param name="Mode">The read mode of a read of one shard; unspecified for other methods. Pages of a List are read at the leader, because their snapshot is
/// kept at one node.</param>
/// <param name="IsOfNearest">Whether it is a Get of the nearest key.</param>
/// <param name="Keys">The number of keys of a GetMany.</param>
/// <param name="Positions">The number of positions in the options of a read.</param>
/// <param name="ObjectBytes">The memory that the call takes besides its bytes. The keys and positions of a GetMany become objects, to be sent to their shards,
/// and so do the positions of a Count and of a search of the nearest key. For other methods it is 0, because their bytes are passed on. Requests with too many
/// parts are refused.</param>
internal readonly record struct RequestParts(bool HasId, ReadMode Mode, bool IsOfNearest, int Keys, int Positions, int ObjectBytes)
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

    /// <summary>Reads the parts of a request.</summary>
    /// <exception cref="MalformedMessageException">The bytes are not a message.</exception>
    public static RequestParts Of(Method method, ReadOnlySpan<byte> request)
    {
        var (idField, readField) = (method.RequestIdField(), method == Method.List ? 0 : method.ReadOptionsField());
        var (hasId, isOfNearest, mode) = (false, false, ReadMode.Unspecified);
        var (keys, positions) = (0, 0);
        var reader = new WireReader(request);
        for (int field; idField + readField != 0 && (field = reader.ReadField()) != 0;)
        {
            if (field == readField)
            {
                mode = ReadOptionsIn(reader.ReadBytes(), ref positions);
                continue;
            }
            hasId |= field == idField;
            isOfNearest |= method == Method.Get && field == GetRequest.NearestFieldNumber;
            keys += method == Method.GetMany && field == GetManyRequest.KeysFieldNumber ? 1 : 0;
            reader.Skip();
        }
        var hasObjects = (method is Method.GetMany or Method.Count || isOfNearest) && keys <= KvLimits.KeysMax && positions <= RequestLimits.PositionsMax;
        return new RequestParts(
            hasId, method == Method.GetMany ? ReadMode.Unspecified : mode, isOfNearest, keys, positions, hasObjects ? (keys + positions) * PartBytes : 0);
    }

    /// <summary>The error message for a reader that names more.</summary>
    public static readonly string TooManyPositions =
        $"read.seen may have at most {RequestLimits.PositionsMax:N0} positions; nothing was read. Send the newest position of each shard that is read.";

    /// <summary>The error message for a watcher that names more.</summary>
    public static readonly string TooManyPositionsOfWatch =
        $"after may have at most {RequestLimits.PositionsMax:N0} positions; nothing was watched. Send the newest position of each shard that is watched.";

    /// <summary>Counts the positions that a watch goes on after, also within the entries that it begins with.</summary>
    /// <exception cref="MalformedMessageException">The bytes are not a message.</exception>
    public static int CountPositionsOfWatch(ReadOnlySpan<byte> request) =>
        CountFields(request, WatchRequest.AfterFieldNumber) + CountFields(request, WatchRequest.InitialAfterFieldNumber);

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

    private static int CountFields(ReadOnlySpan<byte> message, int counted)
    {
        var count = 0;
        var reader = new WireReader(message);
        for (int field; (field = reader.ReadField()) != 0; reader.Skip())
            count += field == counted ? 1 : 0;
        return count;
    }

    // Of options that are repeated against the contract the last ones count.
    private static ReadMode ReadOptionsIn(ReadOnlySpan<byte> options, ref int positions)
    {
        var mode = ReadMode.Unspecified;
        var reader = new WireReader(options);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            positions += field == ReadOptions.SeenFieldNumber ? 1 : 0;
            if (field == ReadOptions.ModeFieldNumber)
                mode = (ReadMode)reader.ReadUInt32();
            else
                reader.Skip();
        }
        return mode;
    }
}
