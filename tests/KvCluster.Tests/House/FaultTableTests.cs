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
        var cited = House.TextFiles().Where(static path => path != Table && !path.StartsWith("tests/KvCluster.Benchmarks/", StringComparison.Ordinal))
            .SelectMany(static path => Places(path, House.Read(path)))
            .SelectMany(static place => Number().Matches(place).Select(static number => number.Value)).ToHashSet();
        Assert.Equal(listed.Order(StringComparer.Ordinal), cited.Order(StringComparer.Ordinal));
    }

    // Documents cite numbers anywhere.
    private static IEnumerable<string> Places(string path, string text) => Path.GetExtension(path) switch
    {
        ".cs" => Cited().Matches(text).Select(static place => place.Value),
        ".md" => [text],
        _ => [],
    };

    [GeneratedRegex(@"^\| (F[0-9]+) \|", RegexOptions.Multiline)]
    private static partial Regex Row();

    // The name of a test, or a scenario's list of faults.
    [GeneratedRegex(@"\bF[0-9]+_[A-Z]|""F[0-9]+([ -]F[0-9]+)*""|///.*\bF[0-9]+\b")]
    private static partial Regex Cited();

    [GeneratedRegex(@"\bF[1-9][0-9]*(?![0-9a-zA-Z])")]
    private static partial Regex Number();
}
