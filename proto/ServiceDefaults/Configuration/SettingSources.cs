namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>Where settings come from, beside the file that they may name themselves.</summary>
/// <param name="Flags">Texts by the names of settings.</param>
/// <param name="Environment">All variables; those that do not begin with <see cref="Setting.VariablePrefix"/> are somebody else's.</param>
internal sealed record SettingSources(IReadOnlyDictionary<string, string> Flags, IReadOnlyDictionary<string, string> Environment);
