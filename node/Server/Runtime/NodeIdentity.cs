using System.Reflection;

namespace KvCluster.Node.Runtime;

/// <summary>Who this node is, for as long as its process runs.</summary>
/// <param name="Cluster">The cluster's name.</param>
/// <param name="ClusterId">Random at the cluster's creation.</param>
/// <param name="Node">The node's id, from 1 on.</param>
/// <param name="Incarnation">Greater at each start of the data directory, non-zero.</param>
/// <param name="Address">Where it serves clients: "http://host:port".</param>
/// <param name="PeerAddress">Where it takes the streams of other nodes.</param>
internal sealed record NodeIdentity(string Cluster, string ClusterId, uint Node, ulong Incarnation, string Address, string PeerAddress = "")
{
    /// <summary>This program's version.</summary>
    public static string Version { get; } = typeof(NodeIdentity).Assembly.GetCustomAttribute<AssemblyInformationalVersionAttribute>()!.InformationalVersion;
}
