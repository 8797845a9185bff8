using KvCluster.Client.Routing;
using KvCluster.Router.Api;
using KvCluster.ServiceDefaults.Memory;

namespace KvCluster.Tests.Router;

/// <summary>Which reads of an exchange a router sends, and which wait.</summary>
public sealed class ReadTurnsTests
{
    private const int FirstReads = 16;

    private readonly List<ExchangeCall> _sent = [];
    private readonly ReadTurns _turns;

    public ReadTurnsTests() => _turns = new ReadTurns(_sent.Add);

    [Fact]
    public void TryBegin_SingleShard_SendsUpToTheStreamsLimit()
    {
        Assert.Equal(FirstReads, Begin(shard: 1, 40).Count(static began => began));
        Assert.Empty(_sent);
    }

    [Fact]
    public void TryBegin_BesideAStuckShard_SendsHalfAsManyAndAtLeastOne()
    {
        Begin(shard: 1, 40);
        Assert.Equal(FirstReads / 2, Begin(shard: 2, 40).Count(static began => began));
        foreach (var shard in Enumerable.Range(3, 50))
            Assert.True(_turns.TryBegin(Read(), new((uint)shard)));
    }

    [Fact]
    public void End_AfterASmallReply_SendsOneMoreAndAfterALargeOneFewer()
    {
        var reads = Enumerable.Range(0, 40).Select(_ => Read()).ToArray();
        foreach (var read in reads)
            _turns.TryBegin(read, new(1));
        _turns.End(reads[0], responseBytes: 100);
        _turns.SendWaiting();
        Assert.Equal(reads[16..18], _sent);
        _turns.End(reads[1], ExchangeLimits.ReplyBytesMax / 4);
        _turns.SendWaiting();
        Assert.Equal(2, _sent.Count);
    }

    [Fact]
    public void TryWithdraw_WaitingRead_RemovesItOnce()
    {
        var reads = Enumerable.Range(0, FirstReads + 2).Select(_ => Read()).ToArray();
        foreach (var read in reads)
            _turns.TryBegin(read, new(1));
        Assert.False(_turns.TryWithdraw(reads[0]));
        Assert.True(_turns.TryWithdraw(reads[^2]));
        Assert.False(_turns.TryWithdraw(reads[^2]));
        Assert.Equal([reads[^1]], _turns.WithdrawAll());
        Assert.Empty(_turns.WithdrawAll());
    }

    [Fact]
    public void Regroup_ReadsReceivedBeforeTheMap_SendsThoseOfOtherShards()
    {
        var reads = Enumerable.Range(0, 40).Select(_ => Read()).ToArray();
        foreach (var read in reads)
            _turns.TryBegin(read, RouteTable.NoShard);
        _turns.Regroup(read => new(read == reads[^1] ? 2u : 1u));
        Assert.Contains(reads[^1], _sent);
    }

    private static ExchangeCall Read() => new(new ReplyBudget(new Lock(), new ByteBudget(1 << 20)));

    private bool[] Begin(uint shard, int count) => [.. Enumerable.Range(0, count).Select(_ => _turns.TryBegin(Read(), new(shard)))];
}
