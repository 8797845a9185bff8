namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>The settings are invalid. It has every mistake, as one line each with its source.</summary>
internal sealed class SettingsException(IReadOnlyList<string> mistakes) : Exception(string.Join("\n", mistakes))
{
    public IReadOnlyList<string> Mistakes => mistakes;
}
