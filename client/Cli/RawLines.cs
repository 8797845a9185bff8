using System.CommandLine;

namespace KvCluster.Cli;

/// <summary>The option `--raw` of the commands that print keys, values or members in lines.</summary>
internal static class RawLines
{
    /// <summary>The option; each such command lists it.</summary>
    public static readonly Option<bool> Raw =
        new("--raw") { Description = "Print keys and values exactly as they are stored. Without it, what would divide a line or a column is quoted." };

    /// <summary>Whether it was given.</summary>
    /// <exception cref="CliException">It was given with JSON, which has a form of its own for bytes.</exception>
    public static bool Of(ParseResult arguments, Output output) => arguments.GetValue(Raw) && output.IsJson
        ? throw new CliException(ExitCodes.Usage, "--raw prints bytes as they are stored, so it cannot be used with --output json.")
        : arguments.GetValue(Raw);
}
