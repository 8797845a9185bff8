using KvCluster.Node.Watching;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api;

/// <summary>A request for a watch, read from its encoded form. Its positions stay encoded, because each would become objects of many times its bytes.</summary>
internal sealed class WatchQuery
{
    private readonly byte[] _message;

    private WatchQuery(byte[] message, WatchedRange range) => (_message, Range) = (message, range);

    /// <summary>The range that is asked for, which may go on in other shards.</summary>
    public WatchedRange Range { get; }

    public bool Initial { get; private init; }

    public bool KeysOnly { get; private init; }

    public bool WithPrevious { get; private init; }

    public bool WithSets { get; private init; }

    /// <summary>Reads a request, or says why it is refused.</summary>
    /// <exception cref="MalformedMessageException">The bytes are not a request.</exception>
    public static ApiError? TryRead(ReadOnlySpan<byte> message, out WatchQuery query)
    {
        query = null!;
        ReadOnlySpan<byte> start = default, end = default, prefix = default;
        bool exact = false, initial = false, keysOnly = false, withPrevious = false, withSets = false;
        var reader = new WireReader(message);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case WatchRequest.StartFieldNumber: start = reader.ReadBytes(); break;
                case WatchRequest.EndFieldNumber: end = reader.ReadBytes(); break;
                case WatchRequest.PrefixFieldNumber: prefix = reader.ReadBytes(); break;
                case WatchRequest.ExactFieldNumber: exact = reader.ReadBool(); break;
                case WatchRequest.InitialFieldNumber: initial = reader.ReadBool(); break;
                case WatchRequest.KeysOnlyFieldNumber: keysOnly = reader.ReadBool(); break;
                case WatchRequest.WithPreviousFieldNumber: withPrevious = reader.ReadBool(); break;
                case WatchRequest.WithSetsFieldNumber: withSets = reader.ReadBool(); break;
                default: reader.Skip(); break;
            }
        }
        if (RequestRules.CheckBounds(start, end, prefix) is { } tooLong)
            return tooLong;
        if (exact && prefix.IsEmpty)
            return ApiErrors.KeyEmpty;
        var bounds = exact ? new KeyBounds(prefix.ToArray(), (byte[])[.. prefix, 0]) : KeyBounds.Of(start.ToArray(), end.ToArray(), prefix.ToArray());
        if (bounds.IsEmpty)
            return ApiErrors.WatchEmpty;
        query = new WatchQuery(message.ToArray(), new WatchedRange(bounds.Lower, bounds.Upper)) { Initial = initial, KeysOnly = keysOnly, WithPrevious = withPrevious, WithSets = withSets };
        return null;
    }

    /// <summary>The position that the request names for a shard, with the beginning of its lineage; null if it names none.</summary>
    /// <exception cref="MalformedMessageException">The bytes are not a request.</exception>
    public (Etag Etag, ulong Lineage)? AfterIn(ShardId shard)
    {
        (Etag, ulong)? after = null;
        var reader = new WireReader(_message);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field != WatchRequest.AfterFieldNumber)
                reader.Skip();
            else if (ReadQuery.ReadPosition(reader.ReadBytes()) is var (ofShard, etag, lineage) && ofShard == shard)
                after = (etag, lineage);
        }
        return after;
    }
}
