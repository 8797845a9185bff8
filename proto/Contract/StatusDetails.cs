#if GRPC_IN_TREE
using Google.Protobuf;
#endif
using Google.Protobuf.WellKnownTypes;
using Google.Rpc;
using Grpc.Core;
#if GRPC_IN_TREE
using Status = Grpc.Core.Status;
#endif

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
    public static Google.Rpc.Status Create(StatusCode code, string message, ErrorInfo info) => new() { Code = (int)code, Message = message, Details = { Any.Pack(info) } };

    /// <summary>Creates the exception that ends a call with a status and its details.</summary>
    public static RpcException ToRpcException(this Google.Rpc.Status status)
    {
#if GRPC_IN_TREE
        return new RpcException(new Status((StatusCode)status.Code, status.Message), new Metadata { { Trailer, status.ToByteArray() } });
#else
        return RpcStatusExtensions.ToRpcException(status);
#endif
    }

    /// <summary>The details that a call ended with; null if there are none, or if they are not a google.rpc.Status.</summary>
    public static Google.Rpc.Status? GetRpcStatus(this RpcException exception)
    {
#if GRPC_IN_TREE
        if (exception.Trailers.GetValueBytes(Trailer) is not { } bytes)
            return null;
        try
        {
            return Google.Rpc.Status.Parser.ParseFrom(bytes);
        }
        catch (InvalidProtocolBufferException)
        {
            return null;
        }
#else
        return exception.Trailers.GetRpcStatus(ignoreParseError: true);
#endif
    }

#if GRPC_IN_TREE
    /// <summary>The first detail of a type; null if there is none.</summary>
    public static T? GetDetail<T>(this Google.Rpc.Status status)
        where T : class, IMessage<T>, new()
    {
        foreach (var detail in status.Details)
        {
            if (detail.TryUnpack<T>(out var message))
                return message;
        }
        return null;
    }
#endif
}
