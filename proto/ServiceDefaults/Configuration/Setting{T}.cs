namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>A setting whose values are of one type.</summary>
/// <param name="name">As in the base class.</param>
/// <param name="form">As in the base class.</param>
/// <param name="meaning">As in the base class.</param>
/// <param name="read">Parses a text; throws a <see cref="FormatException"/> that says what is wrong.</param>
internal sealed class Setting<T>(string name, string form, string meaning, Func<string, T> read) : Setting(name, form, meaning)
{
    public override object? Read(string text) => read(text);
}
