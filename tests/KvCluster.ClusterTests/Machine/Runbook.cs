using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>The commands of the runbook, and their execution by a test. What was not executed is known in the end.</summary>
/// <param name="shell">Executes them.</param>
internal sealed class Runbook(OperatorShell shell)
{
    private const string Heading = "## ";
    private const string Fence = "```";

    private readonly HashSet<(string Entry, int Block)> _executed = [];

    /// <summary>The blocks of each entry that has some, each as its lines.</summary>
    public static IReadOnlyDictionary<string, IReadOnlyList<IReadOnlyList<string>>> Entries { get; } = Read();

    /// <summary>The runbook.</summary>
    public static string Text => File.ReadAllText(Path.Combine(Tools.Repository(), "deploy", "telemetry", "RUNBOOK.md"));

    /// <summary>Executes a block of an entry, line by line.</summary>
    public async Task<IReadOnlyList<ShellAnswer>> RunAsync(string entry, int block = 0)
    {
        _executed.Add((entry, block));
        var answers = new List<ShellAnswer>();
        foreach (var line in Entries[entry][block])
            answers.Add(await shell.RunAsync(line));
        return answers;
    }

    /// <summary>Executes a block until every line of it succeeds: what the cluster is just doing may be in the way of a change.</summary>
    /// <returns>The answers of the last time.</returns>
    public Task<IReadOnlyList<ShellAnswer>> UntilDoneAsync(string entry, int block = 0) =>
        UntilAsync(entry, static answers => answers.All(static answer => answer.ExitCode == 0), block);

    /// <summary>
    /// Executes a block until its answers are as expected: what they tell may be some seconds old, and on a busy machine a connection may take longer than a
    /// command waits for it.
    /// </summary>
    /// <returns>The answers of the last time.</returns>
    public async Task<IReadOnlyList<ShellAnswer>> UntilAsync(string entry, Func<IReadOnlyList<ShellAnswer>, bool> expected, int block = 0)
    {
        IReadOnlyList<ShellAnswer> answers = [];
        await Eventually.TrueAsync(
            async () => expected(answers = await RunAsync(entry, block)), () => $"block {block} of {entry} answers as expected: {string.Join("; ", answers)}");
        return answers;
    }

    /// <summary>All blocks of some entries were executed.</summary>
    public void AssertAllExecuted(params string[] entries)
    {
        foreach (var entry in entries)
            Assert.Equal(Entries[entry].Select((_, block) => (entry, block)), _executed.Where(one => one.Entry == entry).Order());
    }

    private static Dictionary<string, IReadOnlyList<IReadOnlyList<string>>> Read()
    {
        var entries = new Dictionary<string, IReadOnlyList<IReadOnlyList<string>>>();
        var (entry, blocks, block) = ("", new List<IReadOnlyList<string>>(), (List<string>?)null);
        foreach (var line in Text.Split('\n'))
        {
            if (block is not null && line != Fence)
            {
                block.Add(line);
            }
            else if (block is not null)
            {
                blocks.Add(block);
                entries[entry] = blocks;
                block = null;
            }
            else if (line.StartsWith(Heading, StringComparison.Ordinal))
            {
                entry = line[Heading.Length..];
                blocks = [];
            }
            else if (line.StartsWith(Fence, StringComparison.Ordinal))
            {
                block = [];
            }
        }
        return entries;
    }
}
