using System.Reflection;

namespace KvCluster.Node.Runtime;

/// <summary>A node's identity while its process runs.</summary>
/// <param name="Cluster">The cluster's name.</param>
/// <param name="ClusterId">Random, chosen at the cluster's creation.</param>
/// <param name="Node">The node's id, from 1.</param>
/// <param name="Incarnation">Non-zero, and greater at each start of the data directory.</param>
/// <param name="Address">The address for clients: "http://host:port".</param>
/// <param name="PeerAddress">The address for the streams of other nodes.</param>
internal sealed record NodeIdentity(string Cluster, string ClusterId, NodeId Node, ulong Incarnation, string Address, string PeerAddress = "")
{
    /// <summary>This program's version.</summary>
    public static string Version { get; } = typeof(NodeIdentity).Assembly.GetCustomAttribute<AssemblyInformationalVersionAttribute>()!.InformationalVersion;
}
