using KvCluster.Replication.Protocol;

namespace KvCluster.Tests.Replication;

public sealed class QuorumTests
{
    [Theory]
    [InlineData(new long[] { 7 }, 7)]
    [InlineData(new long[] { 7, 9 }, 7)]
    [InlineData(new long[] { 7, 9, 8 }, 8)]
    [InlineData(new long[] { 9, 0, 0 }, 0)]
    [InlineData(new long[] { 1, 2, 3, 4 }, 2)]
    [InlineData(new long[] { 5, 1, 4, 2, 3 }, 3)]
    [InlineData(new long[] { 6, 6, 1, 1, 1 }, 1)]
    public void Agreed_OneSet_IsWhatAMajorityHasReached(long[] reached, long agreed)
    {
        var voters = Enumerable.Range(1, reached.Length).Select(id => new ReplicaId((ulong)id)).ToArray();
        Assert.Equal(agreed, new Quorum(voters).Agreed(id => reached[id.Value - 1]));
    }

    [Fact]
    public void Agreed_TwoSets_NeedsAMajorityOfBoth()
    {
        var quorum = new Quorum([new(1), new(2), new(3)], [new(3), new(4), new(5)]);
        var reached = new Dictionary<ulong, long> { [1] = 9, [2] = 8, [3] = 7, [4] = 3, [5] = 2 };
        Assert.Equal(3, quorum.Agreed(id => reached[id.Value]));
        Assert.False(quorum.Reached(id => id.Value is 1 or 2));
        Assert.False(quorum.Reached(id => id.Value is 3 or 4 or 5 && id.Value != 3));
        Assert.True(quorum.Reached(id => id.Value is 1 or 3 or 4));
    }

    /// <summary>The majority stays one of all voters, so that each is also one of those before.</summary>
    [Fact]
    public void Agreed_WithAnAbsentVoter_NeedsAMajorityOfAllAndIgnoresIt()
    {
        var quorum = Quorum.Of([new(1), new(2), new(3)], [new(3)]);
        Assert.Equal(4, quorum.Agreed(static id => id.Value == 1 ? 9L : id.Value == 2 ? 4L : 9L));
        Assert.False(quorum.Reached(static id => id.Value is 1 or 3));
        Assert.True(quorum.Reached(static id => id.Value is 1 or 2));
        Assert.True(quorum.SameAs(new Quorum([new ReplicaId(3), new ReplicaId(2), new ReplicaId(1)])));
        Assert.True(quorum.Contains(new(3)));
        // In two sets it counts in neither.
        var joint = Quorum.Joint(quorum, new Quorum([new ReplicaId(1), new ReplicaId(3), new ReplicaId(4)]));
        Assert.False(joint.Reached(static id => id.Value is 1 or 2 or 3));
        Assert.True(joint.Reached(static id => id.Value is 1 or 2 or 4));
    }

    [Fact]
    public void Reached_AnswersOfReplicasOutsideTheSet_DoNotCount() =>
        Assert.False(new Quorum([new ReplicaId(1), new ReplicaId(2), new ReplicaId(3)]).Reached(id => id.Value is 1 or 8 or 9));

    [Fact]
    public void Agreed_AnySizes_IsTheSortedListsMiddle()
    {
        var seed = Seeds.Given ?? 1;
        var random = new Random(seed);
        for (var round = 0; round < 2_000; round++)
        {
            var reached = Enumerable.Range(0, random.Next(1, 8)).Select(_ => random.NextInt64(5)).ToArray();
            var voters = reached.Select((_, index) => new ReplicaId((ulong)index)).ToArray();
            var byRank = reached.OrderDescending().ElementAt(reached.Length / 2);
            Assert.True(byRank == new Quorum(voters).Agreed(id => reached[id.Value]), $"KV_SEED={seed}: {string.Join(",", reached)}");
        }
    }
}
