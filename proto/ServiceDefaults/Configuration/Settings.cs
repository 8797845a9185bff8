namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>
/// What holds: of each setting of a command its value and where that is from. Made by <see cref="SettingsReader"/>. It may be looked at while
/// there are mistakes, so that more of them are found; <see cref="ThrowIfWrong"/> comes before anything is done with it.
/// </summary>
internal sealed class Settings
{
    private readonly Dictionary<Setting, SettingValue> _texts = [];
    private readonly Dictionary<Setting, object?> _values = [];
    private readonly List<string> _mistakes = [];

    public IReadOnlyList<string> Mistakes => _mistakes;

    /// <summary>Whether the file, if there is one, could be read; otherwise there are no values to look at.</summary>
    public bool IsRead { get; private set; } = true;

    /// <summary>Its value; of one without a value, and of one with a wrong value, the type's default.</summary>
    public T? Get<T>(Setting<T> setting) => _values.TryGetValue(setting, out var value) ? (T?)value : default;

    /// <summary>Whether somebody said something of it, right or wrong.</summary>
    public bool IsGiven(Setting setting) => _texts.ContainsKey(setting);

    /// <summary>What it is and where that is from: its text, and "default" or "" where nobody said anything.</summary>
    public SettingValue Describe(Setting setting) =>
        _texts.TryGetValue(setting, out var value) ? value : new SettingValue(setting.Default ?? "", setting.Default is null ? "" : "default");

    /// <summary>Adds a mistake that shows only beside other settings.</summary>
    /// <param name="text">Ends a line that begins with where the setting's value is from.</param>
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

    /// <summary>Takes what was said of a setting, or its default.</summary>
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
