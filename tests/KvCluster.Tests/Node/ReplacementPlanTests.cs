using KvCluster.Internal.V1;
using KvCluster.Node.Placement;
using KvCluster.Node.Shards;
using KvCluster.Replication.Progress;
using KvCluster.Replication.Protocol;

namespace KvCluster.Tests.Node;

/// <summary>
/// The steps of a replacement, depending on records, requests and followers. That they lead to its end is shown by the replica tests and the cluster
/// simulation.
/// </summary>
public sealed class ReplacementPlanTests
{
    private const int Voters = 3;
    private static readonly ReplicaId New = new(99);
    private static readonly TimeSpan Patience = TimeSpan.FromSeconds(3);

    [Fact]
    public void Plan_OfALostVoter_ReplacesItByALearnerThatBecomesAVoter()
    {
        var plan = Plan(Record(Voter(1), Voter(2), Voter(3)), from: 3, to: 3, lost: 33);
        Assert.Equal((null, ReplicaId.None, new ReplicaId(33)), (plan.Removal, plan.Learner, plan.Leaves));
        Assert.Equal(new ReplicaChange.AddLearner(New, new(3), InPlaceOf: new(33)), plan.Add(New));
        Assert.Equal(new ReplicaChange.Promote(New, Voters), plan.Last(New));
    }

    // The lost learner was taken for the one to come. The leader waited for it until its patience ended and removed it only then.
    [Fact]
    public void Plan_OfALostLearnerWhereAVoterIsMissing_ReplacesIt()
    {
        var plan = Plan(Record(Voter(1), Voter(2), Learner(3)), from: 3, to: 3, lost: 33);
        Assert.Equal((null, ReplicaId.None, new ReplicaId(33)), (plan.Removal, plan.Learner, plan.Leaves));
        Assert.Equal(new ReplicaChange.AddLearner(New, new(3), InPlaceOf: new(33)), plan.Add(New));
    }

    [Fact]
    public void Plan_OfALostLearnerBesideAllVoters_RemovesIt()
    {
        var plan = Plan(Record(Voter(1), Voter(2), Voter(3), Learner(4)), from: 4, to: 4, lost: 44);
        Assert.Equal((new ReplicaChange.Remove(new(44)), false), (plan.Removal, plan.RemovesLearner));
    }

    [Fact]
    public void Plan_OfAnInterruptedMove_ContinuesWithItsLearner()
    {
        var plan = Plan(Record(Voter(1), Voter(2), Voter(3), Learner(4)), from: 2, to: 4);
        Assert.Equal(new(44), plan.Learner);
        Assert.Equal(new ReplicaChange.Swap(new(22), new(44)), plan.Last(plan.Learner));
    }

    [Fact]
    public void Plan_WithALearnerOfAnotherReplacement_WaitsUntilItIsGone()
    {
        var plan = Plan(Record(Voter(1), Voter(2), Learner(3)), from: 0, to: 4);
        Assert.Equal([33UL], plan.Orphans(static node => node == new NodeId(3)).Select(static replica => replica.Replica));
        Assert.Equal("the learner on node 3 is to become a voter there", plan.WhyNoLearner([]));
        Assert.Null(plan.WhyNoLearner([new(33)]));
    }

    [Fact]
    public void Own_OfALearner_AsksOnlyWhereAVoterIsMissing()
    {
        Assert.Null(ReplacementPlan.Own(Record(Voter(1), Voter(2), Voter(3), Learner(4)), new(4), new(44), isLost: false, Voters));
        Assert.Equal(
            new ReplacementRequest(default, new(3), new(3)),
            ReplacementPlan.Own(Record(Voter(1), Voter(2), Learner(3)), new(3), new(33), isLost: false, Voters));
        Assert.Equal(
            new ReplacementRequest(default, new(3), new(3)) { Lost = new(33) },
            ReplacementPlan.Own(Record(Voter(1), Voter(2), Voter(3)), new(3), new(33), isLost: true, Voters));
        Assert.Null(ReplacementPlan.Own(Record(Voter(1), Voter(2), Voter(3)), new(3), new(34), isLost: true, Voters));
    }

    [Fact]
    public void CatchUp_OfALearnerThatProgresses_ContinuesUntilItHasEverything()
    {
        var watch = new ReplacementPlan.CatchUp(new(44), Patience, TimeSpan.Zero);
        Assert.Null(watch.Look(ViewOf(FollowerState.Snapshot, stored: 100), Patience * 0.9));
        Assert.Null(watch.Look(ViewOf(FollowerState.Snapshot, stored: 200), Patience * 1.8));
        Assert.Null(watch.Look(ViewOf(FollowerState.Replicate, acknowledged: 9_999), Patience * 2));
        Assert.True(watch.Look(ViewOf(FollowerState.Replicate, acknowledged: 9_000, followsClosely: true), Patience * 2.5));
    }

    [Fact]
    public void CatchUp_OfALearnerThatMakesNoProgress_IsAbandonedAfterThePatience()
    {
        var watch = new ReplacementPlan.CatchUp(new(44), Patience, TimeSpan.Zero);
        Assert.Null(watch.Look(ViewOf(FollowerState.Snapshot, stored: 100), TimeSpan.FromSeconds(1)));
        Assert.Null(watch.Look(ViewOf(FollowerState.Snapshot, stored: 100), Patience));
        Assert.False(watch.Look(ViewOf(FollowerState.Snapshot, stored: 100), TimeSpan.FromSeconds(1) + Patience));
    }

    private static ReplacementPlan Plan(ShardRecord record, uint from, uint to, ulong lost = 0)
    {
        var request = new ReplacementRequest(default, new(from), new(to)) { Lost = new(lost) };
        Assert.Null(ReplacementPlan.Foresee(record, request, Voters, last: null));
        return new ReplacementPlan(record, request, Voters);
    }

    private static ShardRecord Record(params ReplicaRecord[] replicas) => new() { Generation = 1, Replicas = { replicas } };

    private static ReplicaRecord Voter(uint node) => new() { Node = node, Replica = node * 11, Created = true };

    private static ReplicaRecord Learner(uint node) => new(Voter(node)) { Learner = true };

    // The view of a leader that has committed 10,000 changes.
    private static LeaderView ViewOf(FollowerState state, ulong acknowledged = 0, long stored = 0, bool followsClosely = false) => new(
        new(11), 1, new Etag(1, 10_000), IsQuiescent: false, new ShardRecord(),
        [new FollowerView(new(44), new(4), state, new Etag(1, acknowledged)) { SnapshotStored = stored, FollowsClosely = followsClosely }]);
}
