// Why this program does not serve a call, the same at node and router: the program does not know it, serves it at another address, or not yet.
using System.Collections.Frozen;
using Grpc.Core;
using KvCluster.ServiceDefaults.Programs;
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>Makes a server say why it does not serve a call.</summary>
internal static class UnservedCalls
{
    /// <summary>The reason of a call that the program serves elsewhere, with another setting, or not yet.</summary>
    public const string NotServedHere = "NOT_SERVED_HERE";

    // With these a path, "/package.Service/Method", is known to this version, whether or not it is served at an address.
    private static readonly FrozenSet<string> Known = ((Google.Protobuf.Reflection.ServiceDescriptor[])
    [
        KvCluster.V1.Kv.Descriptor, KvCluster.V1.Cluster.Descriptor, KvCluster.Admin.V1.Admin.Descriptor, KvCluster.Admin.V1.Coordinator.Descriptor,
        KvCluster.Internal.V1.Replication.Descriptor, KvCluster.Internal.V1.Placement.Descriptor, KvCluster.Internal.V1.Recovery.Descriptor,
        Grpc.Health.V1.Health.Descriptor, Grpc.Reflection.V1.ServerReflection.Descriptor,
    ]).SelectMany(static service => service.Methods.Select(method => $"/{service.FullName}/{method.Name}")).ToFrozenSet(StringComparer.Ordinal);

    /// <summary>May be called before or after <c>AddGrpc</c>.</summary>
    /// <param name="services">The server's services.</param>
    /// <param name="node">The node; <see cref="NodeId.None"/> for a router.</param>
    public static void AddUnservedCalls(this IServiceCollection services, NodeId node) =>
        services.AddSingleton(new UnservedCall(path => Refusal(node, path).ToRpcException()));

    /// <summary>The same for a node that waits for its coordinator's record of the cluster.</summary>
    /// <param name="services">The server's services.</param>
    /// <param name="node">The node.</param>
    /// <param name="cluster">The cluster's name.</param>
    public static void AddCallsUnservedYet(this IServiceCollection services, NodeId node, string cluster) =>
        services.AddSingleton(new UnservedCall(path => RefusalOfWaiting(node, cluster, path).ToRpcException()));

    /// <summary>The refusal of a call that a waiting node does not serve yet.</summary>
    /// <param name="node">The node.</param>
    /// <param name="cluster">The cluster's name.</param>
    /// <param name="path">What was called: "/package.Service/Method".</param>
    public static Google.Rpc.Status RefusalOfWaiting(NodeId node, string cluster, string path) =>
        Refusal(node, path, call => WaitingNode.Text(node, cluster, call));

    /// <summary>The refusal of a call that no service at an address has.</summary>
    /// <param name="node">The node; <see cref="NodeId.None"/> for a router.</param>
    /// <param name="path">What was called: "/package.Service/Method".</param>
    public static Google.Rpc.Status Refusal(NodeId node, string path) =>
        Refusal(node, path, call => $"{call} is not served at this address; nothing was applied. {Where(path)}");

    private static Google.Rpc.Status Refusal(NodeId node, string path, Func<string, string> whyNotServed) => Known.Contains(path)
        ? StatusDetails.Create(StatusCode.Unimplemented, whyNotServed(path[1..]), StatusDetails.Info(NotServedHere, StatusDetails.NotApplied))
        : UnsupportedCall.Refusal(node, ProgramVersion.Full, path.TrimStart('/'));

    private static string Where(string path) =>
        path.StartsWith("/kvcluster.admin.", StringComparison.Ordinal)
            ? "Operators' calls are served at a node's address for nodes (listen-peers), and at addresses for clients with the setting serve-admin."
        : path.StartsWith("/kvcluster.internal.", StringComparison.Ordinal) ? "Nodes' calls are served at a node's address for nodes (listen-peers)."
        : "Clients' calls are served at a node's or router's address for clients (listen).";
}
