using KvCluster.V1;

namespace KvCluster;

/// <summary>Which replicas serve a read, by its mode. For nodes, routers and clients.</summary>
internal static class ReadModes
{
    /// <summary>Whether only the leader of the shard can answer.</summary>
    public static bool IsForLeader(this ReadMode mode) => mode is ReadMode.Unspecified or ReadMode.Leader or ReadMode.Quorum;
}
