using KvCluster.ServiceDefaults.Logs;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>How often the failures of something that is tried several times a second are logged.</summary>
public sealed class OncePerMinuteTests
{
    private readonly ManualTime _time = new();

    /// <summary>A node that was given http:// for an etcd with TLS got two errors in turn, and logged three lines a second.</summary>
    [Fact]
    public void MaySay_OfReasonsThatAlternate_IsTrueOnceAMinuteForEach()
    {
        var once = new OncePerMinute(_time);
        Assert.Equal([true, true, false, false], new[] { "a", "b", "a", "b" }.Select(once.MaySay));
        _time.Advance(TimeSpan.FromSeconds(59));
        Assert.Equal([false, false], new[] { "a", "b" }.Select(once.MaySay));
        _time.Advance(TimeSpan.FromSeconds(2));
        Assert.Equal([true, true, false], new[] { "a", "b", "a" }.Select(once.MaySay));
        once.Forget();
        Assert.True(once.MaySay("a"));
    }

    [Fact]
    public void MaySay_OfReasonsThatAllDiffer_IsTrueForSome()
    {
        var once = new OncePerMinute(_time);
        Assert.Equal(OncePerMinute.ReasonsMax, Enumerable.Range(0, 100).Count(number => once.MaySay($"port {number}")));
    }
}
