using System.Security.Cryptography;
using System.Text;

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
    /// <summary>The lineage of the cluster's data.</summary>
    public Lineage Lineage { get; init; }

    /// <summary>What the control files of the cluster's replicas name it by, its lineage included.</summary>
    public ulong ClusterHash => BitConverter.ToUInt64(SHA256.HashData(Encoding.UTF8.GetBytes($"{Cluster}/{ClusterId}/{Lineage}")));

    /// <summary>The address for operators' calls: one of the two others.</summary>
    public string AdminAddress { get; init; } = "";

    /// <summary>What this program supports.</summary>
    public ProgramLevels Levels { get; init; } = ProgramLevels.Current;

    /// <summary>The format level that was in force when this process started. It is used until the process ends, also if it is raised meanwhile.</summary>
    public uint FormatLevel { get; init; } = ProgramLevels.Current.Format.Max;

    /// <summary>The same for the contract level.</summary>
    public uint ContractLevel { get; init; } = ProgramLevels.Current.Contract.Max;
}
