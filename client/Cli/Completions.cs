using System.CommandLine;
using System.CommandLine.Completions;

namespace KvCluster.Cli;

/// <summary>What may stand for the last word of a command line. For the scripts of `kv completion` and for `kv shell`. No server is asked.</summary>
internal static class Completions
{
    /// <summary>All words that begin as the last one does and may stand there, in order.</summary>
    /// <param name="words">The command line behind `kv`; the last word may be empty. Some shells divide --option=value into three of them.</param>
    public static IReadOnlyList<string> Of(string[] words)
    {
        var place = PlaceOf([.. words.SkipLast(1).Where(static word => word != "=")]);
        var last = words is [.., "="] or [] ? "" : words[^1];
        return [.. place.Candidates(last).Where(word => word.StartsWith(last, StringComparison.Ordinal)).Distinct().Order(StringComparer.Ordinal)];
    }

    /// <summary>Whether a key, or the beginning of one, stands in the place of the last word.</summary>
    public static bool IsAtKey(string[] words) => PlaceOf([.. words.SkipLast(1)]).IsAtKey(words is [.., var last] ? last : "");

    private static Place PlaceOf(string[] words)
    {
        var place = new Place(CommandRun.Root(words));
        foreach (var word in words)
            place.Pass(word);
        return place;
    }

    /// <summary>Where in a command line one is.</summary>
    private sealed class Place(Command root)
    {
        /// <summary>What arguments and options for keys are called.</summary>
        private static readonly string?[] KeyNames = ["KEY", "PREFIX"];

        private readonly List<Command> _commands = [root];
        private Option? _open;
        private int _arguments;
        private bool _isBehindOptions;

        private Command Command => _commands[^1];

        private IEnumerable<Option> Options => Command.Options.Concat(_commands.SkipLast(1).SelectMany(static command => command.Options)
            .Where(static option => option.Recursive)).Where(static option => !option.Hidden);

        public void Pass(string word)
        {
            if (_open is not null)
                _open = null;
            else if (!_isBehindOptions && word == "--")
                _isBehindOptions = true;
            else if (!_isBehindOptions && word.Length > 1 && word.StartsWith('-'))
                _open = Options.FirstOrDefault(option => (option.Name == word || option.Aliases.Contains(word)) && TakesValue(option));
            else if (!_isBehindOptions && _arguments == 0 && Subcommand(word) is { } next)
                _commands.Add(next);
            else
                _arguments++;
        }

        public IEnumerable<string> Candidates(string last)
        {
            if (_open is not null)
                return ValuesOf(_open);
            if (!_isBehindOptions && last.StartsWith('-'))
                return Options.SelectMany(option => last.StartsWith(option.Name + "=", StringComparison.Ordinal)
                    ? ValuesOf(option).Select(value => $"{option.Name}={value}")
                    : [option.Name]);
            var commands = _arguments == 0 ? Command.Subcommands.Where(static command => !command.Hidden) : [];
            return commands.SelectMany(static command => command.Aliases.Prepend(command.Name))
                .Concat(Arguments.SelectMany(static argument => ValuesOf(argument)));
        }

        public bool IsAtKey(string last) => _open is not null
            ? KeyNames.Contains(_open.HelpName)
            : (_isBehindOptions || !last.StartsWith('-')) && Arguments.Any(static argument => KeyNames.Contains(argument.Name));

        // The next argument. The last one of a command may be there more than once.
        private IEnumerable<Argument> Arguments => Command.Arguments.Skip(Math.Min(_arguments, Math.Max(0, Command.Arguments.Count - 1))).Take(1);

        private Command? Subcommand(string word) => Command.Subcommands.FirstOrDefault(command => command.Name == word || command.Aliases.Contains(word));

        private static bool TakesValue(Option option) => option.Arity.MaximumNumberOfValues > 0 && option.ValueType != typeof(bool);

        private static IEnumerable<string> ValuesOf(Symbol symbol) => symbol.GetCompletions(CompletionContext.Empty).Select(static item => item.Label);
    }
}
