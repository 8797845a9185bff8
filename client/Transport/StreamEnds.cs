using Grpc.Core;

namespace KvCluster.Client.Transport;

/// <summary>
/// What the end of a stream that only reads means: whether another stream may bring what this one did not. A status without a reason does not come from a
/// node: the stream was reset, or its connection broke. Pure; any thread.
/// </summary>
internal static class StreamEnds
{
    /// <summary>Whether another stream may bring more.</summary>
    public static bool MayGoOn(RpcException failure) => failure.StatusCode == StatusCode.Unavailable || (ReasonOf(failure) is { } reason
        ? reason == CallStatus.NotRead || CallRouter.MayRepeat(failure.GetRpcStatus()!)
        : failure.StatusCode is StatusCode.ResourceExhausted or StatusCode.Internal or StatusCode.Cancelled);

    /// <summary>Whether the stream was ended because its reader paused: by a status that says so, or, if that did not reach it, by a reset.</summary>
    public static bool IsUnread(RpcException failure) => failure.StatusCode == StatusCode.ResourceExhausted && ReasonOf(failure) is null or CallStatus.NotRead;

    /// <summary>The reason that a node gave; null if the status has none.</summary>
    public static string? ReasonOf(RpcException failure) => failure.GetRpcStatus() is { } status ? StatusDetails.InfoOf(status)?.Reason : null;
}
