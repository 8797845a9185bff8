using Google.Protobuf;
using Status = Google.Rpc.Status;

namespace KvCluster.Client.Transport;

/// <summary>The result of a call after all its attempts: the encoded response message, or a status.</summary>
/// <param name="Response">The encoded response; empty if <paramref name="Error"/> is set.</param>
/// <param name="Error">Null if it succeeded.</param>
internal readonly record struct RoutedReply(ByteString Response, Status? Error)
{
    /// <summary>Its caller has stopped waiting. A change may still be applied.</summary>
    public static readonly RoutedReply Cancelled = new(ByteString.Empty, CallStatus.CallerGone);

    public bool IsCancelled => ReferenceEquals(Error, CallStatus.CallerGone);

    /// <summary>For a GetMany that was refused with REPLY_LARGE: the room to keep for the part of each shard, by shard.</summary>
    public IReadOnlyDictionary<ShardId, int>? PartBytesMax { get; init; }
}
