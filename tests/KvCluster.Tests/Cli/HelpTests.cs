using System.CommandLine.Parsing;
using System.Text.RegularExpressions;
using KvCluster.Cli;
using KvCluster.Cli.Commands;
using KvCluster.Processes;

namespace KvCluster.Tests.Cli;

/// <summary>The texts of `kv help`, and the commands of documents. What they show can be typed, and nothing is missing.</summary>
public sealed partial class HelpTests
{
    private const int Usage = 2;

    private static IEnumerable<string> Texts => HelpTopics.Names.Select(HelpTopics.Of).Prepend(HelpTopics.Overview);

    [Fact]
    public void EachExample_IsACommandLineWithoutMistake()
    {
        var examples = Texts.SelectMany(static text => text.Split('\n')).Where(static line => line.StartsWith("  kv ", StringComparison.Ordinal))
            .Where(static line => !line.StartsWith("  kv   ", StringComparison.Ordinal)).Select(static line => line.Trim()).ToList();
        Assert.True(examples.Count > 40, $"{examples.Count} examples");
        foreach (var example in examples)
            AssertParses(example);
    }

    /// <summary>What is in fences: also with a prompt, and beside other programs.</summary>
    [Fact]
    public void EachCommandOfADocument_IsACommandLineWithoutMistake()
    {
        var commands = House.House.TextFiles().Where(static path => path.EndsWith(".md", StringComparison.Ordinal))
            .SelectMany(static path => Fence().Matches(House.House.Read(path))).Where(static fence => fence.Groups[1].Value is "" or "bash" or "sh")
            .SelectMany(static fence => Command().Matches(fence.Groups[2].Value)).Select(static command => command.Groups[1].Value).ToList();
        Assert.True(commands.Count > 40, $"{commands.Count} commands");
        // N is the number of a node.
        foreach (var command in commands)
            AssertParses(command.Replace(" N ", " 1 ", StringComparison.Ordinal));
    }

    // What follows two spaces says what the example does.
    private static void AssertParses(string example)
    {
        foreach (var part in example.Split("  ")[0].Split(" | ").Where(static part => part.StartsWith("kv ", StringComparison.Ordinal)))
        {
            string[] arguments = [.. CommandLineParser.SplitCommandLine(part.Split(" < ")[0].Split(" > ")[0]).Skip(1)];
            var parsed = CommandRun.Parse(arguments);
            Assert.True(parsed.Errors.Count == 0, $"{example}: {string.Join(' ', parsed.Errors.Select(static error => error.Message))}");
            Assert.True(ParseMistakes.UnknownOption(parsed, arguments) is null, example);
        }
    }

    [Fact]
    public void EachCommandAndAlias_IsInTheOverview_AndHasATopic()
    {
        foreach (var name in CommandTable.Names.Concat(CommandTable.Aliases))
        {
            Assert.Matches($@"(?m)^  \w+ .*\b{name}\b", HelpTopics.Overview);
            if (name != "help")
                Assert.NotEmpty(HelpTopics.Of(name));
        }
    }

    [Fact]
    public void Texts_FitIntoATerminal_AndHaveNoTabs() => Assert.All(Texts.SelectMany(static text => text.Split('\n')), static line =>
    {
        Assert.True(line.Length <= 132, line);
        Assert.DoesNotContain('\t', line);
    });

    [ToolFact("bash")]
    public async Task Kv_Alone_PrintsHelp_AndHelpOfATopicItsExamples()
    {
        Assert.Equal((0, HelpTopics.Overview + "\n", ""), await KvProcess.RunInShellAsync("$KV"));
        Assert.Equal((0, HelpTopics.Of("watch") + "\n", ""), await KvProcess.RunInShellAsync("$KV help watch"));
        Assert.Equal((0, HelpTopics.Of("del") + "\n", ""), await KvProcess.RunInShellAsync("$KV help del"));
        Assert.Equal((Usage, "", "kv: There is no topic 'wach'. Did you mean watch? See kv help.\n"), await KvProcess.RunInShellAsync("$KV help wach"));
    }

    [Theory]
    [InlineData("gte", "get")]
    [InlineData("sacn", "scan")]
    [InlineData("stat", "status")]
    [InlineData("lst", "ls")]
    [InlineData("frob", null)]
    [InlineData("x", null)]
    public void Nearest_OfAMisspeltName_IsTheOneThatWasMeant(string given, string? meant) =>
        Assert.Equal(meant, Spelling.Nearest(given, CommandTable.Names.Concat(CommandTable.Aliases)));

    [GeneratedRegex(@"^ *```(\w*)\n(.*?)^ *```$", RegexOptions.Multiline | RegexOptions.Singleline)]
    private static partial Regex Fence();

    [GeneratedRegex(@"^ *(?:\$ )?(?:time )?(kv .+)$", RegexOptions.Multiline)]
    private static partial Regex Command();
}
