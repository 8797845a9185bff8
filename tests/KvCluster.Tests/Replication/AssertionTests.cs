using KvCluster.Replication.Leading;
using KvCluster.Replication.State;

namespace KvCluster.Tests.Replication;

/// <summary>The rules that the core asserts end the replica when they are broken, before it tells anybody.</summary>
public sealed class AssertionTests
{
    private static readonly HardState Promised =
        new() { ReplicaId = new(1), PromisedEpoch = 3, PromisedLeader = new(2), PromisedIncarnation = 20, Committed = new Etag(3, 4) };

    [Fact]
    public void HardState_LosesWhatWasPromised_Fails()
    {
        var keeper = new HardStateKeeper(new ShardId(1), Promised, 1_000_000);
        Assert.Throws<InvariantException>(() => keeper.Require(Promised with { PromisedEpoch = 2 }));
        Assert.Throws<InvariantException>(() => keeper.Require(Promised with { PromisedLeader = new(3) }));
        Assert.Throws<InvariantException>(() => keeper.Note(Promised with { Committed = new Etag(3, 3) }));
        keeper.Require(Promised with { PromisedEpoch = 4, PromisedLeader = new(3), PromisedIncarnation = 30 });
        Assert.Equal(4ul, keeper.Wanted.PromisedEpoch);
    }

    [Fact]
    public void Step_JournalEndsBeforeTheCommittedEtag_Fails()
    {
        var replica = new Transcript(journal => { journal.Append(3, 2); journal.Append(3, 4); }, Promised, epoch: 3, leader: 2);
        replica.Tick();
        replica.Journal.Truncate(new Etag(3, 2));
        Assert.Throws<InvariantException>(() => replica.Tick());
    }

    [Fact]
    public void Step_JournalHasARecordOfAnEpochThatIsNotPromised_Fails()
    {
        var replica = new Transcript(journal => { journal.Append(3, 2); journal.Append(3, 4); }, Promised, epoch: 3, leader: 2);
        replica.Tick();
        replica.Journal.Append(4, 5);
        Assert.Throws<InvariantException>(() => replica.Tick());
    }

    [Fact]
    public void Read_ConfirmedByARoundThatWasNotSent_Fails()
    {
        var rounds = new ReadRounds(4);
        rounds.Add(1);
        Assert.False(rounds.TryConfirm(0, out _));
        Assert.Throws<InvariantException>(() => rounds.TryConfirm(1, out _));
        rounds.Start(0);
        Assert.True(rounds.TryConfirm(1, out var last));
        Assert.Equal(1, last);
    }
}
