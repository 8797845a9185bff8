using System.CommandLine;

namespace KvCluster.Cli.Commands;

/// <summary>What all commands have in common: an exit code, and every failure as one line on standard error.</summary>
internal static class CliCommand
{
    /// <param name="parts">The command's arguments and options.</param>
    /// <param name="run">Executes the command and returns the exit code. <see cref="Failures"/> describes its exceptions.</param>
    public static Command Create(string name, string description, IEnumerable<Symbol> parts, Func<ParseResult, Output, CancellationToken, Task<int>> run)
    {
        var command = new Command(name, description);
        foreach (var part in parts)
        {
            if (part is Argument argument)
                command.Arguments.Add(argument);
            else
                command.Options.Add((Option)part);
        }

        command.SetAction((arguments, stop) => RunAsync(arguments, run, stop));
        return command;
    }

    private static async Task<int> RunAsync(ParseResult arguments, Func<ParseResult, Output, CancellationToken, Task<int>> run, CancellationToken stop)
    {
        var output = new Output(arguments.GetValue(Globals.OutputFormat) == "json");
        try
        {
            var exitCode = await run(arguments, output, stop);
            output.Flush();
            return exitCode;
        }
        catch (OutputClosedException e)
        {
            return Tell(e);
        }
        catch (Exception e)
        {
            return TellAfter(output, e);
        }
    }

    // What was printed before the failure is correct and comes first.
    private static int TellAfter(Output output, Exception failure)
    {
        try
        {
            output.Flush();
        }
        catch (OutputClosedException e)
        {
            Tell(e);
        }

        return Tell(failure);
    }

    private static int Tell(Exception failure)
    {
        var (exitCode, line) = Failures.Describe(failure);
        StandardError.Tell(line);
        return exitCode;
    }
}
