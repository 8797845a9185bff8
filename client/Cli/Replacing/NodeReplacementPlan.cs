using KvCluster.Client;

namespace KvCluster.Cli.Replacing;

/// <summary>What is to become of the replicas of a node that is replaced, decided from what the other nodes tell. Pure.</summary>
/// <param name="From">The node.</param>
/// <param name="Moves">Its replicas, by shard.</param>
internal sealed record NodeReplacementPlan(uint From, IReadOnlyList<PlannedMove> Moves)
{
    /// <summary>Plans the replacement of a node.</summary>
    /// <param name="status">What the nodes tell.</param>
    /// <param name="placement">Which nodes are to leave, and whether replicas move.</param>
    /// <param name="from">The node that is replaced. It need not answer.</param>
    /// <param name="to">The node that gets its replicas; null: the cluster chooses one for each.</param>
    /// <exception cref="CliException">The node cannot be replaced, or not by that one; nothing was changed.</exception>
    public static NodeReplacementPlan Of(ClusterStatus status, PlacementStatus placement, uint from, uint? to)
    {
        var shards = Shards(status);
        var known = status.Nodes.Select(static node => node.Node).Concat(shards.Values.SelectMany(static voters => voters)).ToHashSet();
        if (to == from)
            throw new CliException(
                ExitCodes.Usage, $"NEW must be another node than OLD. To rebuild a replica on node {from} itself, use kv admin replace SHARD --from {from}.");
        if (!known.Contains(from) && !placement.Leaving.ContainsKey(from))
            throw NoNode(from);
        if (to is { } target)
            RequireTaker(status, placement, target);
        var held = shards.Where(shard => shard.Value.Contains(from)).ToList();
        if (held.Count == 0)
            return new NodeReplacementPlan(from, []);

        var others = known.Where(node => node != from && !placement.Leaving.ContainsKey(node)).ToList();
        var replicas = shards.Values.Max(static voters => voters.Count);
        if (others.Count < replicas)
        {
            throw new CliException(
                ExitCodes.Unavailable,
                $"Without node {from} only {others.Count} nodes would remain, and a shard has {replicas} replicas, so nothing was changed. "
                + $"If its disk or machine is lost, start node {from} with an empty data directory under the same number, and its replicas are rebuilt there; "
                + "or add a node first.");
        }

        var takers = status.Nodes.Where(node => node.Error.Length == 0 && others.Contains(node.Node)).Select(static node => node.Node).ToList();
        return new NodeReplacementPlan(from, [.. held.Select(shard => Plan(shard.Key, shard.Value, [.. takers.Except(shard.Value)], placement.Paused, to))]);
    }

    /// <summary>The nodes of each shard's voters, as its leader tells, or whoever knows the newest leadership.</summary>
    public static SortedDictionary<uint, IReadOnlyList<uint>> Shards(ClusterStatus status) => new(status.Nodes
        .SelectMany(static node => node.Replicas)
        .GroupBy(static replica => replica.Shard)
        .ToDictionary(static shard => shard.Key, static shard => shard.MaxBy(static replica => (replica.Role == "leader", replica.Epoch))!.Voters));

    private static PlannedMove Plan(uint shard, IReadOnlyList<uint> voters, IReadOnlyList<uint> takers, bool paused, uint? to)
    {
        if (to is { } target && takers.Contains(target))
            return new PlannedMove(shard, voters, target);
        if (takers.Count == 0)
            return new PlannedMove(shard, voters, To: null) { Refusal = "every other node that answers has a replica of it already" };
        if (!paused)
            return new PlannedMove(shard, voters, To: null);
        var why = to is null ? "moves of replicas are paused"
            : $"node {to} has a replica of it already, and moves to nodes that the cluster chooses are paused";
        return new PlannedMove(shard, voters, To: null) { Refusal = $"{why} (kv admin placement --resume)" };
    }

    private static void RequireTaker(ClusterStatus status, PlacementStatus placement, uint to)
    {
        if (status.Nodes.FirstOrDefault(node => node.Node == to) is not { } node)
            throw NoNode(to);
        if (node.Error.Length > 0)
            throw new CliException(ExitCodes.Unavailable, $"Node {to} does not answer, so nothing was changed: {node.Error}");
        if (placement.Leaving.ContainsKey(to))
            throw new CliException(
                ExitCodes.Unavailable, $"Node {to} is leaving and gets no replicas, so nothing was changed. kv admin placement --stay {to} ends that.");
    }

    private static CliException NoNode(uint node) => new(ExitCodes.Usage, $"There is no node {node}; nothing was changed.");
}

/// <summary>What is to become of one replica.</summary>
/// <param name="Shard">Its shard.</param>
/// <param name="Voters">The nodes of the shard's voters, before.</param>
/// <param name="To">The node that gets it; null: the cluster chooses one, unless there is a refusal.</param>
internal sealed record PlannedMove(uint Shard, IReadOnlyList<uint> Voters, uint? To)
{
    /// <summary>Why it cannot be moved now; empty if it can.</summary>
    public string Refusal { get; init; } = "";
}
