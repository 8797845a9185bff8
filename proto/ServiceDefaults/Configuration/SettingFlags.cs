using System.CommandLine;

namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>Makes settings options of a program's commands.</summary>
internal sealed class SettingFlags
{
    private readonly Dictionary<Setting, Option> _options = [];

    /// <summary>Creates a command with the settings of a table as options.</summary>
    public Command CommandOf(string name, string description, IReadOnlyList<Setting> table)
    {
        var command = new Command(name, description);
        foreach (var setting in table)
            command.Options.Add(OptionOf(setting));
        return command;
    }

    /// <summary>The settings in a command line, by name.</summary>
    public IReadOnlyDictionary<string, string> In(ParseResult arguments) => _options
        .Select(one => (one.Key.Name, Result: arguments.GetResult(one.Value)))
        .Where(one => one.Result is { Implicit: false })
        .ToDictionary(one => one.Name, one => one.Result!.Tokens is [var token, ..] ? token.Value : "true");

    private Option OptionOf(Setting setting)
    {
        if (_options.TryGetValue(setting, out var option))
            return option;
        var description = setting.Default is { } held ? $"{setting.Meaning} (default {held})" : setting.Meaning;
        return _options[setting] = setting.IsSwitch
            ? new Option<bool>(setting.Flag) { Description = description }
            : new Option<string>(setting.Flag) { Description = description, HelpName = setting.Form };
    }
}
