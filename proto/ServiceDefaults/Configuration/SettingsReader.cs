using System.Text.RegularExpressions;

namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>Brings together what flags, environment and file say: the first of them that says something of a setting holds.</summary>
internal static partial class SettingsReader
{
    /// <param name="table">The settings of the command.</param>
    /// <param name="known">Those of all commands of the program: environment and file may say something of them, too.</param>
    /// <param name="sources">Flags and environment.</param>
    /// <returns>With every mistake that there is, or, of a file that is not usable, with that alone: what is missing cannot be said without it.</returns>
    public static Settings Read(IReadOnlyList<Setting> table, IReadOnlyList<Setting> known, SettingSources sources)
    {
        var settings = new Settings();
        var file = FileOf(sources) is { } path ? SettingsFile.Load(path) : null;
        if (file is { IsUsable: false })
        {
            settings.Break(file.Mistakes);
            return settings;
        }
        foreach (var setting in table)
            settings.Take(setting, ValueOf(setting, sources, file));
        foreach (var mistake in file?.Mistakes ?? [])
            settings.AddMistake(mistake);
        var names = known.Select(setting => setting.Name).ToArray();
        foreach (var (name, value) in file?.Values ?? new Dictionary<string, SettingValue>())
        {
            if (!names.Contains(name))
                settings.AddMistake($"{value.Origin}: is not known{NearestName.Question(name, names)}");
        }
        foreach (var variable in UnknownVariables(known, sources))
            settings.AddMistake($"{variable}: is not known{NearestName.Question(variable, known.Select(setting => setting.Variable))}");
        return settings;
    }

    private static string? FileOf(SettingSources sources) => ValueOf(CommonSettings.Config, sources, file: null)?.Text is { Length: > 0 } path ? Path.GetFullPath(path) : null;

    private static SettingValue? ValueOf(Setting setting, SettingSources sources, SettingsFile? file)
    {
        if (sources.Flags.TryGetValue(setting.Name, out var flag))
            return new SettingValue(flag, setting.Flag);
        // An empty one is what compose files and shells leave of a variable that is not set.
        if (sources.Environment.TryGetValue(setting.Variable, out var variable) && variable.Length > 0)
            return new SettingValue(variable, setting.Variable);
        return file is not null && setting != CommonSettings.Config && file.Values.TryGetValue(setting.Name, out var line) ? line : null;
    }

    private static IEnumerable<string> UnknownVariables(IReadOnlyList<Setting> known, SettingSources sources) => sources.Environment.Keys
        .Where(name => name.StartsWith(Setting.VariablePrefix, StringComparison.Ordinal) && !OfAServiceLink().IsMatch(name))
        .Except(known.Select(setting => setting.Variable))
        .Order(StringComparer.Ordinal);

    // Kubernetes and older Docker tell a container of its neighbours: KVCLUSTER_ROUTER_SERVICE_HOST, KVCLUSTER_PORT_7400_TCP_ADDR.
    [GeneratedRegex("_SERVICE_HOST$|_SERVICE_PORT(_|$)|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$")]
    private static partial Regex OfAServiceLink();
}
