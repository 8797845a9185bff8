using Google.Protobuf;
using Status = Google.Rpc.Status;

namespace KvCluster.Client.Transport;

/// <summary>How a call ended after all its attempts: the encoded response message, or a status.</summary>
/// <param name="Response">The encoded response; empty if <paramref name="Error"/> is set.</param>
/// <param name="Error">Null: it succeeded.</param>
internal readonly record struct RoutedReply(ByteString Response, Status? Error)
{
    /// <summary>Of a GetMany that is refused as REPLY_LARGE: what to keep for each shard's part, by shard.</summary>
    public IReadOnlyDictionary<uint, int>? PartBytesMax { get; init; }
}
