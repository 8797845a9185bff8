using KvCluster.ServiceDefaults.Exchanges;
using KvCluster.ServiceDefaults.Memory;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>The calls of all exchanges of a process. They were bounded per stream only, so a caller with enough streams took all places.</summary>
public sealed class ExchangePlacesTests
{
    private const int Places = 1_024;
    private readonly ExchangePlaces _places = new(new ByteBudget(64 << 20), Places);

    [Fact]
    public void TryTake_ByOneStream_LeavesPlacesForOthers()
    {
        var (greedy, other) = (new FairPlaces.Share(), new FairPlaces.Share());
        var taken = 0;
        for (var shard = 1u; shard <= 20; shard++)
            taken += Fill(greedy, shard);
        Assert.InRange(taken, 1, Places / 2);
        Assert.True(Fill(other, 50) > Places / 10);
    }

    [Fact]
    public void TryTake_ForAStuckShardByManyStreams_LeavesPlacesForItsReadsAndForOthers()
    {
        var streams = Enumerable.Range(0, 50).Select(_ => new FairPlaces.Share()).ToList();
        Assert.InRange(streams.Sum(stream => Fill(stream, shard: 1)), 1, Places / 2);
        Assert.True(_places.TryTake(streams[1], new(1), isChange: false, 100, out _));
        Assert.All(streams.Skip(1), stream => Assert.True(_places.TryTake(stream, new(2), isChange: true, 100, out _)));
    }

    [Fact]
    public void TryTake_LargeRequestsOfAStuckShard_LeaveBytesForOthers()
    {
        const int Large = 8 << 20;
        var streams = Enumerable.Range(0, 10).Select(_ => new FairPlaces.Share()).ToList();
        Assert.Equal(3, streams.Count(stream => _places.TryTake(stream, new(1), isChange: true, Large, out _)));
        Assert.True(_places.TryTake(streams[9], new(2), isChange: true, Large, out _));
    }

    [Fact]
    public void Return_ReleasesAllPlaces()
    {
        var stream = new FairPlaces.Share();
        for (var round = 0; round < 3; round++)
        {
            var shares = new List<FairPlaces.Share>();
            while (_places.TryTake(stream, new(1), isChange: true, 1_000, out var share))
                shares.Add(share);
            Assert.Equal(Places * 3 / 8, shares.Count);
            shares.ForEach(share => _places.Return(stream, share, 1_000));
            Assert.Equal(0, _places.Taken);
        }
    }

    private int Fill(FairPlaces.Share stream, uint shard)
    {
        var taken = 0;
        while (_places.TryTake(stream, new(shard), isChange: true, 100, out _))
            taken++;
        return taken;
    }
}
