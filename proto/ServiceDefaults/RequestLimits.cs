// How large the requests of each method may be, the same at node and router. A request is bytes on the wire, and becomes objects of many times its size where gRPC reads it, so what never needs to be
// large may not be: the requests of other services than Kv are counted by no budget. With grpc-dotnet in the place of our server the limit of the server holds alone.
#if GRPC_IN_TREE
using Grpc.AspNetCore.Server.Calls;
using Grpc.Core;
#endif
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.ServiceDefaults;

/// <summary>Has a server refuse requests that are larger than their methods need, plain or decompressed.</summary>
internal static class RequestLimits
{
    /// <summary>Positions that a read or a scan may name in <c>read.seen</c>: one for each shard of a map three times as large as a node's 10,000.</summary>
    public const int PositionsMax = 32_768;

    /// <summary>Of a Get or a Scan: so many positions of up to 28 bytes, and four keys of 2 KiB.</summary>
    public const int ReadBytesMax = 1 << 20;

    /// <summary>Of operators' calls, the largest of which names 10,000 shards; and of OpenSession, which has one key.</summary>
    public const int OperatorBytesMax = 64 << 10;

    /// <summary>
    /// Of Cluster, health and reflection: a few numbers, or a name. Some of these calls stay open for as long as their callers like, 16,384 of them, and an unknown field may become an object of twenty
    /// times its bytes.
    /// </summary>
    public const int QuestionBytesMax = 1 << 10;

    /// <summary>Before <c>AddGrpc</c> or after it.</summary>
    public static void AddRequestLimits(this IServiceCollection services)
    {
#if GRPC_IN_TREE
        services.AddSingleton(new RequestSizes(BytesMaxOf, TooLarge));
#endif
    }

    /// <summary>The largest message of a method, by its path.</summary>
    internal static int BytesMaxOf(string method) => method switch
    {
        "/kvcluster.v1.Kv/Get" or "/kvcluster.v1.Kv/Scan" => ReadBytesMax,
        "/kvcluster.v1.Kv/OpenSession" => OperatorBytesMax,
        // Values and conditions on values are large, and so are 10,000 keys.
        _ when method.StartsWith("/kvcluster.v1.Kv/", StringComparison.Ordinal) => ListenerLimits.MessageBytesMax,
        _ when method.StartsWith("/kvcluster.v1.Admin/", StringComparison.Ordinal) => OperatorBytesMax,
        _ => QuestionBytesMax,
    };

#if GRPC_IN_TREE
    private static RpcException TooLarge(int bytesMax, bool isStream) => isStream
        ? new RpcException(new Status(
            StatusCode.InvalidArgument,
            $"A message has more than the {bytesMax:N0} bytes that this method takes of one; nothing of it was applied, and the stream ends. Its calls without an answer may have been applied: ask again on a new stream, for changes with the same request ids."))
        : StatusDetails.Create(
            StatusCode.InvalidArgument,
            $"The request has more than the {bytesMax:N0} bytes that this method takes; nothing was applied. Send less in one request.",
            StatusDetails.Info("BAD_REQUEST", StatusDetails.NotApplied)).ToRpcException();
#endif
}
