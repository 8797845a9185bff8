namespace KvCluster.Node.Placement;

/// <summary>What is to become of a shard's replicas, as an operator or a node asks for it.</summary>
/// <param name="Shard">The shard.</param>
/// <param name="From">The node whose replica leaves. None: the shard only gains one.</param>
/// <param name="To">The node of the new replica; if it is the same, its replica is lost or cannot be trusted. None: a learner is only removed.</param>
internal sealed record ReplacementRequest(ShardId Shard, NodeId From, NodeId To)
{
    /// <summary>The lost replica of the asking node; none: none is lost.</summary>
    public ReplicaId Lost { get; init; }

    /// <summary>Also if the remaining replicas are not seen to follow closely.</summary>
    public bool Force { get; init; }
}
