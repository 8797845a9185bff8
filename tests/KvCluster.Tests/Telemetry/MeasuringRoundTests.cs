using KvCluster.Node.Shards.Loop;
using KvCluster.Node.Telemetry;

namespace KvCluster.Tests.Telemetry;

/// <summary>
/// How the states of a node's replicas are collected for its metrics. Each answer woke a thread of the pool, a hundred times a second on a node with 100 shards
/// that nobody used.
/// </summary>
public sealed class MeasuringRoundTests
{
    [Fact]
    public async Task All_BeforeTheLastReplica_IsNotComplete()
    {
        var round = new MeasuringRound(2);
        round.Take(1, MeasuredOf(7));
        Assert.False(round.All.IsCompleted);
        round.Take(0, MeasuredOf(5));
        Assert.True(round.All.IsCompletedSuccessfully);
        Assert.Equal([5u, 7u], (await round.All).Select(static measured => measured.Shard.Value));
    }

    [Fact]
    public async Task All_OfNoReplicas_IsComplete() => Assert.Empty(await new MeasuringRound(0).All);

    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public void Run_OfAVisit_TellsWhetherTheActionRanOnThisThread(bool works)
    {
        var (ran, told, thread) = (false, new List<bool>(), 0);
        new ReplicaMailbox.Visit(() => ran = true, _ => thread = Environment.CurrentManagedThreadId).Run(works);
        new ReplicaMailbox.Visit(static () => { }, told.Add).Run(works);
        Assert.Equal((works, Environment.CurrentManagedThreadId), (ran, thread));
        Assert.Equal([works], told);
    }

    [Fact]
    public void Run_OfAVisitThatFails_TellsThatItDidNotRun()
    {
        var told = new List<bool>();
        Assert.Throws<InvalidOperationException>(() => new ReplicaMailbox.Visit(static () => throw new InvalidOperationException(), told.Add).Run(works: true));
        Assert.Equal([false], told);
    }

    private static MeasuredReplica MeasuredOf(uint shard) => new() { Shard = new(shard), Role = null };
}
