using KvCluster.Internal.V1;
using KvCluster.Node.Placement;

namespace KvCluster.Tests.Node;

/// <summary>Which replica moves next: a table of cluster states and their next moves. One test runs the moves to the end.</summary>
public sealed class MoveSelectionTests
{
    [Fact]
    public void Next_BalancedCluster_IsNothing() =>
        Assert.Null(Next([Shard(0, 1, 2, 3), Shard(1, 2, 3, 1)], [1, 2, 3], []));

    [Fact]
    public void Next_WithAnEmptyNodeAndOneReplicaOnEachOther_IsNothing() =>
        Assert.Null(Next([Shard(0, 1, 2, 3)], [1, 2, 3, 4], []));

    [Fact]
    public void Next_WithAnEmptyNode_TakesAFollowerFromTheFullest() =>
        Assert.Equal((1u, 3u, 4u), Where(Next([Shard(0, 3, 1, 2), Shard(1, 1, 2, 3)], [1, 2, 3, 4], [])));

    [Fact]
    public void Next_WithANodeThatLeaves_MovesFromItEvenIfItIsTheEmptiest() =>
        Assert.Equal((1u, 4u, 1u), Where(Next([Shard(0, 1, 2, 3), Shard(1, 4, 2, 3)], [1, 2, 3, 4], [4])));

    [Fact]
    public void Next_WithANodeThatLeavesAndIsDown_StillMovesFromIt() =>
        Assert.Equal((0u, 3u, 4u), Where(Next([Shard(0, 1, 2, 3)], [1, 2, 4], [3])));

    [Fact]
    public void Next_WithNoNodeToTakeIt_IsNothing() =>
        Assert.Null(Next([Shard(0, 1, 2, 3)], [1, 2, 3], [3]));

    [Fact]
    public void Next_WithALearnerThatAnInterruptedMoveLeft_FinishesThatFirst()
    {
        var interrupted = Shard(1, 1, 2, 3);
        interrupted.Replicas.Add(new ReplicaRecord { Replica = 99, Node = 5, Learner = true });
        Assert.Equal((1u, 2u, 5u), Where(Next([Shard(0, 1, 2, 3), interrupted], [1, 2, 3, 4, 5], [2])));
    }

    [Fact]
    public void Next_WithALearnerOnANodeThatIsDown_ContinuesWithoutIt()
    {
        var interrupted = Shard(0, 1, 2, 3);
        interrupted.Replicas.Add(new ReplicaRecord { Replica = 99, Node = 5, Learner = true });
        Assert.Equal((0u, 2u, 4u), Where(Next([interrupted, Shard(1, 1, 2, 3)], [1, 2, 3, 4], [2])));
    }

    [Fact]
    public void Next_WithALearnerOnANodeThatIsGoneForGood_RemovesItWithoutReplacement()
    {
        var interrupted = Shard(0, 1, 2, 3);
        interrupted.Replicas.Add(new ReplicaRecord { Replica = 99, Node = 5, Learner = true });
        Assert.Equal((0u, 5u, 0u), Where(Next([interrupted], [1, 2, 3, 4], [], 5)));
        Assert.Null(Next([interrupted], [1, 2, 3, 4], []));
    }

    [Fact]
    public void Next_WithALearnerOnANodeThatLeaves_RemovesIt()
    {
        var interrupted = Shard(0, 1, 2, 3);
        interrupted.Replicas.Add(new ReplicaRecord { Replica = 99, Node = 5, Learner = true });
        Assert.Equal((0u, 5u, 0u), Where(Next([interrupted], [1, 2, 3, 4, 5], [5])));
    }

    [Fact]
    public void Next_WithAShardThatLacksAVoter_FirstAddsOneOnTheEmptiestNode() =>
        Assert.Equal((1u, 0u, 4u), Where(Next([Shard(0, 1, 2, 3), Shard(1, 1, 2)], [1, 2, 3, 4], [1])));

    [Fact]
    public void Next_WithAShardThatLacksAVoterAndOnlyItsFormerNodeFree_AddsItThere() =>
        Assert.Equal((0u, 0u, 3u), Where(Next([Shard(0, 1, 2)], [1, 2, 3], [])));

    [Fact]
    public void Next_WithAShardThatLacksAVoterAndNoNodeForIt_IsNothing() =>
        Assert.Null(Next([Shard(0, 1, 2)], [1, 2, 3], [3]));

    [Fact]
    public void Next_WithALearnerForTheMissingVoter_LeavesItToTheLearnersNodeUntilThatIsGone()
    {
        var rebuilt = Shard(0, 1, 2);
        rebuilt.Replicas.Add(new ReplicaRecord { Replica = 99, Node = 3, Learner = true });
        Assert.Null(Next([rebuilt], [1, 2, 3, 4], []));
        Assert.Null(Next([rebuilt], [1, 2, 4], []));
        Assert.Equal((0u, 3u, 0u), Where(Next([rebuilt], [1, 2, 4], [], 3)));
    }

    [Fact]
    public void InOrder_SeveralEmptyNodes_ListsMovesToEach()
    {
        var moves = MoveSelection.InOrder([Shard(0, 1, 2, 3), Shard(1, 1, 2, 3), Shard(2, 1, 2, 3)], Ids([1, 2, 3, 4, 5]), Ids([]), Ids([]), 3).ToList();
        Assert.Equal(new NodeId(4), moves[0].ToNode);
        Assert.Contains(moves, move => move.ToNode == new NodeId(5));
    }

    [Fact]
    public void IsRepair_IsTrueOnlyForMissingVoters()
    {
        Assert.True(MoveSelection.IsRepair(new ReplicaMove(new(0), NodeId.None, new(3), ""), Shard(0, 1, 2), 3));
        Assert.True(MoveSelection.IsRepair(new ReplicaMove(new(0), new(3), NodeId.None, ""), Shard(0, 1, 2), 3));
        Assert.False(MoveSelection.IsRepair(new ReplicaMove(new(0), new(4), NodeId.None, ""), Shard(0, 1, 2, 3), 3));
        Assert.False(MoveSelection.IsRepair(new ReplicaMove(new(0), new(1), new(4), ""), Shard(0, 1, 2, 3), 3));
    }

    [Theory]
    [InlineData(5, new uint[0])]
    [InlineData(5, new uint[] { 1 })]
    [InlineData(5, new uint[] { 4, 5 })]
    [InlineData(9, new uint[] { 2, 4 })]
    public void Next_RepeatedUntilNone_EndsBalancedWithNothingOnNodesThatLeave(int nodes, uint[] leaving)
    {
        var present = Enumerable.Range(1, nodes).Select(node => (uint)node).ToHashSet();
        var shards = Enumerable.Range(0, 20).Select(shard => Shard((uint)shard, 1, 2, 3)).ToList();
        var moves = 0;
        while (Next(shards, present, [.. leaving]) is { } move)
        {
            var shard = shards.Single(shard => shard.ShardId == move.Shard);
            Assert.DoesNotContain(move.ToNode, shard.Replicas.Select(replica => replica.NodeId));
            shard.Replicas.Single(replica => replica.NodeId == move.FromNode).NodeId = move.ToNode;
            Assert.True(++moves <= 120, "the moves do not end");
        }

        var held = present.Except(leaving).Select(node => shards.Count(shard => shard.Replicas.Any(replica => replica.Node == node))).ToList();
        Assert.DoesNotContain(shards.SelectMany(shard => shard.Replicas), replica => leaving.Contains(replica.Node));
        Assert.True(held.Max() - held.Min() <= 1, string.Join(" ", held));
    }

    private static ReplicaMove? Next(IEnumerable<ShardRecord> shards, HashSet<uint> present, HashSet<uint> leaving, params uint[] gone) =>
        MoveSelection.InOrder(shards, Ids(present), Ids(gone), Ids(leaving), 3).FirstOrDefault();

    private static HashSet<NodeId> Ids(IEnumerable<uint> nodes) => [.. nodes.Select(node => new NodeId(node))];

    private static (uint Shard, uint From, uint To) Where(ReplicaMove? move) => (move!.Shard.Value, move.FromNode.Value, move.ToNode.Value);

    // The replica on the first node leads.
    private static ShardRecord Shard(uint shard, params uint[] nodes)
    {
        var record = new ShardRecord { Shard = shard, Leader = (shard * 10) + 1 };
        for (var index = 0u; index < nodes.Length; index++)
            record.Replicas.Add(new ReplicaRecord { Replica = (shard * 10) + index + 1, Node = nodes[index], Created = true });
        return record;
    }
}
