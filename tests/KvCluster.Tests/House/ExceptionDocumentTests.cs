using System.Text.RegularExpressions;

namespace KvCluster.Tests.House;

/// <summary>Each public call of the client library says what it throws. Seven of 26 did.</summary>
public sealed partial class ExceptionDocumentTests
{
    private static readonly string[] Programs = ["client/Cli/", "client/Console/", "client/examples/"];

    /// <summary>They throw nothing.</summary>
    private static readonly string[] Quiet = ["DisposeAsync", "StopAsync"];

    [Fact]
    public void Calls_OfTheClient_SayWhatTheyThrow()
    {
        var calls = House.TextFiles()
            .Where(static path => path.StartsWith("client/", StringComparison.Ordinal) && path.EndsWith(".cs", StringComparison.Ordinal)
                && !Programs.Any(folder => path.StartsWith(folder, StringComparison.Ordinal)))
            .SelectMany(static path => CallsIn(path))
            .Where(static call => !Quiet.Contains(call.Name))
            .ToList();
        Assert.Contains(calls, static call => call.Name == "TryPutAsync");
        var silent = calls.Where(static call => !call.Document.Contains("<exception ", StringComparison.Ordinal)
            && !call.Document.Contains("<inheritdoc", StringComparison.Ordinal));
        Assert.Equal("", string.Join('\n', silent.Select(static call => $"{call.Path}: {call.Name}")));
    }

    private static IEnumerable<(string Path, string Name, string Document)> CallsIn(string path)
    {
        var text = House.Read(path);
        return PublicType().IsMatch(text)
            ? Call().Matches(text).Select(call => (path, call.Groups[2].Value, call.Groups[1].Value))
            : [];
    }

    [GeneratedRegex("^public ", RegexOptions.Multiline)]
    private static partial Regex PublicType();

    // The comment and the attributes before a public method, and its name.
    [GeneratedRegex(@"((?:^    (?:///|\[)[^\n]*\n)*)^    public [\w<>?,. \[\]]*?\b(\w+Async)(?:<\w+>)?\(", RegexOptions.Multiline)]
    private static partial Regex Call();
}
