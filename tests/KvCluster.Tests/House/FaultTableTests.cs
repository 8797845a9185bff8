using System.Text.RegularExpressions;

namespace KvCluster.Tests.House;

/// <summary>The table of faults has every number that tests, scenarios and documents cite, and no other.</summary>
public sealed partial class FaultTableTests
{
    private const string Table = "tests/KvCluster.ClusterTests/Faults/README.md";

    [Fact]
    public void Numbers_CitedSomewhere_AreInTheTable()
    {
        var listed = Row().Matches(House.Read(Table)).Select(static row => row.Groups[1].Value).ToList();
        Assert.Equal(listed.Distinct(), listed);
        var cited = House.TextFiles().Where(static path => path != Table && path.EndsWith(".cs", StringComparison.Ordinal) && !path.StartsWith("tests/KvCluster.Benchmarks/", StringComparison.Ordinal))
            .SelectMany(static path => Cited().Matches(House.Read(path))).SelectMany(static found => Number().Matches(found.Value).Select(static number => number.Value)).ToHashSet();
        Assert.Equal(listed.Order(StringComparer.Ordinal), cited.Order(StringComparer.Ordinal));
    }

    [GeneratedRegex(@"^\| (F[0-9]+) \|", RegexOptions.Multiline)]
    private static partial Regex Row();

    // The name of a test, or a scenario's list of faults.
    [GeneratedRegex(@"\bF[0-9]+_[A-Z]|""F[0-9]+([ -]F[0-9]+)*""|///.*\bF[0-9]+\b")]
    private static partial Regex Cited();

    [GeneratedRegex(@"\bF[1-9][0-9]*(?![0-9a-zA-Z])")]
    private static partial Regex Number();
}
