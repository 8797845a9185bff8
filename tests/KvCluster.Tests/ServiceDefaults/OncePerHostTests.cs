using System.Net;
using KvCluster.ServiceDefaults.Logs;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>How often events caused by strangers are logged.</summary>
public sealed class OncePerHostTests
{
    private readonly ManualTime _time = new();

    [Fact]
    public void MaySay_AlternatingHosts_IsTrueOnceAMinuteForEach()
    {
        var once = new OncePerHost(_time);
        for (var turn = 0; turn < 10; turn++)
        {
            Assert.Equal(turn == 0, once.MaySay(IPAddress.Loopback, out _));
            Assert.Equal(turn == 0, once.MaySay(IPAddress.IPv6Loopback, out _));
        }
        _time.Advance(TimeSpan.FromMinutes(1));
        Assert.True(once.MaySay(IPAddress.Loopback, out var host));
        Assert.Equal("127.0.0.1", host);
    }

    [Fact]
    public void MaySay_VeryManyHosts_UsesBoundedMemory()
    {
        var once = new OncePerHost(_time);
        Assert.Equal(65, Enumerable.Range(0, 10_000).Count(index => once.MaySay(new IPAddress(index), out _)));
        _time.Advance(TimeSpan.FromMinutes(1));
        Assert.Equal(65, Enumerable.Range(10_000, 10_000).Count(index => once.MaySay(new IPAddress(index), out _)));
    }
}
