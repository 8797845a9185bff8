using Google.Protobuf;
using Google.Protobuf.WellKnownTypes;
using Google.Rpc;
using Grpc.Core;
using KvCluster.V1;

namespace KvCluster;

/// <summary>
/// gRPC's richer error model: a google.rpc.Status in the trailers, in addition to the plain status. Details are found by the names of their types as they are
/// here, because the first use of a type's descriptor takes longer than a call.
/// </summary>
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

    /// <summary>The full names of the details' types.</summary>
    public const string InfoName = "google.rpc.ErrorInfo";

    /// <inheritdoc cref="InfoName"/>
    public const string RetryName = "google.rpc.RetryInfo";

    /// <inheritdoc cref="InfoName"/>
    public const string HintName = "kvcluster.v1.RouteHint";

    /// <inheritdoc cref="InfoName"/>
    public const string CompactedName = "kvcluster.v1.Compacted";

    private const string TypePrefix = "type.googleapis.com/";

    /// <summary>Creates the detail that every error of this project has.</summary>
    /// <param name="reason">Stable, for programs.</param>
    /// <param name="applied">The outcome of the change.</param>
    public static ErrorInfo Info(string reason, string applied) => new() { Domain = Domain, Reason = reason, Metadata = { [AppliedKey] = applied } };

    /// <summary>Creates a status with this detail; further details may be added.</summary>
    public static Google.Rpc.Status Create(StatusCode code, string message, ErrorInfo info) =>
        new() { Code = (int)code, Message = message, Details = { DetailOf(InfoName, info) } };

    /// <summary>Adds how long the caller is to wait.</summary>
    /// <returns>The same status.</returns>
    public static Google.Rpc.Status WithWait(Google.Rpc.Status status, TimeSpan wait)
    {
        status.Details.Add(DetailOf(RetryName, new RetryInfo { RetryDelay = Duration.FromTimeSpan(wait) }));
        return status;
    }

    /// <summary>The detail that every error of this project has; null: this is the error of somebody else.</summary>
    public static ErrorInfo? InfoOf(Google.Rpc.Status status) => DetailOf(status, InfoName, ErrorInfo.Parser);

    /// <summary>How long the caller is to wait; null: it is not told.</summary>
    public static RetryInfo? RetryOf(Google.Rpc.Status status) => DetailOf(status, RetryName, RetryInfo.Parser);

    /// <summary>The routes that a node knows; null: it tells none.</summary>
    public static RouteHint? HintOf(Google.Rpc.Status status) => DetailOf(status, HintName, RouteHint.Parser);

    /// <summary>The oldest position of which the journal still has what follows; null: it is not told.</summary>
    public static Compacted? CompactedOf(Google.Rpc.Status status) => DetailOf(status, CompactedName, Compacted.Parser);

    /// <summary>The details that a call ended with; null if there are none, or if they are not a google.rpc.Status.</summary>
    public static Google.Rpc.Status? GetRpcStatus(this RpcException exception) => exception.Trailers.GetRpcStatus(ignoreParseError: true);

    private static Any DetailOf(string name, IMessage detail) => new() { TypeUrl = TypePrefix + name, Value = detail.ToByteString() };

    private static T? DetailOf<T>(Google.Rpc.Status status, string name, MessageParser<T> parser)
        where T : class, IMessage<T>
    {
        foreach (var detail in status.Details)
        {
            if (Any.GetTypeName(detail.TypeUrl) == name)
                return parser.ParseFrom(detail.Value);
        }
        return null;
    }
}
