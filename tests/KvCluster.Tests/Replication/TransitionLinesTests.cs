using KvCluster.Replication.Progress;

namespace KvCluster.Tests.Replication;

/// <summary>How often a leader logs that a follower's state changes.</summary>
public sealed class TransitionLinesTests
{
    private const long SecondUs = 1_000_000;

    /// <summary>While the disk of one follower was full, its leaders logged some 500 lines a minute, two for each time it stalled and was probed.</summary>
    [Fact]
    public void MaySay_FollowerThatStallsAgainAndAgain_IsTrueOnceInAnInterval()
    {
        var lines = new TransitionLines();
        var said = new List<string>();
        for (var second = 0L; second <= 120; second++)
        {
            Say(FollowerState.Replicate, FollowerSignal.Stalled);
            Say(FollowerState.Probe, FollowerSignal.Common);

            void Say(FollowerState from, FollowerSignal signal)
            {
                if (lines.MaySay(from, signal, second * SecondUs, out var unsaid))
                    said.Add($"{second} s {signal} {unsaid}");
            }
        }
        Assert.Equal(["0 s Stalled 0", "0 s Common 0", "60 s Stalled 59", "60 s Common 59", "120 s Stalled 59", "120 s Common 59"], said);
    }

    /// <summary>A change of another kind is news, whatever came before it.</summary>
    [Fact]
    public void MaySay_OtherChangeInTheInterval_IsTrue()
    {
        var lines = new TransitionLines();
        Assert.True(lines.MaySay(FollowerState.Replicate, FollowerSignal.Stalled, 0, out _));
        Assert.False(lines.MaySay(FollowerState.Replicate, FollowerSignal.Stalled, SecondUs, out _));
        Assert.True(lines.MaySay(FollowerState.Replicate, FollowerSignal.Restarted, SecondUs, out var unsaid));
        Assert.Equal(0, unsaid);
        Assert.True(lines.MaySay(FollowerState.Probe, FollowerSignal.OutOfReach, SecondUs, out _));
    }
}
