using Google.Protobuf;
using KvCluster.Client.Routing;
using KvCluster.Client.Transport;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Router.Api;

/// <summary>What decides where an encoded request goes. It is read once, when the request arrives, and travels with the call.</summary>
/// <param name="Method">The method to call.</param>
/// <param name="Parts">What the request has besides its keys.</param>
/// <param name="Place">Where the key is by whose shard it is routed.</param>
/// <param name="KeyRange">Where that key is in the request.</param>
/// <param name="OtherKey">The key, if it is not in the request.</param>
internal readonly record struct RequestRoute(Method Method, RequestParts Parts, KeyPlace Place, Range KeyRange, byte[]? OtherKey = null)
{
    /// <summary>The bytes are not a request. The caller is told when it is forwarded.</summary>
    public bool IsMalformed { get; private init; }

    /// <summary>All its keys were of one shard by the map of <see cref="Place"/>.</summary>
    public bool IsOfOneShard { get; private init; }

    /// <summary>Reads a request.</summary>
    public static RequestRoute Of(Method method, ReadOnlySpan<byte> request, RouteTable table)
    {
        try
        {
            var key = RequestKeys.First(method, request);
            var isWithin = request.Overlaps(key, out var at);
            return new RequestRoute(method, RequestParts.Of(method, request), table.PlaceOf(key), at..(at + key.Length), isWithin ? null : key.ToArray());
        }
        catch (MalformedMessageException)
        {
            return new RequestRoute(method, default, default, default) { IsMalformed = true };
        }
    }

    /// <summary>The route of a Write of puts of one shard.</summary>
    public static RequestRoute Of(PutBatch puts) =>
        new(Method.Write, default, puts.Place, puts.FirstKeyRange) { IsOfOneShard = puts.Place.Shard != RouteTable.NoShard };

    /// <summary>The key by whose shard the request is routed; empty if it names none, or is for the first shard.</summary>
    public ReadOnlyMemory<byte> KeyOf(ByteString request) => OtherKey is { } other ? other : request.Memory[KeyRange];
}
