using KvCluster.Internal.V1;

namespace KvCluster.Node.CoordinatorRecovery;

/// <summary>What was found of a cluster whose coordinator has lost its records, from the nodes and in the coordinator itself.</summary>
internal sealed record RecoveryFindings
{
    /// <summary>The prefix of the cluster's keys in the coordinator, for what an operator is told.</summary>
    public string Keys { get; init; } = "/kvcluster/NAME/";

    /// <summary>What the nodes that answered say, one report of each.</summary>
    public required IReadOnlyList<NodeReport> Reports { get; init; }

    /// <summary>Nodes that were asked and did not answer, and why.</summary>
    public IReadOnlyDictionary<NodeId, string> Silent { get; init; } = new Dictionary<NodeId, string>();

    /// <summary>Nodes that the operator has named as gone for good.</summary>
    public IReadOnlySet<NodeId> Without { get; init; } = new HashSet<NodeId>();

    /// <summary>The cluster's record in the coordinator, for example of a restored backup; null if it has none.</summary>
    public ClusterRecord? HeldCluster { get; init; }

    /// <summary>The value of that record, as it is; empty if there is none. Every node's coordinator must have the same.</summary>
    public string HeldClusterText { get; init; } = "";

    /// <summary>Its mod revision.</summary>
    public long HeldClusterRevision { get; init; }

    /// <summary>The recovery that was begun last; null if there was none.</summary>
    public RecoveryClaim? HeldClaim { get; init; }

    /// <summary>The shards' records in the coordinator. Without the cluster's record they were left by a recovery that was interrupted.</summary>
    public IReadOnlyList<ShardRecord> HeldShards { get; init; } = [];

    /// <summary>The counts of starts in the coordinator.</summary>
    public IReadOnlyDictionary<NodeId, NodeStarts> HeldStarts { get; init; } = new Dictionary<NodeId, NodeStarts>();

    /// <summary>
    /// The held records that may be as new as those of the nodes. Records of an interrupted recovery are not among them: another set of nodes answered it.
    /// </summary>
    public IEnumerable<ShardRecord> TrustedShards =>
        HeldShards.Where(record => HeldCluster is { } cluster && record.Recovery == cluster.Recovery && record.Lineage.Equals(cluster.Lineage));

    /// <summary>
    /// All nodes that matter: those that answered, those that they last knew as nodes of the cluster, and those with a replica by the newest copy of its
    /// shard's record. Older copies name nodes that have left since, and of which nobody needs to know anything (README.md).
    /// </summary>
    public IEnumerable<NodeId> Named => Reports.SelectMany(static report => report.Nodes.Select(static node => node.NodeId).Append(new NodeId(report.Node)))
        .Concat(Reports.SelectMany(static report => report.Shards).Concat(TrustedShards).GroupBy(static record => record.ShardId)
            .SelectMany(static copies => copies.MaxBy(static record => record.Rank)!.Replicas).Select(static replica => replica.NodeId))
        .Distinct().Order();
}
