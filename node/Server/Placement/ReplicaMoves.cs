using KvCluster.V1;

namespace KvCluster.Node.Placement;

/// <summary>Which replica moves next. A pure function of the shards' records and the nodes, so that whoever controls comes to the same.</summary>
internal static class ReplicaMoves
{
    /// <summary>Nodes whose numbers of replicas differ by no more than this are level: a move would only turn it round.</summary>
    private const int DifferenceMax = 1;

    /// <summary>
    /// All that is to be done, the first first; each is found for these records, so after one of them the rest is to be asked for anew. First what is missing, and
    /// learners in its way; then what an interrupted move left half done, then what has to leave a node, then from the node with most replicas to that with fewest.
    /// A shard that lacks a voter and has a learner is left alone: the learner's node sees to it, and no set changes in two ways at once.
    /// </summary>
    /// <param name="records">All shards.</param>
    /// <param name="present">Nodes that can take a replica now.</param>
    /// <param name="gone">Nodes that were away for so long that no learner is waited for there.</param>
    /// <param name="leaving">Nodes that are to have none.</param>
    /// <param name="replicationFactor">Voters of a whole shard.</param>
    /// <returns>Nothing: everything lies where it should, or nothing can be done for what does not.</returns>
    public static IEnumerable<ReplicaMove> InOrder(
        IEnumerable<ShardRecord> records, IReadOnlySet<uint> present, IReadOnlySet<uint> gone, IReadOnlySet<uint> leaving, int replicationFactor)
    {
        var all = records.OrderBy(record => record.Shard).ToList();
        var held = all.SelectMany(record => record.Replicas).CountBy(replica => replica.Node).ToDictionary();
        var takers = present.Where(node => !leaving.Contains(node)).OrderBy(node => held.GetValueOrDefault(node)).ThenBy(node => node).ToList();
        var whole = all.Where(record => Voters(record).Count() == replicationFactor).ToList();
        return Found(all.Where(record => Voters(record).Count() < replicationFactor), record => Repair(record, gone, takers))
            .Concat(Found(whole, record => Completion(record, present, gone, leaving, held)))
            .Concat(Found(whole, record => Departure(record, leaving, takers)))
            .Concat(Levelling(whole, takers, held));
    }

    /// <summary>Whether a move is done also while operators want none: it brings back what a shard lacks.</summary>
    public static bool IsRepair(ReplicaMove move, ShardRecord record, int replicationFactor) =>
        (move.FromNode == 0 || move.ToNode == 0) && Voters(record).Count() < replicationFactor;

    private static IEnumerable<ReplicaMove> Found(IEnumerable<ShardRecord> records, Func<ShardRecord, ReplicaMove?> find) => records.Select(find).OfType<ReplicaMove>();

    // A rebuild that ended between its two steps, or its learner, whose node is away for good.
    private static ReplicaMove? Repair(ShardRecord record, IReadOnlySet<uint> gone, List<uint> takers)
    {
        if (record.Replicas.FirstOrDefault(replica => replica.Learner) is { } learner)
            return gone.Contains(learner.Node) ? Removal(record, learner) : null;
        var to = takers.FirstOrDefault(node => !Has(record, node));
        return to == 0 ? null : new ReplicaMove(record.Shard, 0, to, "it lacks a voter");
    }

    private static ReplicaMove? Completion(
        ShardRecord record, IReadOnlySet<uint> present, IReadOnlySet<uint> gone, IReadOnlySet<uint> leaving, Dictionary<uint, int> held)
    {
        if (record.Replicas.FirstOrDefault(replica => replica.Learner) is not { } learner)
            return null;
        if (gone.Contains(learner.Node) || leaving.Contains(learner.Node))
            return Removal(record, learner);
        var from = Voters(record).OrderByDescending(leaving.Contains).ThenByDescending(node => held[node]).ThenBy(node => node).First();
        return present.Contains(learner.Node) ? new ReplicaMove(record.Shard, from, learner.Node, "a learner is there already") : null;
    }

    private static ReplicaMove Removal(ShardRecord record, ReplicaRecord learner) => new(record.Shard, learner.Node, 0, $"nothing becomes of the learner on node {learner.Node}");

    private static ReplicaMove? Departure(ShardRecord record, IReadOnlySet<uint> leaving, List<uint> takers)
    {
        var from = Voters(record).FirstOrDefault(leaving.Contains);
        var to = takers.FirstOrDefault(node => !Has(record, node));
        return from == 0 || to == 0 ? null : new ReplicaMove(record.Shard, from, to, $"node {from} leaves");
    }

    // A follower rather than the leader, which would have to hand over first. Nodes that take none for the moment are the caller's to pass over.
    private static IEnumerable<ReplicaMove> Levelling(List<ShardRecord> shards, List<uint> takers, Dictionary<uint, int> held)
    {
        var fullest = takers.LastOrDefault();
        return from taker in takers
               let difference = held.GetValueOrDefault(fullest) - held.GetValueOrDefault(taker)
               where difference > DifferenceMax
               from record in shards.Where(record => Has(record, fullest) && !Has(record, taker))
                   .OrderBy(record => record.Replicas.Any(replica => replica.Node == fullest && replica.Replica == record.Leader))
               select new ReplicaMove(record.Shard, fullest, taker, $"node {fullest} has {difference} more");
    }

    private static IEnumerable<uint> Voters(ShardRecord record) => record.Replicas.Where(replica => !replica.Learner).Select(replica => replica.Node);

    private static bool Has(ShardRecord record, uint node) => record.Replicas.Any(replica => replica.Node == node);
}

/// <summary>A replica that is to move.</summary>
/// <param name="Shard">Its shard.</param>
/// <param name="FromNode">Where the replica lies that leaves; 0: none does, the shard lacks a voter.</param>
/// <param name="ToNode">Where the new one comes to lie; 0: nowhere, it is a learner that leaves.</param>
/// <param name="Reason">For logs.</param>
internal sealed record ReplicaMove(uint Shard, uint FromNode, uint ToNode, string Reason);
