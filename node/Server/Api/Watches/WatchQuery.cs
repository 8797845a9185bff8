using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Api.Reads;
using KvCluster.Node.Watching;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Watches;

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

    /// <summary>What a message tells of its events. Messages for queries with the same options about the same events are equal.</summary>
    public int Options => (KeysOnly ? 1 : 0) | (WithPrevious ? 2 : 0);

    /// <summary>Reads a request, or says why it is refused.</summary>
    /// <exception cref="MalformedMessageException">The bytes are not a request.</exception>
    public static ApiError? TryRead(ReadOnlySpan<byte> message, out WatchQuery query)
    {
        query = null!;
        ReadOnlySpan<byte> start = default, end = default, prefix = default;
        HashSet<uint> after = [], begun = [];
        var isRepeated = false;
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
                case WatchRequest.AfterFieldNumber: isRepeated |= !after.Add(ReadQuery.ReadPosition(reader.ReadBytes()).Shard.Value); break;
                case WatchRequest.InitialAfterFieldNumber: isRepeated |= !begun.Add(ReadProgress(reader.ReadBytes()).Shard.Value); break;
                default: reader.Skip(); break;
            }
        }
        if (isRepeated)
            return ApiErrors.BadRequest(RequestLimits.RepeatedPositionOfWatch);
        if (RequestRules.CheckBounds(start, end, prefix) is { } tooLong)
            return tooLong;
        if (exact && prefix.IsEmpty)
            return ApiErrors.KeyEmpty;
        var bounds = exact ? new KeyBounds(prefix.ToArray(), (byte[])[.. prefix, 0]) : KeyBounds.Of(start.ToArray(), end.ToArray(), prefix.ToArray());
        if (bounds.IsEmpty)
            return ApiErrors.WatchEmpty;
        query = new WatchQuery(message.ToArray(), new WatchedRange(bounds.Lower, bounds.Upper))
        {
            Initial = initial, KeysOnly = keysOnly, WithPrevious = withPrevious, WithSets = withSets
        };
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

    /// <summary>How many of the entries of a shard the caller has, with the beginning of its lineage; null if the request does not say.</summary>
    /// <exception cref="MalformedMessageException">The bytes are not a request.</exception>
    public (EntriesSent Sent, ulong Lineage)? EntriesSentIn(ShardId shard)
    {
        (EntriesSent, ulong)? found = null;
        var reader = new WireReader(_message);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field != WatchRequest.InitialAfterFieldNumber)
                reader.Skip();
            else if (ReadProgress(reader.ReadBytes()) is var (ofShard, sent, lineage) && ofShard == shard)
                found = (sent, lineage);
        }
        return found;
    }

    private static (ShardId Shard, EntriesSent Sent, ulong Lineage) ReadProgress(ReadOnlySpan<byte> progress)
    {
        var ((shard, etag, lineage), through, isComplete) = ((default(ShardId), Etag.None, 0ul), Array.Empty<byte>(), false);
        var reader = new WireReader(progress);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case InitialProgress.PositionFieldNumber: (shard, etag, lineage) = ReadQuery.ReadPosition(reader.ReadBytes()); break;
                case InitialProgress.ThroughFieldNumber: through = reader.ReadBytes().ToArray(); break;
                case InitialProgress.CompleteFieldNumber: isComplete = reader.ReadBool(); break;
                default: reader.Skip(); break;
            }
        }
        return (shard, new EntriesSent(etag, through, isComplete), lineage);
    }
}

/// <summary>How much of a shard a watch has sent of the entries that it begins with.</summary>
/// <param name="Etag">The state that the keys sent so far are of.</param>
/// <param name="Through">All keys up to this one were sent; empty: none was.</param>
/// <param name="IsComplete">All were sent.</param>
internal readonly record struct EntriesSent(Etag Etag, ReadOnlyMemory<byte> Through, bool IsComplete = false);
