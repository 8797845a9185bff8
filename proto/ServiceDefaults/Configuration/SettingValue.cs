namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>The text given for a setting, and its source.</summary>
/// <param name="Text">As written in the source.</param>
/// <param name="Origin">The flag, the variable, or the file's line.</param>
internal readonly record struct SettingValue(string Text, string Origin);
