using KvCluster.Replication.Progress;

namespace KvCluster.Tests.Replication;

/// <summary>From which process of a replica a leader accepts frames.</summary>
public sealed class FollowerProgressTests
{
    /// <summary>
    /// After an election a restarted replica spoke first, and then a frame of its dead process arrived. The leader took the dead process for the
    /// newer one and dropped every frame of the living one, so the replica never caught up.
    /// </summary>
    [Fact]
    public void TryHear_DeadProcessAfterItsSuccessor_IsFalseAndChangesNothing()
    {
        var follower = new FollowerProgress(new(2), default, 0);
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
