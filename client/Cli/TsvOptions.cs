using System.CommandLine;
using KvCluster.Cli.Files;

namespace KvCluster.Cli;

/// <summary>The options of the commands that read TSV files: what becomes of bytes that a text has and a record does not mean.</summary>
internal static class TsvOptions
{
    private static readonly Option<bool> CrLf = new("--crlf")
    {
        Description = "Lines end with carriage return and line feed, as in files of Windows. A byte order mark at the beginning is left out, too.",
    };

    private static readonly Option<bool> Raw = new("--raw")
    {
        Description = "Every byte between line feeds belongs to a key or value, also a carriage return at the end and a byte order mark at the beginning.",
    };

    /// <summary>The options; each such command lists them.</summary>
    public static IReadOnlyList<Option> All { get; } = [CrLf, Raw];

    /// <summary>What was chosen.</summary>
    /// <exception cref="CliException">The options exclude each other.</exception>
    public static TsvText Of(ParseResult arguments) => (arguments.GetValue(CrLf), arguments.GetValue(Raw)) switch
    {
        (true, true) => throw new CliException(ExitCodes.Usage, "--crlf and --raw exclude each other."),
        (true, _) => TsvText.CrLf,
        (_, true) => TsvText.Raw,
        _ => TsvText.Plain,
    };
}
