namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>
/// The settings of a command with their values and where these come from. Made by <see cref="SettingsReader"/>. It may be read while there are mistakes, so
/// that more of them are found. <see cref="ThrowIfWrong"/> must be called before the values are used.
/// </summary>
internal sealed class Settings
{
    private readonly Dictionary<Setting, SettingValue> _texts = [];
    private readonly Dictionary<Setting, object?> _values = [];
    private readonly List<string> _mistakes = [];

    public IReadOnlyList<string> Mistakes => _mistakes;

    /// <summary>Whether the file, if there is one, could be read. If not, there are no values.</summary>
    public bool IsRead { get; private set; } = true;

    /// <summary>The setting's value; the type's default if it has no value or an invalid one.</summary>
    public T? Get<T>(Setting<T> setting) => _values.TryGetValue(setting, out var value) ? (T?)value : default;

    /// <summary>Whether the setting was given, with a valid value or not.</summary>
    public bool IsGiven(Setting setting) => _texts.ContainsKey(setting);

    /// <summary>The setting's text and where it comes from: the source, "default", or "" if it has no value.</summary>
    public SettingValue Describe(Setting setting) =>
        _texts.TryGetValue(setting, out var value) ? value : new SettingValue(setting.Default ?? "", setting.Default is null ? "" : "default");

    /// <summary>Adds a mistake that shows only in combination with other settings.</summary>
    /// <param name="text">Continues a line that begins with where the setting's value comes from.</param>
    public void AddMistake(Setting setting, string text) =>
        _mistakes.Add($"{(_texts.TryGetValue(setting, out var value) ? value.Origin : setting.Flag)}: {text}");

    /// <exception cref="SettingsException">There are mistakes.</exception>
    public void ThrowIfWrong()
    {
        if (_mistakes.Count > 0)
            throw new SettingsException(_mistakes);
    }

    internal void AddMistake(string line) => _mistakes.Add(line);

    internal void Break(IEnumerable<string> mistakes)
    {
        IsRead = false;
        _mistakes.AddRange(mistakes);
    }

    /// <summary>Stores the given value of a setting, or its default.</summary>
    internal void Take(Setting setting, SettingValue? given)
    {
        if (given is { } value)
            _texts[setting] = value;
        if ((given?.Text ?? setting.Default) is not { } text)
        {
            if (setting.IsRequired)
                _mistakes.Add($"{setting.Flag} is missing ({setting.Variable}, or {setting.Name} in the file): {setting.Meaning}");
            return;
        }
        try
        {
            _values[setting] = setting.Read(text);
        }
        catch (FormatException wrong)
        {
            AddMistake(setting, wrong.Message);
        }
    }
}

/// <summary>The settings are invalid. It has every mistake, as one line each with its source.</summary>
internal sealed class SettingsException(IReadOnlyList<string> mistakes) : Exception(string.Join("\n", mistakes))
{
    public IReadOnlyList<string> Mistakes => mistakes;
}
