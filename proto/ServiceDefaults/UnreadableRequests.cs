// What a caller is told whose request is no encoded message, by node and router alike, where gRPC reads the message: of Admin, Cluster, health and reflection. Calls of service Kv are
// read by ourselves and end with the same words. With grpc-dotnet in the place of our server such a call ends INTERNAL.
#if GRPC_IN_TREE
using Grpc.AspNetCore.Server.Calls;
using Grpc.Core;
using KvCluster.Wire;
#endif
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.ServiceDefaults;

/// <summary>Has a server say what is wrong with them.</summary>
internal static class UnreadableRequests
{
    /// <summary>Before <c>AddGrpc</c> or after it.</summary>
    public static void AddUnreadableRequests(this IServiceCollection services)
    {
#if GRPC_IN_TREE
        services.AddSingleton(new UnreadableRequest(static () => StatusDetails.Create(
            StatusCode.InvalidArgument, MalformedMessageException.Text, StatusDetails.Info("BAD_REQUEST", StatusDetails.NotApplied)).ToRpcException()));
#endif
    }
}
