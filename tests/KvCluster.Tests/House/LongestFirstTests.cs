namespace KvCluster.Tests.House;

/// <summary>The order of a run. If xunit does not find who orders it, or gives collections other names, it runs them in another order without a word.</summary>
public sealed class LongestFirstTests
{
    [Fact]
    public void Collections_OfThisRun_BeginWithTheLongest()
    {
        var longest = LongestClasses.All.Select(LongestFirst.NameOf).ToHashSet();
        Assert.Contains(LongestFirst.NameOf(typeof(LongestFirstTests)), LongestFirst.Ordered);
        Assert.DoesNotContain(LongestFirst.Ordered.SkipWhile(name => longest.Contains(name)), name => longest.Contains(name));
    }
}
