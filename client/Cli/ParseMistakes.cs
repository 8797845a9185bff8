using System.CommandLine;
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

    /// <summary>
    /// An option that the command does not have. The parser takes it for an argument or for the value of the option before it: `put k --if-absnt` would set the
    /// value "--if-absnt", and `set remove s --al` would remove the member "--al". Null: there is none. What follows a "--", or a = in an option, is meant.
    /// </summary>
    public static string? UnknownOption(ParseResult parsed, string[] arguments)
    {
        var known = new HashSet<string>(StringComparer.Ordinal);
        for (var (result, isOwn) = ((SymbolResult?)parsed.CommandResult, true);
            result is CommandResult { Command: var command }; (result, isOwn) = (result.Parent, false))
        {
            foreach (var option in command.Options.Where(option => isOwn || option.Recursive))
                known.UnionWith([option.Name, .. option.Aliases]);
        }
        return arguments.TakeWhile(static argument => argument != "--")
            .FirstOrDefault(argument => argument.StartsWith("--", StringComparison.Ordinal) && !known.Contains(argument.Split('=', ':')[0]));
    }

    // All typed options are numbers.
    [GeneratedRegex("as expected type '[^']*(?:'\\[[^]]*\\]')?'")]
    private static partial Regex TypeName();

    // A list of allowed values has line breaks and tabs.
    [GeneratedRegex("\\s+")]
    private static partial Regex Space();
}
