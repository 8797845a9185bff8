using KvCluster.Internal.V1;
using KvCluster.Node.Placement;
using KvCluster.Node.Shards;
using KvCluster.Replication.Progress;
using KvCluster.Replication.Protocol;

namespace KvCluster.Tests.Node;

/// <summary>What a leader answers when replicas of its shard are to stop or to leave. Replica 1 on node 1 leads, and replica N is on node N.</summary>
public sealed class MajorityAfterStopTests
{
    private static readonly TimeSpan _kept = TimeSpan.FromSeconds(30);
    private readonly MajorityAfterStop _majority = new(new(1), static _ => true, static _ => false, new ManualTime());

    [Fact]
    public void TryLetGo_TwoOfThree_LetsOneGo()
    {
        var record = RecordOf(learners: [], 1, 2, 3);
        Assert.Null(_majority.TryLetGo(ViewOf(record), new(2), _kept));
        Assert.NotNull(_majority.TryLetGo(ViewOf(record), new(3), _kept));
    }

    /// <summary>
    /// Found by the simulation: replica 4 was about to take the place of 3, which took some hundred milliseconds. Replica 2 was allowed to stop
    /// meanwhile, because 1 and 3 remained. Then 4 was, because it was still a learner and did not count. After the change, two of three voters had
    /// stopped for good.
    /// </summary>
    [Fact]
    public void TryLetGo_AVoterAndTheLearnerThatIsAboutToVote_RefusesOne()
    {
        var record = RecordOf(learners: [4], 1, 2, 3);
        Assert.Null(_majority.TryBegin(ViewOf(record), new ReplicaChange.Swap(new(3), new(4)), force: false));
        Assert.Null(_majority.TryLetGo(ViewOf(record), new(2), _kept));
        Assert.NotNull(_majority.TryLetGo(ViewOf(record), new(4), _kept));
    }

    /// <summary>The reverse order, with the change last: a learner that was allowed to stop does not count for the majority when it becomes a voter.</summary>
    [Fact]
    public void TryLetGo_ALearnerFirst_DoesNotCountItLater()
    {
        var record = RecordOf(learners: [4], 1, 2, 3);
        var swap = new ReplicaChange.Swap(new(3), new(4));
        Assert.Null(_majority.TryBegin(ViewOf(record), swap, force: false));
        Assert.Null(_majority.TryLetGo(ViewOf(record), new(4), _kept));
        Assert.NotNull(_majority.TryLetGo(ViewOf(record), new(2), _kept));
        _majority.End(record.ShardId, swap);
        Assert.Null(_majority.TryLetGo(ViewOf(record), new(2), _kept));
        Assert.NotNull(_majority.TryBegin(ViewOf(record), swap, force: false));
    }

    /// <summary>If two voters remain after the change, neither of them may stop, although three vote until then.</summary>
    [Fact]
    public void TryLetGo_WhileAnotherVoterLeaves_CountsOnlyTheRemainingOnes()
    {
        var record = RecordOf(learners: [], 1, 2, 3);
        var remove = new ReplicaChange.Remove(new(3));
        Assert.Null(_majority.TryBegin(ViewOf(record), remove, force: false));
        Assert.NotNull(_majority.TryLetGo(ViewOf(record), new(2), _kept));
        Assert.Null(_majority.TryLetGo(ViewOf(record), new(3), TimeSpan.Zero));
        _majority.End(record.ShardId, remove);
        Assert.Null(_majority.TryLetGo(ViewOf(record), new(2), _kept));
    }

    [Fact]
    public void TryLetGo_InALaterLeadership_ForgetsChangesOfTheEarlierOne()
    {
        var record = RecordOf(learners: [4], 1, 2, 3);
        Assert.Null(_majority.TryBegin(ViewOf(record), new ReplicaChange.Swap(new(3), new(4)), force: false));
        Assert.Null(_majority.TryLetGo(ViewOf(record), new(2), _kept));
        var later = ViewOf(record) with { Epoch = 8 };
        Assert.Null(_majority.TryLetGo(later, new(4), _kept));
        Assert.Null(_majority.TryLetGo(later, new(3), _kept));
    }

    [Fact]
    public void TryBegin_WithoutAMajority_IsRefusedUnlessForced()
    {
        var record = RecordOf(learners: [], 1, 2, 3);
        Assert.Null(_majority.TryLetGo(ViewOf(record), new(2), _kept));
        Assert.NotNull(_majority.TryBegin(ViewOf(record), new ReplicaChange.Remove(new(3)), force: false));
        Assert.Null(_majority.TryBegin(ViewOf(record), new ReplicaChange.Remove(new(3)), force: true));
    }

    private static LeaderView ViewOf(ShardRecord record) => new(
        new(1), 7, default, IsQuiescent: false, record,
        [.. new[] { 2u, 3u, 4u }.Select(static id => new FollowerView(new(id), new(id), FollowerState.Replicate, default))]);

    private static ShardRecord RecordOf(uint[] learners, params uint[] voters) => new()
    {
        Replicas =
        {
            voters.Select(static id => new ReplicaRecord { Replica = id, Node = id, Created = true }),
            learners.Select(static id => new ReplicaRecord { Replica = id, Node = id, Created = true, Learner = true }),
        },
    };
}
