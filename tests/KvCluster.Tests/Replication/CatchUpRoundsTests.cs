using KvCluster.Replication.Progress;

namespace KvCluster.Tests.Replication;

public sealed class CatchUpRoundsTests
{
    /// <summary>A leader appends without pause. The follower has what was appended 30 ms ago, then 20, then 5.</summary>
    [Fact]
    public void LagUs_OfAFollowerThatCatchesUp_FallsToTheTimeThatItIsBehind()
    {
        var rounds = new CatchUpRounds();
        rounds.Advance(At(0), At(100_000), 0);
        Assert.Equal(long.MaxValue, rounds.LagUs(1_000));
        var lags = new List<long>();
        var acknowledgedUs = -30_000L;
        for (var nowUs = 1_000L; nowUs <= 200_000; nowUs += 1_000)
        {
            // It catches up by an eighth of the time that passes, until it is 5 ms behind.
            acknowledgedUs = Math.Min(nowUs - 5_000, acknowledgedUs + 1_125);
            rounds.Advance(At(100_000 + acknowledgedUs), At(100_000 + nowUs), nowUs);
            lags.Add(rounds.LagUs(nowUs));
        }
        Assert.True(lags[40] is > 20_000 and < 40_000, $"{lags[40]} us behind at first");
        Assert.InRange(lags[^1], 5_000, 6_000);
    }

    [Fact]
    public void LagUs_OfAFollowerThatStops_GrowsAndEndsWhenItHasEverything()
    {
        var rounds = new CatchUpRounds();
        rounds.Advance(At(10), At(10), 0);
        Assert.Equal(0, rounds.LagUs(1_000_000));
        rounds.Advance(At(10), At(20), 1_000_000);
        Assert.Equal(500_000, rounds.LagUs(1_500_000));
        rounds.Advance(At(20), At(20), 2_000_000);
        Assert.Equal(0, rounds.LagUs(3_000_000));
    }

    private static Etag At(long change) => new(1, (ulong)change);
}
