using System.Text.RegularExpressions;

namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>Combines flags, environment and file. The first of them that gives a setting has precedence.</summary>
/// <remarks>
/// Microsoft.Extensions.Configuration is not used, because it does not keep what users are told here. Its providers keep no lines of a file, so neither a
/// mistake nor <c>config show</c> could name one; a duplicate key ends loading, and a value that cannot be converted ends binding, before the mistakes after
/// it are found; an empty variable hides the file's value; and there is no provider for YAML. What it could replace is the precedence of the three sources.
/// </remarks>
internal static partial class SettingsReader
{
    /// <param name="table">The settings of the command.</param>
    /// <param name="known">The settings of all commands of the program, because environment and file may set any of them.</param>
    /// <param name="sources">Flags and environment.</param>
    /// <returns>The settings with every mistake. If the file is not usable, only its mistakes, because without it nothing can be said about missing
    /// settings.</returns>
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

    private static string? FileOf(SettingSources sources) =>
        ValueOf(CommonSettings.Config, sources, file: null)?.Text is { Length: > 0 } path ? Path.GetFullPath(path) : null;

    private static SettingValue? ValueOf(Setting setting, SettingSources sources, SettingsFile? file)
    {
        if (sources.Flags.TryGetValue(setting.Name, out var flag))
            return new SettingValue(flag, setting.Flag);
        // Compose files and shells leave an empty variable if its source is not set.
        if (sources.Environment.TryGetValue(setting.Variable, out var variable) && variable.Length > 0)
            return new SettingValue(variable, setting.Variable);
        return file is not null && setting != CommonSettings.Config && file.Values.TryGetValue(setting.Name, out var line) ? line : null;
    }

    private static IEnumerable<string> UnknownVariables(IReadOnlyList<Setting> known, SettingSources sources) => sources.Environment.Keys
        .Where(name => name.StartsWith(Setting.VariablePrefix, StringComparison.Ordinal) && !OfAServiceLink().IsMatch(name))
        .Except(known.Select(setting => setting.Variable))
        .Order(StringComparer.Ordinal);

    // Kubernetes and older Docker versions set such variables for neighbouring services: KVCLUSTER_ROUTER_SERVICE_HOST, KVCLUSTER_PORT_7400_TCP_ADDR.
    [GeneratedRegex("_SERVICE_HOST$|_SERVICE_PORT(_|$)|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$")]
    private static partial Regex OfAServiceLink();
}

/// <summary>The sources of settings, besides the file that they may name.</summary>
/// <param name="Flags">Texts by the names of settings.</param>
/// <param name="Environment">All variables. Those that do not begin with <see cref="Setting.VariablePrefix"/> are ignored.</param>
internal sealed record SettingSources(IReadOnlyDictionary<string, string> Flags, IReadOnlyDictionary<string, string> Environment);
