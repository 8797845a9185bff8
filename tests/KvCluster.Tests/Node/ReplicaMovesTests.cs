using KvCluster.Node.Placement;
using KvCluster.V1;

namespace KvCluster.Tests.Node;

/// <summary>Which replica moves next: a table of cluster states and their next moves. One test runs the moves to the end.</summary>
public sealed class ReplicaMovesTests
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
        var moves = ReplicaMoves.InOrder([Shard(0, 1, 2, 3), Shard(1, 1, 2, 3), Shard(2, 1, 2, 3)], new HashSet<uint> { 1, 2, 3, 4, 5 }, new HashSet<uint>(), new HashSet<uint>(), 3).ToList();
        Assert.Equal(4u, moves[0].ToNode);
        Assert.Contains(moves, move => move.ToNode == 5);
    }

    [Fact]
    public void IsRepair_IsTrueOnlyForMissingVoters()
    {
        Assert.True(ReplicaMoves.IsRepair(new ReplicaMove(0, 0, 3, ""), Shard(0, 1, 2), 3));
        Assert.True(ReplicaMoves.IsRepair(new ReplicaMove(0, 3, 0, ""), Shard(0, 1, 2), 3));
        Assert.False(ReplicaMoves.IsRepair(new ReplicaMove(0, 4, 0, ""), Shard(0, 1, 2, 3), 3));
        Assert.False(ReplicaMoves.IsRepair(new ReplicaMove(0, 1, 4, ""), Shard(0, 1, 2, 3), 3));
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
            var shard = shards.Single(shard => shard.Shard == move.Shard);
            Assert.DoesNotContain(move.ToNode, shard.Replicas.Select(replica => replica.Node));
            shard.Replicas.Single(replica => replica.Node == move.FromNode).Node = move.ToNode;
            Assert.True(++moves <= 120, "the moves do not end");
        }

        var held = present.Except(leaving).Select(node => shards.Count(shard => shard.Replicas.Any(replica => replica.Node == node))).ToList();
        Assert.DoesNotContain(shards.SelectMany(shard => shard.Replicas), replica => leaving.Contains(replica.Node));
        Assert.True(held.Max() - held.Min() <= 1, string.Join(" ", held));
    }

    private static ReplicaMove? Next(IEnumerable<ShardRecord> shards, HashSet<uint> present, HashSet<uint> leaving, params uint[] gone) =>
        ReplicaMoves.InOrder(shards, present, gone.ToHashSet(), leaving, 3).FirstOrDefault();

    private static (uint Shard, uint From, uint To) Where(ReplicaMove? move) => (move!.Shard, move.FromNode, move.ToNode);

    // The replica on the first node leads.
    private static ShardRecord Shard(uint shard, params uint[] nodes)
    {
        var record = new ShardRecord { Shard = shard, Leader = (shard * 10) + 1 };
        for (var index = 0u; index < nodes.Length; index++)
            record.Replicas.Add(new ReplicaRecord { Replica = (shard * 10) + index + 1, Node = nodes[index], Created = true });
        return record;
    }
}
