using System.Text.RegularExpressions;

namespace KvCluster.Tests.House;

/// <summary>
/// The messages of errors are for people, most of whom use a library. So they name no field and no call of the contract, such as ttl_ms or OpenSession, which
/// these people never see.
/// </summary>
public sealed partial class MessageTests
{
    private static readonly string[] Sources = ["node/Server/Api/", "router/", "proto/ServiceDefaults/", "client/"];
    private static readonly string[] NoSources = ["client/Cli/", "client/Console/", "client/Doctor/", "client/Extensions/", "client/examples/"];
    private static readonly HashSet<string> Contract = [.. House.TextFiles()
        .Where(static path => path.StartsWith("proto/Contract/kvcluster/", StringComparison.Ordinal) && path.EndsWith(".proto", StringComparison.Ordinal))
        .SelectMany(static path => FieldOrCall().Matches(House.Read(path)))
        .Select(static name => name.Groups[1].Length > 0 ? name.Groups[1].Value : name.Groups[2].Value)];

    [Fact]
    public void Messages_NameNothingOfTheContract()
    {
        var found = House.TextFiles()
            .Where(static path => path.EndsWith(".cs", StringComparison.Ordinal) && IsIn(Sources, path) && !IsIn(NoSources, path))
            .SelectMany(static path => House.Read(path).Split('\n')
                .Where(static line => !line.TrimStart().StartsWith("//", StringComparison.Ordinal))
                .SelectMany(line => NamesIn(line).Select(name => $"{path}: {name} in {line.Trim()}")))
            .ToList();
        Assert.True(found.Count == 0, string.Join('\n', found));
    }

    [Theory]
    [InlineData("BadRequest(\"A ttl_ms must be from 1 to 100.\")", "ttl_ms")]
    [InlineData("\"A Write with operations that read needs with_results.\"", "with_results Write")]
    [InlineData("\"Each list of a Transact has at most 512 operations.\"", "Transact")]
    [InlineData("\"A session is named by what OpenSession returned.\"", "OpenSession")]
    [InlineData("\"Deletes still work. Write less.\"", "")]
    [InlineData("Path = \"/kvcluster.v1.Kv/OpenSession\"", "")]
    public void Names_AreFoundInSentencesOnly(string line, string names) => Assert.Equal(names, string.Join(' ', NamesIn(line)));

    // Calls with a name of one word are told from a verb by what stands before them.
    private static IEnumerable<string> NamesIn(string line) => Literal().Matches(line)
        .Where(static literal => literal.Value.Trim('"', ' ').Contains(' ', StringComparison.Ordinal))
        .SelectMany(static literal => LongName().Matches(literal.Value).Concat(ShortName().Matches(literal.Value)))
        .Select(static name => name.Value)
        .Where(Contract.Contains);

    private static bool IsIn(string[] folders, string path) => folders.Any(folder => path.StartsWith(folder, StringComparison.Ordinal));

    [GeneratedRegex(@"\b([a-z]+(?:_[a-z]+)+) = \d|\brpc (\w+)\(")]
    private static partial Regex FieldOrCall();

    [GeneratedRegex(@"""(?:[^""\\]|\\.)*""")]
    private static partial Regex Literal();

    [GeneratedRegex(@"\b[a-z]+(?:_[a-z]+)+\b|\b(?:[A-Z][a-z]+){2,}\b")]
    private static partial Regex LongName();

    [GeneratedRegex(@"(?<=[a-z,;:] |\bA )[A-Z][a-z]+\b")]
    private static partial Regex ShortName();
}
