using System.CommandLine.Parsing;
using System.Text.RegularExpressions;

namespace KvCluster.Cli;

/// <summary>What is wrong with a command line, in words for the person who typed it. The launcher uses it too.</summary>
internal static partial class ParseMistakes
{
    private const string CommandMissing = "Required command was not provided.";

    /// <summary>One line.</summary>
    public static string Describe(IReadOnlyList<ParseError> errors)
    {
        // That a command lacks follows from a wrong one.
        var messages = errors.Select(error => error.Message).Where(message => errors.Count == 1 || message != CommandMissing);
        return TypeName().Replace(string.Join(" ", messages).ReplaceLineEndings(" "), "as a number in its range");
    }

    // All options that are not texts or switches are numbers.
    [GeneratedRegex("as expected type '[^']*(?:'\\[[^]]*\\]')?'")]
    private static partial Regex TypeName();
}
