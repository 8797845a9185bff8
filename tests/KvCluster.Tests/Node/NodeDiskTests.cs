using KvCluster.Node.Shards.Disk;

namespace KvCluster.Tests.Node;

/// <summary>How the replicas of a node judge their common disk.</summary>
public sealed class NodeDiskTests
{
    private readonly ManualTime _time = new();
    private readonly List<int> _told = [];

    [Fact]
    public void Judge_OneBusyShardOnASlowDisk_TellsAllReplicasOneByOneAndLeadersFirst()
    {
        var disk = new NodeDisk(_time);
        var shares = Enumerable.Range(0, 5).Select(shard => disk.Join(() => shard >= 3, isSlow => _told.Add(isSlow ? shard : -shard))).ToArray();
        shares[1].Judge(isSlow: true);
        Assert.Equal([1], _told);
        _time.Advance(TimeSpan.FromMilliseconds(20));
        Assert.Equal([1, 3], _told);
        for (var turn = 0; turn < 10; turn++)
            _time.Advance(TimeSpan.FromMilliseconds(20));
        Assert.Equal([1, 3, 4, 0, 2], _told);
        // A replica that joins now is told at once.
        disk.Join(() => false, isSlow => _told.Add(isSlow ? 9 : -9));
        Assert.Equal(9, _told[^1]);
    }

    [Fact]
    public void Judge_SlowByFewOfManyBusyShards_IsNotSlow()
    {
        var disk = new NodeDisk(_time);
        var shares = Enumerable.Range(0, 5).Select(shard => disk.Join(() => true, _ => _told.Add(shard))).ToArray();
        foreach (var share in shares[1..])
            share.Judge(isSlow: false);
        shares[0].Judge(isSlow: true);
        _time.Advance(TimeSpan.FromSeconds(1));
        Assert.Empty(_told);
    }

    [Fact]
    public void Judge_DiskRecovers_IsHealthyWhenNoRecentJudgementSaysSlow()
    {
        var disk = new NodeDisk(_time);
        var (one, other) = (disk.Join(() => true, _ => { }), disk.Join(() => true, isSlow => _told.Add(isSlow ? 1 : 0)));
        one.Judge(isSlow: true);
        other.Judge(isSlow: true);
        Assert.Equal([1], _told);
        other.Judge(isSlow: false);
        Settle();
        Assert.Equal([1], _told);
        // The first replica's judgement is too old to count.
        _time.Advance(TimeSpan.FromSeconds(31));
        other.Judge(isSlow: false);
        Settle();
        Assert.Equal([1, 0], _told);
    }

    [Fact]
    public void Dispose_OfTheOnlyReplicaThatJudgedSlow_LetsTheOthersDecide()
    {
        var disk = new NodeDisk(_time);
        var (one, other) = (disk.Join(() => true, _ => { }), disk.Join(() => true, isSlow => _told.Add(isSlow ? 1 : 0)));
        one.Judge(isSlow: true);
        Settle();
        one.Dispose();
        other.Judge(isSlow: false);
        Settle();
        Assert.Equal([1, 0], _told);
    }

    private void Settle()
    {
        for (var turn = 0; turn < 5; turn++)
            _time.Advance(TimeSpan.FromMilliseconds(20));
    }
}
