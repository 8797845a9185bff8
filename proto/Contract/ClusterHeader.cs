using Grpc.Core;

namespace KvCluster;

/// <summary>
/// The metadata by which a call says which cluster it is meant for (kv.proto). Clients and routers send it as soon as they know the cluster's id, so that a
/// node of another cluster, which got an address of theirs, refuses the call.
/// </summary>
internal static class ClusterHeader
{
    /// <summary>Its name. The value is the cluster's id.</summary>
    public const string Name = "kvcluster-cluster";

    /// <summary>The reason with which another cluster refuses the call.</summary>
    public const string ForeignCluster = "FOREIGN_CLUSTER";

    /// <summary>The metadata of a call.</summary>
    /// <param name="clusterId">The cluster's id; empty while it is not known.</param>
    /// <returns>Null if there is nothing to send.</returns>
    public static Metadata? For(string clusterId) => clusterId.Length == 0 ? null : new Metadata { { Name, clusterId } };

    /// <summary>The refusal of a call that is meant for another cluster. It was not executed.</summary>
    /// <param name="expected">The id that the call named.</param>
    /// <param name="clusterId">The id of this cluster.</param>
    public static RpcException Refusal(string expected, string clusterId) => StatusDetails.Create(
        StatusCode.FailedPrecondition,
        $"The call is meant for cluster {OneLine.Of(expected)}, but this is a node or router of cluster {clusterId}; nothing was applied. Check the address.",
        StatusDetails.Info(ForeignCluster, StatusDetails.NotApplied)).ToRpcException();

    /// <summary>Whether a call was refused because it was meant for another cluster.</summary>
    public static bool IsForeign(RpcException failure) =>
        failure.StatusCode == StatusCode.FailedPrecondition && failure.GetRpcStatus() is { } status && StatusDetails.InfoOf(status)?.Reason == ForeignCluster;
}
