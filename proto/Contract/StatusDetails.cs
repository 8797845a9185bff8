using Google.Protobuf.WellKnownTypes;
using Google.Rpc;
using Grpc.Core;

namespace KvCluster;

/// <summary>gRPC's richer error model: a google.rpc.Status in the trailers, in addition to the plain status.</summary>
internal static class StatusDetails
{
    /// <summary>The trailer that carries it.</summary>
    public const string Trailer = "grpc-status-details-bin";

    /// <summary>The domain of every ErrorInfo of this project.</summary>
    public const string Domain = "kvcluster.dev";

    /// <summary>Metadata key in every ErrorInfo: whether the change was applied, <see cref="NotApplied"/> or <see cref="MaybeApplied"/>.</summary>
    public const string AppliedKey = "applied";

    public const string NotApplied = "no";

    public const string MaybeApplied = "unknown";

    /// <summary>The reason of a read that is refused because its response is larger than the call allows.</summary>
    public const string ReplyLarge = "REPLY_LARGE";

    /// <summary>Metadata key of such a refusal: the size of the response in bytes.</summary>
    public const string ReplyBytesKey = "reply_bytes";

    /// <summary>Creates the detail that every error of this project has.</summary>
    /// <param name="reason">Stable, for programs.</param>
    /// <param name="applied">The outcome of the change.</param>
    public static ErrorInfo Info(string reason, string applied) => new() { Domain = Domain, Reason = reason, Metadata = { [AppliedKey] = applied } };

    /// <summary>Creates a status with this detail; further details may be added.</summary>
    public static Google.Rpc.Status Create(StatusCode code, string message, ErrorInfo info) =>
        new() { Code = (int)code, Message = message, Details = { Any.Pack(info) } };

    /// <summary>The details that a call ended with; null if there are none, or if they are not a google.rpc.Status.</summary>
    public static Google.Rpc.Status? GetRpcStatus(this RpcException exception) => exception.Trailers.GetRpcStatus(ignoreParseError: true);
}
