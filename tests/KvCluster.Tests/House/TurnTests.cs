using System.Globalization;
using System.Text.RegularExpressions;

namespace KvCluster.Tests.House;

/// <summary>Tests that take turns. One that no turn of .ci/run reaches would never run again.</summary>
public sealed partial class TurnTests
{
    private static IEnumerable<string> TestSources => House.TextFiles()
        .Where(static path => path.StartsWith("tests/", StringComparison.Ordinal) && path.EndsWith(".cs", StringComparison.Ordinal)).Select(House.Read);

    [Fact]
    public void Turns_OfTests_AreThoseOfCi_AndAreLeftOutWithoutAFilter()
    {
        var turns = Enumerable.Range(1, Number(TurnsOfCi().Match(House.Read(".ci/run")))).ToList();
        Assert.Equal(turns, TestSources.SelectMany(static text => Mark().Matches(text).Select(Number)).Distinct().Order());
        Assert.Equal(
            string.Join('&', turns.Select(static turn => string.Create(CultureInfo.InvariantCulture, $"Turn!={turn}"))),
            House.ReadXml("tests/Directory.Build.props").Descendants("VSTestTestCaseFilter").Single().Value);
    }

    /// <summary>With a turn of its own and another one of its class a test runs in both.</summary>
    [Fact]
    public void Class_WithATurn_HasNoTestWithAnother() =>
        Assert.DoesNotContain(TestSources, static text => MarkOfAClass().IsMatch(text) && MarkOfATest().IsMatch(text));

    private static int Number(Match found) => int.Parse(found.Groups[1].Value, CultureInfo.InvariantCulture);

    [GeneratedRegex("^turns=([0-9]+)$", RegexOptions.Multiline)]
    private static partial Regex TurnsOfCi();

    [GeneratedRegex(@"\[Trait\(""Turn"", ""([0-9]+)""\)\]")]
    private static partial Regex Mark();

    [GeneratedRegex(@"^\[Trait\(""Turn""", RegexOptions.Multiline)]
    private static partial Regex MarkOfAClass();

    [GeneratedRegex(@"^ +\[Trait\(""Turn""", RegexOptions.Multiline)]
    private static partial Regex MarkOfATest();
}
