using KvCluster.Node.Placement;
using KvCluster.Replication.Protocol;
using KvCluster.V1;

namespace KvCluster.Tests.Node;

/// <summary>What a leader says when replicas of its shard are to stop or to leave: replica 1 on node 1 leads, replica N is on node N.</summary>
public sealed class StayingMajorityTests
{
    private static readonly TimeSpan _kept = TimeSpan.FromSeconds(30);
    private static readonly ReplicaStatus _status = new()
    {
        Route = new ShardRoute(),
        Replica = 1,
        Epoch = 7,
        Detail = new ReplicaDetail
        {
            Followers = { new[] { 2u, 3u, 4u }.Select(id => new FollowerStatus { Replica = id, Node = id, State = "replicate" }) },
        },
    };

    private readonly StayingMajority _majority = new(1, static _ => true, static _ => false, new ManualTime());

    [Fact]
    public void TryLetGo_TwoOfThree_LetsOneGo()
    {
        var record = RecordOf(learners: [], 1, 2, 3);
        Assert.Null(_majority.TryLetGo(_status, record, 2, _kept));
        Assert.NotNull(_majority.TryLetGo(_status, record, 3, _kept));
    }

    /// <summary>
    /// Found by the simulation: replica 4 was about to take the place of 3, which took some hundred milliseconds. Replica 2 was let go meanwhile, as 1 and 3 stayed, and then 4, which was
    /// still a learner and so nobody's concern. When the change was done, two of three voters had stopped for good.
    /// </summary>
    [Fact]
    public void TryLetGo_AVoterAndTheLearnerThatIsAboutToVote_RefusesOne()
    {
        var record = RecordOf(learners: [4], 1, 2, 3);
        Assert.Null(_majority.TryBegin(_status, record, new ReplicaChange.Swap(3, 4), force: false));
        Assert.Null(_majority.TryLetGo(_status, record, 2, _kept));
        Assert.NotNull(_majority.TryLetGo(_status, record, 4, _kept));
    }

    /// <summary>The other order, and the change last: a learner that was let go does not stand for a majority when it is to vote.</summary>
    [Fact]
    public void TryLetGo_ALearnerFirst_ItCountsForNothingLater()
    {
        var record = RecordOf(learners: [4], 1, 2, 3);
        var swap = new ReplicaChange.Swap(3, 4);
        Assert.Null(_majority.TryBegin(_status, record, swap, force: false));
        Assert.Null(_majority.TryLetGo(_status, record, 4, _kept));
        Assert.NotNull(_majority.TryLetGo(_status, record, 2, _kept));
        _majority.End(record.Shard, swap);
        Assert.Null(_majority.TryLetGo(_status, record, 2, _kept));
        Assert.NotNull(_majority.TryBegin(_status, record, swap, force: false));
    }

    /// <summary>Of two voters that will be left, none may go, although three vote until the change is done.</summary>
    [Fact]
    public void TryLetGo_WhileAnotherVoterLeaves_CountsThoseWhoStay()
    {
        var record = RecordOf(learners: [], 1, 2, 3);
        var remove = new ReplicaChange.Remove(3);
        Assert.Null(_majority.TryBegin(_status, record, remove, force: false));
        Assert.NotNull(_majority.TryLetGo(_status, record, 2, _kept));
        Assert.Null(_majority.TryLetGo(_status, record, 3, TimeSpan.Zero));
        _majority.End(record.Shard, remove);
        Assert.Null(_majority.TryLetGo(_status, record, 2, _kept));
    }

    [Fact]
    public void TryLetGo_InALaterLeadership_ForgetsWhatTheEarlierOneBegan()
    {
        var record = RecordOf(learners: [4], 1, 2, 3);
        Assert.Null(_majority.TryBegin(_status, record, new ReplicaChange.Swap(3, 4), force: false));
        Assert.Null(_majority.TryLetGo(_status, record, 2, _kept));
        var later = _status.Clone();
        later.Epoch++;
        Assert.Null(_majority.TryLetGo(later, record, 4, _kept));
        Assert.Null(_majority.TryLetGo(later, record, 3, _kept));
    }

    [Fact]
    public void TryBegin_WithoutAMajority_IsRefusedUnlessForced()
    {
        var record = RecordOf(learners: [], 1, 2, 3);
        Assert.Null(_majority.TryLetGo(_status, record, 2, _kept));
        Assert.NotNull(_majority.TryBegin(_status, record, new ReplicaChange.Remove(3), force: false));
        Assert.Null(_majority.TryBegin(_status, record, new ReplicaChange.Remove(3), force: true));
    }

    private static ShardRecord RecordOf(uint[] learners, params uint[] voters) => new()
    {
        Replicas =
        {
            voters.Select(static id => new ReplicaRecord { Replica = id, Node = id, Created = true }),
            learners.Select(static id => new ReplicaRecord { Replica = id, Node = id, Created = true, Learner = true }),
        },
    };
}
