using KvCluster.ServiceDefaults.Logs;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>How often the failures of something that is retried are logged.</summary>
public sealed class OncePerReasonTests
{
    [Fact]
    public void MaySay_SameReason_IsTrueOnceUntilAnotherOrASuccess()
    {
        var once = new OncePerReason();
        Assert.Equal([true, false, true, true], new[] { "a", "a", "b", "a" }.Select(once.MaySay));
        once.Forget();
        Assert.Equal([true, false], new[] { "a", "a" }.Select(once.MaySay));
    }

    [Fact]
    public void MaySay_TwoKeysWithDifferentReasons_IsTrueOnceForEach()
    {
        var once = new OncePerReason<int>();
        for (var turn = 0; turn < 3; turn++)
        {
            Assert.Equal(turn == 0, once.MaySay(1, "a"));
            Assert.Equal(turn == 0, once.MaySay(2, "b"));
        }
        once.Forget(1);
        Assert.True(once.MaySay(1, "a"));
        Assert.False(once.MaySay(2, "b"));
    }
}
