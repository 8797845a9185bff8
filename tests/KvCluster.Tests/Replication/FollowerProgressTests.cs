using KvCluster.Replication.Progress;

namespace KvCluster.Tests.Replication;

/// <summary>Which of a replica's processes a leader listens to.</summary>
public sealed class FollowerProgressTests
{
    /// <summary>
    /// A replica that restarted spoke first after an election, then a frame came that its dead process had sent. The leader took that one for the newer
    /// process and dropped every frame of the living one from then on: the replica never caught up.
    /// </summary>
    [Fact]
    public void TryHear_OfAProcessThatEndedAfterItsSuccessor_IsFalseAndChangesNothing()
    {
        var follower = new FollowerProgress(2, default, 0);
        Assert.True(follower.TryHear(20, out var restarted));
        Assert.False(restarted);
        Assert.False(follower.TryHear(19, out restarted));
        Assert.False(restarted);
        Assert.True(follower.TryHear(20, out restarted));
        Assert.False(restarted);
        Assert.True(follower.TryHear(21, out restarted));
        Assert.True(restarted);
    }
}
