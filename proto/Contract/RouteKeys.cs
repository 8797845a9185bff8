using KvCluster.V1;

namespace KvCluster;

/// <summary>The key by whose shard a request is routed, where it is not simply the request's key. Used by the client library and the router; pure.</summary>
internal static class RouteKeys
{
    // As ListPageToken of the node writes it: the snapshot's token, whether the key is a bound between two shards, a checksum of the range, the key.
    private const int TokenBoundAt = sizeof(ulong);
    private const int TokenPlaceBytes = TokenBoundAt + 1 + sizeof(uint);

    /// <summary>Whether the page of a token ended with its shard, so that the next one begins in another shard.</summary>
    public static bool IsAtBound(ReadOnlySpan<byte> pageToken) => pageToken.Length > TokenPlaceBytes && pageToken[TokenBoundAt] == 1;

    /// <summary>That of a page: where the rest of the range begins; in reverse, where it ends.</summary>
    public static ReadOnlyMemory<byte> Of(ListRequest request) =>
        Of(request.Start.Memory, request.End.Memory, request.Prefix.Memory, request.Reverse, request.PageToken.Memory);

    /// <inheritdoc cref="Of(ListRequest)"/>
    public static ReadOnlyMemory<byte> Of(
        ReadOnlyMemory<byte> start, ReadOnlyMemory<byte> end, ReadOnlyMemory<byte> prefix, bool isReverse, ReadOnlyMemory<byte> pageToken)
    {
        if (pageToken.Length > TokenPlaceBytes)
        {
            var key = pageToken[TokenPlaceBytes..];
            return IsAtBound(pageToken.Span) && isReverse ? KeyBounds.Before(key.Span) : key;
        }
        var bounds = KeyBounds.Of(start, end, prefix);
        return isReverse ? KeyBounds.Before(bounds.Upper.Span) : bounds.Lower;
    }
}
