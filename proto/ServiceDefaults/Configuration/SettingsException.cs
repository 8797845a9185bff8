namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>What was set is not usable. All that is wrong, a line each with where it is from.</summary>
internal sealed class SettingsException(IReadOnlyList<string> mistakes) : Exception(string.Join("\n", mistakes))
{
    public IReadOnlyList<string> Mistakes => mistakes;
}
