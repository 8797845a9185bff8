using Grpc.Core;
using KvCluster.V1;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.ClusterTests;

/// <summary>A router's status of all nodes of a cluster with one shard.</summary>
internal static class RouterStatus
{
    /// <summary>Null if the router has no answer at the moment.</summary>
    public static async Task<GetStatusResponse?> StatusAsync(V1.Cluster.ClusterClient client, bool digest = false)
    {
        try
        {
            return await client.GetStatusAsync(new GetStatusRequest { Digest = digest });
        }
        catch (RpcException failure) when (failure.StatusCode is StatusCode.Unavailable or StatusCode.DeadlineExceeded or StatusCode.Unknown)
        {
            return null;
        }
    }

    /// <summary>The node that leads. Null if none does, or if two report it.</summary>
    public static uint? LeaderOf(GetStatusResponse status)
    {
        var leaders = status.Nodes.Where(static node => node.Replicas.Any(static replica => replica.Role == Role.Leader)).ToList();
        return leaders.Count == 1 ? leaders[0].Node : null;
    }

    public static bool AllReplicasEqual(GetStatusResponse status) =>
        status.Nodes.All(static node => node.Error.Length == 0 && node.Replicas.Count == 1)
        && status.Nodes.Select(static node => (node.Replicas[0].DigestEtag, node.Replicas[0].Digest)).Distinct().Count() == 1;
}
