using KvCluster.Internal.V1;

namespace KvCluster.Node.Placement;

/// <summary>Chooses the next replica to move. A pure function of the shards' records and the nodes, so that every controller reaches the same result.</summary>
internal static class MoveSelection
{
    /// <summary>Nodes whose numbers of replicas differ by at most this are balanced. Another move would only reverse the difference.</summary>
    private const int DifferenceMax = 1;

    /// <summary>
    /// All useful moves, the most important first. Each is computed for these records, so after one move the rest must be computed anew. First come missing
    /// voters and learners that prevent adding them, then interrupted moves, then replicas on nodes that are to leave, then moves from the node with the
    /// most replicas to the one with the fewest. A shard that lacks a voter and has a learner is left alone, because the learner's node takes care of it,
    /// and no two actors change the same set.
    /// </summary>
    /// <param name="records">The records of all shards.</param>
    /// <param name="present">Nodes that can take a replica now.</param>
    /// <param name="gone">Nodes that were away for so long that a learner there is given up. Voters there stay until an operator says that the node
    /// leaves.</param>
    /// <param name="leaving">Nodes that should have no replica.</param>
    /// <param name="replicationFactor">Number of voters of a complete shard.</param>
    /// <returns>Empty if every replica is where it should be, or nothing can be done.</returns>
    public static IEnumerable<ReplicaMove> InOrder(
        IEnumerable<ShardRecord> records, IReadOnlySet<NodeId> present, IReadOnlySet<NodeId> gone, IReadOnlySet<NodeId> leaving, int replicationFactor)
    {
        var all = records.OrderBy(record => record.ShardId).ToList();
        var held = all.SelectMany(record => record.Replicas).CountBy(replica => replica.NodeId).ToDictionary();
        var takers = present.Where(node => !leaving.Contains(node)).OrderBy(node => held.GetValueOrDefault(node)).ThenBy(node => node).ToList();
        var whole = all.Where(record => Voters(record).Count() == replicationFactor).ToList();
        return Found(all.Where(record => Voters(record).Count() < replicationFactor), record => Repair(record, gone, takers))
            .Concat(Found(whole, record => Completion(record, present, gone, leaving, held)))
            .Concat(Found(whole, record => Departure(record, leaving, takers)))
            .Concat(Levelling(whole, takers, held));
    }

    /// <summary>Whether a move is made even while operators have paused moves, because it restores a missing voter.</summary>
    public static bool IsRepair(ReplicaMove move, ShardRecord record, int replicationFactor) =>
        (move.FromNode.IsNone || move.ToNode.IsNone) && Voters(record).Count() < replicationFactor;

    private static IEnumerable<ReplicaMove> Found(IEnumerable<ShardRecord> records, Func<ShardRecord, ReplicaMove?> find) =>
        records.Select(find).OfType<ReplicaMove>();

    // A rebuild that was interrupted between its two steps, or its learner whose node is gone for good.
    private static ReplicaMove? Repair(ShardRecord record, IReadOnlySet<NodeId> gone, List<NodeId> takers)
    {
        if (record.Replicas.FirstOrDefault(replica => replica.Learner) is { } learner)
            return gone.Contains(learner.NodeId) ? Removal(record, learner) : null;
        var to = takers.FirstOrDefault(node => !Has(record, node));
        return to.IsNone ? null : new ReplicaMove(record.ShardId, NodeId.None, to, "the shard lacks a voter");
    }

    private static ReplicaMove? Completion(
        ShardRecord record, IReadOnlySet<NodeId> present, IReadOnlySet<NodeId> gone, IReadOnlySet<NodeId> leaving, Dictionary<NodeId, int> held)
    {
        if (record.Replicas.FirstOrDefault(replica => replica.Learner) is not { } learner)
            return null;
        if (gone.Contains(learner.NodeId) || leaving.Contains(learner.NodeId))
            return Removal(record, learner);
        var from = Voters(record).OrderByDescending(leaving.Contains).ThenByDescending(node => held[node]).ThenBy(node => node).First();
        return present.Contains(learner.NodeId) ? new ReplicaMove(record.ShardId, from, learner.NodeId, "the shard already has a learner there") : null;
    }

    private static ReplicaMove Removal(ShardRecord record, ReplicaRecord learner) =>
        new(record.ShardId, learner.NodeId, NodeId.None, $"the learner on node {learner.NodeId} will not become a voter");

    private static ReplicaMove? Departure(ShardRecord record, IReadOnlySet<NodeId> leaving, List<NodeId> takers)
    {
        var from = Voters(record).FirstOrDefault(leaving.Contains);
        var to = takers.FirstOrDefault(node => !Has(record, node));
        return from.IsNone || to.IsNone ? null : new ReplicaMove(record.ShardId, from, to, $"node {from} is leaving");
    }

    // A follower is preferred over the leader, which would have to transfer first. The caller skips nodes that take no replica at the moment.
    private static IEnumerable<ReplicaMove> Levelling(List<ShardRecord> shards, List<NodeId> takers, Dictionary<NodeId, int> held)
    {
        var fullest = takers.LastOrDefault();
        return from taker in takers
               let difference = held.GetValueOrDefault(fullest) - held.GetValueOrDefault(taker)
               where difference > DifferenceMax
               from record in shards.Where(record => Has(record, fullest) && !Has(record, taker))
                   .OrderBy(record => record.Replicas.Any(replica => replica.NodeId == fullest && replica.ReplicaId == record.LeaderId))
               select new ReplicaMove(record.ShardId, fullest, taker, $"node {fullest} has {difference} more replicas");
    }

    private static IEnumerable<NodeId> Voters(ShardRecord record) => record.Replicas.Where(replica => !replica.Learner).Select(replica => replica.NodeId);

    private static bool Has(ShardRecord record, NodeId node) => record.Replicas.Any(replica => replica.NodeId == node);
}

/// <summary>A replica that should move.</summary>
/// <param name="Shard">The shard.</param>
/// <param name="FromNode">The node of the replica that leaves; 0: none leaves, the shard lacks a voter.</param>
/// <param name="ToNode">The node of the new replica; 0: none, a learner is removed.</param>
/// <param name="Reason">The reason, for logs.</param>
internal sealed record ReplicaMove(ShardId Shard, NodeId FromNode, NodeId ToNode, string Reason);
