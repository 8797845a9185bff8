using KvCluster.Internal.V1;
using KvCluster.Replication.Protocol;

namespace KvCluster.Tests.Replication;

/// <summary>What a change makes of a shard's record. The transcripts test how it is made.</summary>
public sealed class ReplicaChangeTests
{
    [Fact]
    public void Promote_WithAllVotersPresent_IsRefused()
    {
        var record = Record(1, 2, 3);
        record.Replicas.Add(new ReplicaRecord { Replica = 4, Node = 4, Learner = true, Created = true });
        Assert.Null(new ReplicaChange.Promote(new(4), 3).ApplyTo(record, new(1), out var refusal));
        Assert.Equal("the shard already has its 3 voters", refusal);
        record.Replicas.RemoveAt(2);
        Assert.Equal([1ul, 2ul, 4ul], new ReplicaChange.Promote(new(4), 3).ApplyTo(
            record, new(1), out _)!.Replicas.Where(replica => !replica.Learner).Select(replica => replica.Replica));
    }

    [Fact]
    public void AddLearner_InPlaceOfALostReplica_ReplacesItInOneGeneration()
    {
        var record = Record(1, 2, 3);
        var changed = new ReplicaChange.AddLearner(new(9), Node: new(3), InPlaceOf: new(3)).ApplyTo(record, new(1), out _)!;
        Assert.Equal(record.Generation + 1, changed.Generation);
        Assert.Equal(
            [(1ul, 1u, false), (2ul, 2u, false), (9ul, 3u, true)], changed.Replicas.Select(replica => (replica.Replica, replica.Node, replica.Learner)));
        Assert.Equal([3ul], changed.Removed);
        // A leader that asks again based on its earlier read finds its own change and makes no second one.
        Assert.Null(new ReplicaChange.AddLearner(new(10), Node: new(3), InPlaceOf: new(3)).ApplyTo(changed, new(1), out _));
    }

    [Fact]
    public void AddLearner_OnANodeThatHasAnotherReplica_IsRefused()
    {
        Assert.Null(new ReplicaChange.AddLearner(new(9), Node: new(2), InPlaceOf: new(3)).ApplyTo(Record(1, 2, 3), new(1), out var refusal));
        Assert.Equal("node 2 already has a replica of the shard", refusal);
    }

    private static ShardRecord Record(params ulong[] replicas) => new()
    {
        Generation = 5,
        Replicas = { replicas.Select(replica => new ReplicaRecord { Replica = replica, Node = (uint)replica, Created = true }) },
    };
}
