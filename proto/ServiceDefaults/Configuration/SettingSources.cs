namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>The sources of settings, besides the file that they may name.</summary>
/// <param name="Flags">Texts by the names of settings.</param>
/// <param name="Environment">All variables. Those that do not begin with <see cref="Setting.VariablePrefix"/> are ignored.</param>
internal sealed record SettingSources(IReadOnlyDictionary<string, string> Flags, IReadOnlyDictionary<string, string> Environment);
