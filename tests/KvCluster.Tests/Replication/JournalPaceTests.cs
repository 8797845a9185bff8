using KvCluster.Replication.State;

namespace KvCluster.Tests.Replication;

/// <summary>When a replica considers its disk slow compared with the others'. The tests set the time.</summary>
public sealed class JournalPaceTests
{
    private readonly JournalPace _pace = new();
    private long _nowUs = 1_000_000;
    private ulong _change;

    // A leader whose disk took 10 ms for a write kept its shards, because only a second counted as slow, whatever the other disks did.
    [Fact]
    public void Lead_TenMillisecondsWhereTheOthersNeedThree_IsSlowAfterThreeSecondsAndNotBefore()
    {
        Lead(seconds: 2.9, ownUs: 10_000, othersUs: 3_000);
        Assert.False(_pace.IsSlow);
        Lead(seconds: 1, ownUs: 10_000, othersUs: 3_000);
        Assert.True(_pace.IsSlow);
        Assert.InRange(_pace.OwnUs, 9_000, 11_000);
    }

    [Fact]
    public void Lead_DiskAsSlowAsTheOthersMajority_IsNotSlow()
    {
        Lead(seconds: 60, ownUs: 50_000, othersUs: 40_000);
        Assert.False(_pace.IsSlow);
    }

    [Fact]
    public void Lead_FastDiskBesideFasterOnes_IsNotSlow()
    {
        Lead(seconds: 60, ownUs: 1_500, othersUs: 200);
        Assert.False(_pace.IsSlow);
    }

    [Fact]
    public void Lead_WithoutAMajorityOfOthers_MakesNoJudgement()
    {
        for (var end = _nowUs + 10_000_000; _nowUs < end;)
        {
            _pace.Appended(Next(), _nowUs);
            _nowUs += 50_000;
            _pace.Lead(Now, long.MaxValue, Etag.None, Now, _nowUs);
            _nowUs += 1_000_000;
            _pace.Lead(Now, long.MaxValue, Etag.None, Now, _nowUs);
        }

        Assert.False(_pace.IsSlow);
        Assert.Equal(long.MinValue, _pace.JudgedUs);
        // The pace of a majority is known, because the leader's own disk was part of it.
        Assert.InRange(_pace.PaceUs(_nowUs), 40_000, 60_000);
    }

    [Fact]
    public void Lead_UnfinishedWrite_CountsWithTheTimeSoFar()
    {
        for (var end = _nowUs + 5_000_000; _nowUs < end;)
        {
            var before = Now;
            _pace.Appended(Next(), _nowUs);
            for (var step = 0; step < 11; step++)
                _pace.Lead(before, long.MaxValue, Now, Now, _nowUs += 100_000);
        }

        Assert.True(_pace.IsSlow);
    }

    // A disk that alternates between slow and normal, faster than the judgement takes, does not change it. A disk that was slow stays slow until it
    // has kept up for long.
    [Fact]
    public void Lead_DiskSlowByTurns_KeepsTheJudgement()
    {
        for (var turn = 0; turn < 100; turn++)
        {
            Lead(seconds: 2, ownUs: 20_000, othersUs: 3_000);
            Lead(seconds: 2, ownUs: 2_000, othersUs: 3_000);
            Assert.False(_pace.IsSlow);
        }

        Lead(seconds: 4, ownUs: 20_000, othersUs: 3_000);
        for (var turn = 0; turn < 50; turn++)
        {
            Assert.True(_pace.IsSlow);
            Lead(seconds: 8, ownUs: 2_000, othersUs: 3_000);
            Lead(seconds: 2, ownUs: 20_000, othersUs: 3_000);
        }

        Assert.True(_pace.IsSlow);
        Lead(seconds: 12, ownUs: 2_000, othersUs: 3_000);
        Assert.False(_pace.IsSlow);
    }

    [Fact]
    public void Follow_SlowerThanTheMajoritysPace_IsSlow()
    {
        Follow(seconds: 60, ownUs: 5_000, paceUs: 4_000);
        Assert.False(_pace.IsSlow);
        Follow(seconds: 60, ownUs: 50_000, paceUs: 0);
        Assert.False(_pace.IsSlow);
        Follow(seconds: 5, ownUs: 50_000, paceUs: 4_000);
        Assert.True(_pace.IsSlow);
    }

    [Fact]
    public void PaceUs_LongAfterTheLastRecord_IsUnknown()
    {
        Lead(seconds: 1, ownUs: 2_000, othersUs: 3_000);
        Assert.InRange(_pace.PaceUs(_nowUs), 1_500, 3_500);
        Assert.Equal(0, _pace.PaceUs(_nowUs + 10_000_000));
    }

    private Etag Now => new(1, _change);

    private Etag Next() => new(1, ++_change);

    // Appends one record after the other, each committed by the earlier of the two times.
    private void Lead(double seconds, long ownUs, long othersUs)
    {
        for (var end = _nowUs + (long)(seconds * 1e6); _nowUs < end;)
        {
            var before = Now;
            var since = _nowUs;
            _pace.Appended(Next(), since);
            var (first, second) = (Math.Min(ownUs, othersUs), Math.Max(ownUs, othersUs));
            _nowUs = since + first;
            _pace.Lead(ownUs <= othersUs ? Now : before, long.MaxValue, othersUs <= ownUs ? Now : before, Now, _nowUs);
            _nowUs = since + second;
            _pace.Lead(Now, long.MaxValue, Now, Now, _nowUs);
        }
    }

    private void Follow(double seconds, long ownUs, long paceUs)
    {
        for (var end = _nowUs + (long)(seconds * 1e6); _nowUs < end;)
        {
            _pace.Appended(Next(), _nowUs);
            _nowUs += ownUs;
            _pace.Follow(Now, long.MaxValue, paceUs, _nowUs);
        }
    }
}
