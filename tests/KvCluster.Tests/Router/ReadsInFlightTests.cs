using KvCluster.Client.Routing;
using KvCluster.Router.Api;
using KvCluster.ServiceDefaults.Exchanges;

namespace KvCluster.Tests.Router;

/// <summary>How many reads of an exchange a router sends at once, and which of them wait.</summary>
public sealed class ReadsInFlightTests
{
    private const int FirstReads = 16;

    private readonly List<ExchangeCall> _sent = [];
    private readonly ReadsInFlight _reads;

    public ReadsInFlightTests() => _reads = new ReadsInFlight(_sent.Add);

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
            Assert.True(_reads.TryBegin(Read(), new((uint)shard)));
    }

    [Fact]
    public void End_AfterASmallReply_SendsOneMoreAndAfterALargeOneFewer()
    {
        var reads = Enumerable.Range(0, 40).Select(_ => Read()).ToArray();
        foreach (var read in reads)
            _reads.TryBegin(read, new(1));
        _reads.End(reads[0], responseBytes: 100);
        _reads.SendWaiting();
        Assert.Equal(reads[16..18], _sent);
        _reads.End(reads[1], ExchangeLimits.ReplyBytesMax / 4);
        _reads.SendWaiting();
        Assert.Equal(2, _sent.Count);
    }

    [Fact]
    public void TryWithdraw_WaitingRead_RemovesItOnce()
    {
        var reads = Enumerable.Range(0, FirstReads + 2).Select(_ => Read()).ToArray();
        foreach (var read in reads)
            _reads.TryBegin(read, new(1));
        Assert.False(_reads.TryWithdraw(reads[0]));
        Assert.True(_reads.TryWithdraw(reads[^2]));
        Assert.False(_reads.TryWithdraw(reads[^2]));
        Assert.Equal([reads[^1]], _reads.WithdrawAll());
        Assert.Empty(_reads.WithdrawAll());
    }

    [Fact]
    public void Regroup_ReadsReceivedBeforeTheMap_SendsThoseOfOtherShards()
    {
        var reads = Enumerable.Range(0, 40).Select(_ => Read()).ToArray();
        foreach (var read in reads)
            _reads.TryBegin(read, RouteTable.NoShard);
        _reads.Regroup(read => new(read == reads[^1] ? 2u : 1u));
        Assert.Contains(reads[^1], _sent);
    }

    private static ExchangeCall Read() => new(new ReplyBudget(new Lock(), static () => 0));

    private bool[] Begin(uint shard, int count) => [.. Enumerable.Range(0, count).Select(_ => _reads.TryBegin(Read(), new(shard)))];
}
