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
        var known = OptionsOf(parsed);
        return arguments.TakeWhile(static argument => argument != "--")
            .FirstOrDefault(argument => argument.StartsWith("--", StringComparison.Ordinal) && !known.Contains(NameIn(argument)));
    }

    /// <summary>The option that was meant by an unknown one, as a question with a space in front; empty if none is near.</summary>
    public static string OptionMeant(ParseResult parsed, string unknown) =>
        Spelling.Question(NameIn(unknown), OptionsOf(parsed).Where(static name => name.StartsWith("--", StringComparison.Ordinal)));

    /// <summary>The command that was meant where none was found, as a question with a space in front; empty if none is near.</summary>
    public static string CommandMeant(ParseResult parsed) =>
        parsed.UnmatchedTokens.Count > 0 && parsed.CommandResult.Command.Subcommands is { Count: > 0 } commands
            ? Spelling.Question(parsed.UnmatchedTokens[0], commands.SelectMany(static command => command.Aliases.Prepend(command.Name)))
            : "";

    private static string NameIn(string argument) => argument.Split('=', ':')[0];

    private static HashSet<string> OptionsOf(ParseResult parsed)
    {
        var known = new HashSet<string>(StringComparer.Ordinal);
        for (var (result, isOwn) = ((SymbolResult?)parsed.CommandResult, true);
            result is CommandResult { Command: var command }; (result, isOwn) = (result.Parent, false))
        {
            foreach (var option in command.Options.Where(option => isOwn || option.Recursive))
                known.UnionWith([option.Name, .. option.Aliases]);
        }
        return known;
    }

    // All typed options are numbers.
    [GeneratedRegex("as expected type '[^']*(?:'\\[[^]]*\\]')?'")]
    private static partial Regex TypeName();

    // A list of allowed values has line breaks and tabs.
    [GeneratedRegex("\\s+")]
    private static partial Regex Space();
}
