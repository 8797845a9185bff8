using KvCluster.Node.Shards.Disk;

namespace KvCluster.Tests.Node;

/// <summary>When a replica considers its disk slow.</summary>
public sealed class SlowDiskJudgeTests
{
    private readonly SlowDiskJudge _judge = new();
    private long _nowUs = 1_000_000;

    [Fact]
    public void Observe_OrdinarySyncsWithAFewSlowOnes_IsHealthy()
    {
        for (var turn = 0; turn < 200; turn++)
            Assert.False(SyncOf(turn % 50 == 0 ? 1_000_000 : 5_000));
        Assert.False(_judge.IsSlow);
    }

    [Fact]
    public void Observe_SlowSyncs_IsSlowUntilTheyAreShortAgain()
    {
        Assert.Equal(1, ChangesOver(30, 400_000));
        Assert.True(_judge.IsSlow);
        // Between the two bounds the judgement does not change.
        Assert.Equal(0, ChangesOver(100, 150_000));
        Assert.True(_judge.IsSlow);
        Assert.Equal(1, ChangesOver(100, 5_000));
        Assert.False(_judge.IsSlow);
    }

    [Fact]
    public void Observe_ASyncThatDoesNotEnd_IsSlowBeforeItEnds()
    {
        _judge.Observe(_nowUs, roseUs: null, waits: true);
        Assert.False(_judge.Observe(_nowUs + 1_000_000, roseUs: null, waits: true));
        Assert.True(_judge.Observe(_nowUs + 1_600_000, roseUs: null, waits: true));
        Assert.True(_judge.IsSlow);
    }

    /// <summary>The average swings around the bound.</summary>
    [Fact]
    public void Observe_EverySecondSyncSlow_IsSlow()
    {
        var changes = 0;
        for (var pair = 0; pair < 50; pair++)
            changes += ChangesOver(1, 500_000) + ChangesOver(1, 10_000);
        Assert.Equal(1, changes);
        Assert.True(_judge.IsSlow);
    }

    [Fact]
    public void Observe_WithoutWrites_KeepsTheJudgement()
    {
        ChangesOver(30, 400_000);
        for (var turn = 0; turn < 100; turn++)
            Assert.False(_judge.Observe(_nowUs += 100_000, roseUs: null, waits: false));
        Assert.True(_judge.IsSlow);
    }

    [Fact]
    public void Observe_ABurstOfSlowSyncs_IsHealthy()
    {
        Assert.Equal(0, ChangesOver(12, 400_000));
        for (var turn = 0; turn < 100; turn++)
            Assert.False(_judge.Observe(_nowUs += 100_000, roseUs: null, waits: false));
        Assert.Equal(0, ChangesOver(100, 5_000));
        Assert.Equal(0, ChangesOver(12, 400_000));
        Assert.False(_judge.IsSlow);
    }

    [Fact]
    public void Observe_TurnsThatComeLate_DoNotCountForTheDisk()
    {
        for (var turn = 0; turn < 100; turn++)
        {
            _judge.Observe(_nowUs, roseUs: null, waits: true);
            _nowUs += 900_000;
            Assert.False(_judge.Observe(_nowUs, roseUs: _nowUs - 895_000, waits: false));
        }
    }

    private int ChangesOver(int syncs, long syncUs) => Enumerable.Range(0, syncs).Count(_ => SyncOf(syncUs));

    private bool SyncOf(long syncUs)
    {
        var began = _judge.Observe(_nowUs, roseUs: null, waits: true);
        _nowUs += syncUs;
        return _judge.Observe(_nowUs, roseUs: _nowUs, waits: false) || began;
    }
}
