// Limits the size of requests by method, the same at node and router. A request becomes objects of many times its size when gRPC parses it, so requests that
// need not be large are refused if they are: no memory budget counts those of services other than Kv.
using Grpc.Core;
using KvCluster.ServiceDefaults.Calls;
using KvCluster.ServiceDefaults.Connections;
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.ServiceDefaults.Hosting;

/// <summary>Makes a server refuse requests that are larger than their methods need, measured uncompressed.</summary>
internal static class RequestLimits
{
    /// <summary>
    /// The maximum number of positions in <c>read.seen</c> of a read or a scan, or in <c>after</c> of a watch: one for each shard of a map three times as large
    /// as a node's 10,000.
    /// </summary>
    public const int PositionsMax = 32_768;

    /// <summary>The error message for a watch that names two positions of one shard. One of them would be ignored.</summary>
    public const string RepeatedPositionOfWatch =
        "A watch may begin after one position of each shard; nothing was watched. Send the newest position of each.";

    /// <summary>For a Get, a Scan or a Watch: this many positions of up to 48 bytes, and four keys of 2 KiB.</summary>
    public const int ReadBytesMax = 2 << 20;

    /// <summary>For operators' calls, the largest of which names 10,000 shards, and for OpenSession and EndSession, which have one key.</summary>
    public const int OperatorBytesMax = 64 << 10;

    /// <summary>
    /// For Cluster, health and reflection: a few numbers or a name. Some of these calls stay open for as long as their callers like, up to 16,384 of them,
    /// and an unknown field may become an object of twenty times its bytes.
    /// </summary>
    public const int QuestionBytesMax = 1 << 10;

    /// <summary>May be called before or after <c>AddGrpc</c>.</summary>
    public static void AddRequestLimits(this IServiceCollection services) => services.AddSingleton(new RequestSizes(BytesMaxOf, TooLarge));

    /// <summary>The maximum message size of a method, by its path.</summary>
    internal static int BytesMaxOf(string method) => method switch
    {
        "/kvcluster.v1.Kv/Get" or "/kvcluster.v1.Kv/Scan" or "/kvcluster.v1.Kv/Watch" => ReadBytesMax,
        "/kvcluster.v1.Kv/OpenSession" or "/kvcluster.v1.Kv/EndSession" => OperatorBytesMax,
        // Values and conditions on values are large, and so are 10,000 keys.
        _ when method.StartsWith("/kvcluster.v1.Kv/", StringComparison.Ordinal) => ListenerLimits.MessageBytesMax,
        _ when method.StartsWith("/kvcluster.admin.v1.", StringComparison.Ordinal) => OperatorBytesMax,
        _ => QuestionBytesMax,
    };

    private static RpcException TooLarge(int bytesMax, bool isStream) => isStream
        ? new RpcException(new Status(
            StatusCode.InvalidArgument,
            $"The stream was ended because a message exceeds the method's limit of {bytesMax:N0} bytes; nothing of that message was applied. "
            + "Unanswered calls of the stream may have been applied; repeat them on a new stream, changes with the same request ids."))
        : StatusDetails.Create(
            StatusCode.InvalidArgument,
            $"The request exceeds the method's limit of {bytesMax:N0} bytes; nothing was applied. Send less in one request.",
            StatusDetails.Info("BAD_REQUEST", StatusDetails.NotApplied)).ToRpcException();
}
