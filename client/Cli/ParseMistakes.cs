using System.CommandLine.Parsing;
using System.Text.RegularExpressions;

namespace KvCluster.Cli;

/// <summary>Describes what is wrong with a command line. The launcher uses it too.</summary>
internal static partial class ParseMistakes
{
    private const string CommandMissing = "Required command was not provided.";

    /// <summary>Returns one line.</summary>
    public static string Describe(IReadOnlyList<ParseError> errors)
    {
        // A command that is not known also counts as missing.
        var messages = errors.Select(error => error.Message).Where(message => errors.Count == 1 || message != CommandMissing);
        var line = TypeName().Replace(Space().Replace(string.Join(" ", messages), " ").Trim(), "as a number in the allowed range");
        return line.EndsWith('.') ? line : line + ".";
    }

    // All typed options are numbers.
    [GeneratedRegex("as expected type '[^']*(?:'\\[[^]]*\\]')?'")]
    private static partial Regex TypeName();

    // A list of allowed values has line breaks and tabs.
    [GeneratedRegex("\\s+")]
    private static partial Regex Space();
}
