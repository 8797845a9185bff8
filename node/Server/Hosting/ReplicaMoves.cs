using KvCluster.V1;

namespace KvCluster.Node.Hosting;

/// <summary>Which replica moves next. A pure function of the shards' records and the nodes, so that whoever controls comes to the same.</summary>
internal static class ReplicaMoves
{
    /// <summary>Nodes whose numbers of replicas differ by no more than this are level: a move would only turn it round.</summary>
    private const int DifferenceMax = 1;

    /// <summary>
    /// First what an interrupted move left half done, then what has to leave a node, then from the node with most replicas to that with fewest.
    /// Shards that lack a voter are left alone: they have one rebuilt, and no set changes in two ways at once.
    /// </summary>
    /// <param name="records">All shards.</param>
    /// <param name="present">Nodes that can take a replica now.</param>
    /// <param name="leaving">Nodes that are to have none.</param>
    /// <param name="replicationFactor">Voters of a whole shard.</param>
    /// <returns>null: everything lies where it should, or nothing can be done for what does not.</returns>
    public static ReplicaMove? Next(IEnumerable<ShardRecord> records, IReadOnlySet<uint> present, IReadOnlySet<uint> leaving, int replicationFactor)
    {
        var shards = records.Where(record => record.Replicas.Count(replica => !replica.Learner) == replicationFactor).OrderBy(record => record.Shard).ToList();
        var held = shards.SelectMany(record => record.Replicas).CountBy(replica => replica.Node).ToDictionary();
        var takers = present.Where(node => !leaving.Contains(node)).OrderBy(node => held.GetValueOrDefault(node)).ThenBy(node => node).ToList();
        return shards.Select(record => Completion(record, present, leaving, held)).FirstOrDefault(move => move is not null)
            ?? shards.Select(record => Departure(record, leaving, takers)).FirstOrDefault(move => move is not null)
            ?? Levelling(shards, takers, held);
    }

    // A learner whose node is away keeps nobody from moving.
    private static ReplicaMove? Completion(ShardRecord record, IReadOnlySet<uint> present, IReadOnlySet<uint> leaving, Dictionary<uint, int> held)
    {
        if (record.Replicas.FirstOrDefault(replica => replica.Learner && present.Contains(replica.Node)) is not { } learner)
            return null;
        var from = Voters(record).OrderByDescending(leaving.Contains).ThenByDescending(node => held[node]).ThenBy(node => node).First();
        return new ReplicaMove(record.Shard, from, learner.Node, "a learner is there already");
    }

    private static ReplicaMove? Departure(ShardRecord record, IReadOnlySet<uint> leaving, List<uint> takers)
    {
        var from = Voters(record).FirstOrDefault(leaving.Contains);
        var to = takers.FirstOrDefault(node => !Has(record, node));
        return from == 0 || to == 0 ? null : new ReplicaMove(record.Shard, from, to, $"node {from} leaves");
    }

    // A follower rather than the leader, which would have to hand over first.
    private static ReplicaMove? Levelling(List<ShardRecord> shards, List<uint> takers, Dictionary<uint, int> held)
    {
        if (takers.Count < 2)
            return null;
        var (to, from) = (takers[0], takers[^1]);
        var difference = held.GetValueOrDefault(from) - held.GetValueOrDefault(to);
        return difference <= DifferenceMax
            ? null
            : shards.Where(record => Has(record, from) && !Has(record, to))
                .OrderBy(record => record.Replicas.Any(replica => replica.Node == from && replica.Replica == record.Leader))
                .Select(record => new ReplicaMove(record.Shard, from, to, $"node {from} has {difference} more"))
                .FirstOrDefault();
    }

    private static IEnumerable<uint> Voters(ShardRecord record) => record.Replicas.Where(replica => !replica.Learner).Select(replica => replica.Node);

    private static bool Has(ShardRecord record, uint node) => record.Replicas.Any(replica => replica.Node == node);
}
