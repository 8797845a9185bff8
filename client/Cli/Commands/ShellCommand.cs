using System.CommandLine;
using System.Text;
using KvCluster.Cli.Shell;

namespace KvCluster.Cli.Commands;

/// <summary>
/// `kv shell`: commands line by line, from a terminal with history and completion, or from a file or a pipe. Each runs as if `kv` had been called with it;
/// Ctrl-C ends it and not the shell.
/// </summary>
internal static class ShellCommand
{
    public const string Name = "shell";

    private static readonly string[] Leave = ["exit", "quit"];

    public static Command Create() => CliCommand.Create(
        Name, "Execute commands line by line, with history and completion. Without a terminal they are read from standard input. exit or Ctrl-D ends it.", [],
        (arguments, _, _) => Console.IsInputRedirected ? ReadInputAsync(OptionsOf(arguments)) : ReadTerminalAsync(arguments));

    // The exit code is that of the last command, as with other shells.
    private static async Task<int> ReadInputAsync(List<string> options)
    {
        // What is not UTF-8 must not become other keys and values.
        var strict = new UTF8Encoding(encoderShouldEmitUTF8Identifier: false, throwOnInvalidBytes: true);
        using var input = new StreamReader(StandardInput.OpenForCommands(), strict);
        var exitCode = ExitCodes.Done;
        try
        {
            while (await input.ReadLineAsync() is { } line && !Leave.Contains(line.Trim(), StringComparer.Ordinal))
                exitCode = await ExecuteAsync(line, options) ?? exitCode;
            return exitCode;
        }
        catch (DecoderFallbackException)
        {
            throw new CliException(ExitCodes.Usage, "standard input is not UTF-8. Keys that are not are given by --key-hex.");
        }
    }

    private static async Task<int> ReadTerminalAsync(ParseResult arguments)
    {
        var options = OptionsOf(arguments);
        var history = new ShellHistory(ShellHistory.Location);
        await using var keys = new KeyNames(() => Globals.ClientOf(arguments));
        var editor = new LineEditor(before => CompleteAsync(before, keys));
        var exitCode = ExitCodes.Done;
        while (await editor.ReadAsync(history.Lines) is { } line && !Leave.Contains(line.Trim(), StringComparer.Ordinal))
        {
            history.Add(line);
            exitCode = await ExecuteAsync(line, options) ?? exitCode;
        }
        ApplicationKeys.Leave();
        return exitCode;
    }

    // Null: the line has nothing to execute.
    private static async Task<int?> ExecuteAsync(string line, List<string> options)
    {
        try
        {
            return WordsOf(line) switch
            {
                [] => null,
                [Name, ..] => throw new CliException(ExitCodes.Usage, "This is a shell of kv already."),
                [var command, .. var rest] => await CommandRun.RunAsync([command, .. Without(options, rest), .. rest]),
            };
        }
        catch (CliException mistake)
        {
            return CliCommand.Tell(mistake);
        }
    }

    // Lines may be copied from elsewhere.
    private static List<string> WordsOf(string line)
    {
        if (line.TrimStart().StartsWith('#'))
            return [];
        var words = ShellWords.Split(line);
        return words is ["kv", ..] ? words[1..] : words;
    }

    /// <summary>The options of the shell, which are those of each command, with their values.</summary>
    private static List<string> OptionsOf(ParseResult arguments) => [.. Globals.All.Where(option => Globals.IsGiven(arguments, option)).SelectMany(
        option => arguments.GetResult(option)!.Tokens.Select(static token => token.Value).DefaultIfEmpty()
            .Select(value => value is null ? option.Name : $"{option.Name}={value}"))];

    // What a command says itself takes the place of what the shell was told. Another cluster is another one in all its parts.
    private static IEnumerable<string> Without(List<string> options, List<string> words)
    {
        var own = words.TakeWhile(static word => word != "--").Select(static word => word.Split('=')[0]).ToHashSet(StringComparer.Ordinal);
        var isElsewhere = own.Contains(Globals.Endpoint.Name) || own.Contains(Globals.Context.Name);
        return options.Where(option => Globals.All.First(one => one.Name == option.Split('=')[0]) is var known
            && !own.Contains(known.Name) && !known.Aliases.Any(own.Contains)
            && !(isElsewhere && known != Globals.OutputFormat && known != Globals.TimeLimit));
    }

    private static async Task<IReadOnlyList<string>> CompleteAsync(string before, KeyNames keys)
    {
        var words = before.EndsWith(' ') || before.Length == 0
            ? [.. before.Split(' ', StringSplitOptions.RemoveEmptyEntries), ""]
            : before.Split(' ', StringSplitOptions.RemoveEmptyEntries);
        var known = Completions.Of(words);
        return known.Count > 0 || !Completions.IsAtKey(words) ? known : await keys.FindAsync(words[^1]);
    }
}
