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
    /// An option that the command does not have, among arguments of any number, which the parser takes for one of them: `set remove s --al` would remove the member "--al", and print 0. Null: there is
    /// none. What follows a "--" is meant.
    /// </summary>
    public static string? UnknownOption(ParseResult parsed)
    {
        var arguments = parsed.CommandResult.Command.Arguments.Where(static argument => argument.Arity.MaximumNumberOfValues > 1).SelectMany(argument => parsed.GetResult(argument)?.Tokens ?? []).ToHashSet();
        return parsed.Tokens.TakeWhile(static token => token.Type != TokenType.DoubleDash).FirstOrDefault(token => token.Value.StartsWith("--", StringComparison.Ordinal) && arguments.Contains(token))?.Value;
    }

    // All typed options are numbers.
    [GeneratedRegex("as expected type '[^']*(?:'\\[[^]]*\\]')?'")]
    private static partial Regex TypeName();

    // A list of allowed values has line breaks and tabs.
    [GeneratedRegex("\\s+")]
    private static partial Regex Space();
}
