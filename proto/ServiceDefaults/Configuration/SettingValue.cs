namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>What was said of a setting, and where.</summary>
/// <param name="Text">As it is written there.</param>
/// <param name="Origin">The flag, the variable, or the file's line.</param>
internal readonly record struct SettingValue(string Text, string Origin);
