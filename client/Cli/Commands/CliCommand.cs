using System.CommandLine;

namespace KvCluster.Cli.Commands;

/// <summary>What all commands have in common: an exit code, and every failure as one line on standard error.</summary>
internal static class CliCommand
{
    /// <summary>A command that changes nothing, and says so when it is interrupted.</summary>
    /// <inheritdoc cref="Create" path="/param"/>
    public static Command CreateReader(
        string name, string description, IEnumerable<Symbol> parts, Func<ParseResult, Output, CancellationToken, Task<int>> run) =>
            Create(name, description, parts, (arguments, output, stop) =>
            {
                Interruption.NothingChanges();
                return run(arguments, output, stop);
            });

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
        var output = new Output(Enum.Parse<OutputForm>(arguments.GetRequiredValue(Globals.OutputFormat), ignoreCase: true));
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

    // Reports the failure of a command after the output that it has printed before, which is correct.
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

    /// <summary>Prints why a command failed, and returns its exit code.</summary>
    public static int Tell(Exception failure)
    {
        // The program that reads the output has closed it, as `head` does. That is no failure.
        if (failure is OutputClosedException { ReaderIsGone: true })
            return ExitCodes.ReaderGone;
        var (exitCode, line) = Failures.Describe(failure);
        StandardError.Tell(line);
        return exitCode;
    }
}
