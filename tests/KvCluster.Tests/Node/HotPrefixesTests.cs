using System.Globalization;
using System.Text;
using KvCluster.Node.Telemetry;

namespace KvCluster.Tests.Node;

/// <summary>What is reported of the prefixes that callers use most.</summary>
public sealed class HotPrefixesTests
{
    private readonly ManualTime _time = new();

    [Fact]
    public void Read_AfterManyDistinctPrefixes_ReportsTheHotOneWithoutOvercounting()
    {
        var hot = new HotPrefixes(_time);
        for (var i = 0; i < 20_000; i++)
            hot.Count(Key(i % 4 == 0 ? $"hot/{i}" : $"cold-{i}/{i}"));
        var (prefixes, samples) = hot.Read();
        Assert.Equal(20_000UL, samples);
        Assert.Equal("hot/", prefixes[0].Prefix.ToStringUtf8());
        Assert.InRange(prefixes[0].Samples, 4_500UL, 5_000UL);
        Assert.All(
            prefixes.Skip(1), prefix => Assert.True(prefix.Samples <= 1, $"{prefix.Prefix.ToStringUtf8()} was seen once and reported {prefix.Samples} times"));
        Assert.True(prefixes.Count <= HotPrefixes.ShownMax);
    }

    [Theory]
    [InlineData("user:123:name", "user:123:", "user:")]
    [InlineData("packages/x", "packages/")]
    [InlineData("/usr/share/doc", "/usr/share/", "/usr/")]
    [InlineData("plainkey-without", "plainkey")]
    [InlineData("k", "k")]
    public void Count_OfAKey_CountsItsShortestAndLongestPrefix(string key, params string[] prefixes)
    {
        var hot = new HotPrefixes(_time);
        hot.Count(Key(key));
        Assert.Equal(prefixes.Order(StringComparer.Ordinal), hot.Read().Prefixes.Select(prefix => prefix.Prefix.ToStringUtf8()).Order(StringComparer.Ordinal));
    }

    [Fact]
    public void Read_AfterAMinuteWithoutCalls_ReportsNothing()
    {
        var hot = new HotPrefixes(_time);
        for (var i = 0; i < 50; i++)
            hot.Count(Key("a/" + i.ToString(CultureInfo.InvariantCulture)));
        _time.Advance(TimeSpan.FromSeconds(10));
        Assert.Equal(25UL, hot.Read().Prefixes.Single().Samples);
        _time.Advance(TimeSpan.FromMinutes(1));
        Assert.Empty(hot.Read().Prefixes);
    }

    [Fact]
    public void Saw_ManyCalls_SamplesAboutOneInSixtyFour()
    {
        var hot = new HotPrefixes(_time);
        for (var i = 0; i < 64_000; i++)
            hot.Saw("a/b"u8);
        Assert.InRange(hot.Read().Samples, 700UL, 1_300UL);
    }

    private static byte[] Key(string text) => Encoding.UTF8.GetBytes(text);
}
