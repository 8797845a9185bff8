using KvCluster.Cli;
using KvCluster.Cli.Replacing;
using KvCluster.Client;

namespace KvCluster.Tests.Cli;

/// <summary>What <c>kv admin replace-node</c> would do, by what the nodes tell.</summary>
public sealed class NodeReplacementPlanTests
{
    private const uint Gone = 3;

    private static readonly PlacementStatus Moves = new(Paused: false, new Dictionary<uint, int>());
    private static readonly PlacementStatus Pauses = Moves with { Paused = true };

    [Fact]
    public void Of_ANodeThatIsGone_MovesItsReplicasToTheNamedNode()
    {
        var plan = NodeReplacementPlan.Of(Cluster(4, [1, 2, 3], [2, 3, 1], [4, 1, 2]), Moves, Gone, 4);
        Assert.Equal([(0, 4u, ""), (1, 4u, "")], plan.Moves.Select(static move => ((int)move.Shard, move.To!.Value, move.Refusal)));
    }

    [Fact]
    public void Of_ANodeInsteadOfWhichNoneIsNamed_LeavesTheChoiceToTheCluster() =>
        Assert.All(
            NodeReplacementPlan.Of(Cluster(4, [1, 2, 3], [2, 3, 1]), Moves, Gone, to: null).Moves,
            static move => Assert.Equal((null, ""), (move.To, move.Refusal)));

    /// <summary>The named node has a replica of some shards, and of no shard it can have two.</summary>
    [Fact]
    public void Of_ShardsThatTheNamedNodeHas_LeavesTheirNodeToTheCluster()
    {
        var status = Cluster(5, [1, 2, 3], [3, 4, 1]);
        Assert.Equal([4u, null], NodeReplacementPlan.Of(status, Moves, Gone, 4).Moves.Select(static move => move.To));
        Assert.Equal(["", "node 4 has a replica of it already, and moves to nodes that the cluster chooses are paused (kv admin placement --resume)"],
            NodeReplacementPlan.Of(status, Pauses, Gone, 4).Moves.Select(static move => move.Refusal));
    }

    [Fact]
    public void Of_WhileMovesArePaused_OnlyMovesToANamedNode()
    {
        var status = Cluster(4, [1, 2, 3]);
        Assert.Equal("", NodeReplacementPlan.Of(status, Pauses, Gone, 4).Moves.Single().Refusal);
        Assert.Equal(
            "moves of replicas are paused (kv admin placement --resume)", NodeReplacementPlan.Of(status, Pauses, Gone, to: null).Moves.Single().Refusal);
    }

    /// <summary>Nodes 3 and 4 are gone, so no node that answers lacks a replica of the shard.</summary>
    [Fact]
    public void Of_AShardThatNoOtherNodeCanTake_SaysSo()
    {
        var status = Silence(Cluster(4, [1, 2, 3]), 4);
        Assert.Equal("every other node that answers has a replica of it already", NodeReplacementPlan.Of(status, Moves, Gone, to: null).Moves.Single().Refusal);
    }

    /// <summary>It is known by its shards only: it does not answer, and is in no list of addresses any more.</summary>
    [Fact]
    public void Of_ANodeWithoutReplicas_HasNothingToDo()
    {
        Assert.Empty(NodeReplacementPlan.Of(Cluster(4, [1, 2, 4]), Moves, Gone, 4).Moves);
        Assert.Empty(NodeReplacementPlan.Of(Cluster(2, [1, 2]), Moves with { Leaving = new Dictionary<uint, int> { [Gone] = 0 } }, Gone, to: null).Moves);
    }

    /// <summary>The usual cluster of three has no node for the replicas. The message names what is right there.</summary>
    [Theory]
    [InlineData(null)]
    [InlineData(2u)]
    public void Of_AClusterWithoutASpareNode_IsRefusedAndNamesWhatToDo(uint? to)
    {
        var refused = Refused(Cluster(3, [1, 2, 3], [2, 3, 1]), Moves, to);
        Assert.Equal(ExitCodes.Unavailable, refused.ExitCode);
        Assert.StartsWith(
            "Without node 3 only 2 nodes would remain, and a shard has 3 replicas, so nothing was changed. ", refused.Message, StringComparison.Ordinal);
        Assert.Contains("start node 3 with an empty data directory under the same number", refused.Message, StringComparison.Ordinal);
        Assert.Contains("or add a node first", refused.Message, StringComparison.Ordinal);
    }

    /// <summary>A node that leaves takes none, so it counts for nothing.</summary>
    [Fact]
    public void Of_AClusterWhoseSpareNodeLeaves_IsRefused() =>
        Assert.StartsWith(
            "Without node 3 only 2 nodes would remain",
            Refused(Cluster(4, [1, 2, 3]), Moves with { Leaving = new Dictionary<uint, int> { [4] = 0 } }, to: null).Message, StringComparison.Ordinal);

    [Theory]
    [InlineData(3u, ExitCodes.Usage, "NEW must be another node than OLD.")]
    [InlineData(9u, ExitCodes.Usage, "There is no node 9; nothing was changed.")]
    [InlineData(4u, ExitCodes.Unavailable, "Node 4 does not answer, so nothing was changed: silent")]
    [InlineData(5u, ExitCodes.Unavailable, "Node 5 is leaving and gets no replicas, so nothing was changed.")]
    public void Of_ANamedNodeThatCannotTakeReplicas_IsRefused(uint to, int exitCode, string expected)
    {
        var refused = Refused(Silence(Cluster(5, [1, 2, 3]), 4), Moves with { Leaving = new Dictionary<uint, int> { [5] = 0 } }, to);
        Assert.Equal(exitCode, refused.ExitCode);
        Assert.StartsWith(expected, refused.Message, StringComparison.Ordinal);
    }

    [Fact]
    public void Of_ANodeThatNobodyKnows_IsRefused() =>
        Assert.Equal(
            "There is no node 9; nothing was changed.",
            Assert.Throws<CliException>(static () => NodeReplacementPlan.Of(Cluster(4, [1, 2, 4]), Moves, 9, to: null)).Message);

    /// <summary>A replica that has not heard of the newest leader yet tells who was a voter before.</summary>
    [Fact]
    public void Shards_OfWhichReplicasTellDifferently_AreAsTheLeaderTells()
    {
        var status = new ClusterStatus("local", [Node(1, Replica(0, "follower", epoch: 2, [1, 2, 3])),
            Node(2, Replica(0, "leader", epoch: 2, [1, 2, 4])), Node(4, Replica(0, "follower", epoch: 3, [1, 2, 3]))]);
        Assert.Equal([1u, 2, 4], NodeReplacementPlan.Shards(status)[0]);
    }

    private static CliException Refused(ClusterStatus status, PlacementStatus placement, uint? to) =>
        Assert.Throws<CliException>(() => NodeReplacementPlan.Of(status, placement, Gone, to));

    // Nodes from 1 on; the third does not answer. Each shard has its voters on these nodes.
    private static ClusterStatus Cluster(uint nodes, params uint[][] shards)
    {
        var all = Enumerable.Range(1, (int)nodes).Select(node => Node((uint)node,
            [.. shards.Index().Where(shard => shard.Item.Contains((uint)node)).Select(
                shard => Replica((uint)shard.Index, shard.Item[0] == node ? "leader" : "follower", epoch: 1, shard.Item))]));
        return Silence(new ClusterStatus("local", [.. all]), Gone);
    }

    private static ClusterStatus Silence(ClusterStatus status, uint silent) =>
        status with { Nodes = [.. status.Nodes.Select(node => node.Node == silent ? node with { Error = "silent", Replicas = [] } : node)] };

    private static NodeStatus Node(uint node, params ReplicaStatus[] replicas) => new(node, $"http://n{node}", "0.1.0", "", replicas);

    private static ReplicaStatus Replica(uint shard, string role, ulong epoch, IReadOnlyList<uint> voters) =>
        new(shard, default, default, role, epoch, 0, default, default, default, default, 0, 0, 0, 0, default, default, "", null) { Voters = voters };
}
