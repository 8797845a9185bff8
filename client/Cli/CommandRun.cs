using System.CommandLine;
using KvCluster.Cli.Commands;

namespace KvCluster.Cli;

/// <summary>Parses and executes a command line. Every failure is one line on standard error and one of <see cref="ExitCodes"/>.</summary>
internal static class CommandRun
{
    /// <summary>The commands that a command line may have.</summary>
    public static RootCommand Root(string[] arguments)
    {
        var root = new RootCommand("Command line client of KvCluster: read, write and load keys, examine and administer a cluster.");
        foreach (var option in Globals.All)
            root.Options.Add(option);
        foreach (var command in CommandTable.For(arguments))
            root.Subcommands.Add(command);
        return root;
    }

    /// <summary>Parses a command line. Keys may begin with @, so arguments that name files of further arguments are disabled.</summary>
    public static ParseResult Parse(string[] arguments) => Root(arguments).Parse(arguments, new ParserConfiguration { ResponseFileTokenReplacer = null });

    /// <summary>Executes a command line and returns its exit code.</summary>
    public static async Task<int> RunAsync(string[] arguments)
    {
        if (arguments.Length == 0)
            return PrintHelp(HelpTopics.Overview, ExitCodes.Done);
        var parsed = Parse(arguments);
        // Where the parser took an option for an argument, it finds mistakes in those that follow.
        if (parsed.CommandResult.Command.Subcommands.Count == 0 && ParseMistakes.UnknownOption(parsed, arguments) is { } unknown)
            return Refuse($"Unrecognized option '{unknown}'. Write -- in front of arguments that begin so, or OPTION=VALUE for the value of an option."
                + ParseMistakes.OptionMeant(parsed, unknown));
        if (parsed.Errors.Count > 0)
            return Refuse(ParseMistakes.Describe(parsed.Errors) + ParseMistakes.CommandMeant(parsed));

        // A shell has one for each of its commands.
        using var interruption = parsed.CommandResult.Command.Name == ShellCommand.Name ? null : new Interruption();
        using var help = new StringWriter();
        var exitCode = await parsed.InvokeAsync(
            new InvocationConfiguration { EnableDefaultExceptionHandler = false, ProcessTerminationTimeout = null, Output = help },
            interruption?.Token ?? CancellationToken.None);
        return help.GetStringBuilder().Length == 0 ? exitCode : PrintHelp(help.ToString(), exitCode);
    }

    /// <summary>Tells what is wrong with a command line.</summary>
    public static int Refuse(string mistake)
    {
        StandardError.Tell($"{mistake} See kv --help.");
        return ExitCodes.Usage;
    }

    private static int PrintHelp(string text, int exitCode)
    {
        try
        {
            var output = new Output(OutputForm.Text);
            output.Lines(text.TrimEnd());
            output.Flush();
            return exitCode;
        }
        catch (OutputClosedException e)
        {
            return CliCommand.Tell(e);
        }
    }
}
