// The error for a request that is not an encoded message, the same at node and router, where gRPC parses the message: in Admin, Cluster, health and
// reflection. Calls of the service Kv are parsed by our own code and end with the same text.
using Grpc.Core;
using KvCluster.Wire;
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>Makes a server say what is wrong with such requests.</summary>
internal static class UnreadableRequests
{
    /// <summary>May be called before or after <c>AddGrpc</c>.</summary>
    public static void AddUnreadableRequests(this IServiceCollection services) => services.AddSingleton(new UnreadableRequest(static () => StatusDetails.Create(
        StatusCode.InvalidArgument, MalformedMessageException.Text, StatusDetails.Info("BAD_REQUEST", StatusDetails.NotApplied)).ToRpcException()));
}
