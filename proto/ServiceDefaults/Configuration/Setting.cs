using System.Text.Json.Nodes;

namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>
/// A setting. Its name gives the flag <c>--tls-cert</c>, the variable <c>KVCLUSTER_TLS_CERT</c> and the key <c>tls-cert</c> of the file. Programs list their
/// settings in tables, from which help, checks, <c>config show</c>, the tables of deploy/OPERATIONS.md and the schema of the chart's values are made.
/// </summary>
/// <param name="name">Lower-case words with hyphens, ending in the unit if it has one.</param>
/// <param name="form">The form of a value in one word: URL, FILE, SECONDS.</param>
/// <param name="meaning">One or two sentences.</param>
internal abstract class Setting(string name, string form, string meaning)
{
    /// <summary>The prefix of environment variables.</summary>
    public const string VariablePrefix = "KVCLUSTER_";

    public string Name => name;

    public string Form => form;

    public string Meaning => meaning;

    /// <summary>The default value as text; null if there is none.</summary>
    public string? Default { get; init; }

    /// <summary>The program does not start without it.</summary>
    public bool IsRequired { get; init; }

    /// <summary>As a flag it can be given without a value.</summary>
    public bool IsSwitch { get; init; }

    public string Flag => $"--{name}";

    public string Variable => VariablePrefix + name.Replace('-', '_').ToUpperInvariant();

    /// <summary>A JSON schema of its values in a file, as far as one can describe them.</summary>
    public abstract JsonObject Schema { get; }

    /// <summary>Parses a text.</summary>
    /// <exception cref="FormatException">The text is invalid. The message says why; it continues a line that begins with where the text comes
    /// from.</exception>
    public abstract object? Read(string text);
}

/// <summary>A setting whose values are of one type.</summary>
/// <param name="name">As in the base class.</param>
/// <param name="form">As in the base class.</param>
/// <param name="meaning">As in the base class.</param>
/// <param name="parser">Parses and describes its values.</param>
internal sealed class Setting<T>(string name, string form, string meaning, SettingParser<T> parser) : Setting(name, form, meaning)
{
    /// <summary>A setting whose values are texts in a file.</summary>
    /// <param name="name">As in the base class.</param>
    /// <param name="form">As in the base class.</param>
    /// <param name="meaning">As in the base class.</param>
    /// <param name="read">Parses a text; throws a <see cref="FormatException"/> that says what is wrong.</param>
    public Setting(string name, string form, string meaning, Func<string, T> read)
        : this(name, form, meaning, new SettingParser<T>(read, new JsonObject { ["type"] = "string", ["minLength"] = 1 }))
    {
    }

    public override JsonObject Schema => parser.Schema;

    public override object? Read(string text) => parser.Read(text);
}

/// <summary>Parses the values of a setting, and describes them.</summary>
/// <param name="Read">Parses a text; throws a <see cref="FormatException"/> that says what is wrong.</param>
/// <param name="Schema">A JSON schema of the values in a file.</param>
internal sealed record SettingParser<T>(Func<string, T> Read, JsonObject Schema);

/// <summary>The text given for a setting, and its source.</summary>
/// <param name="Text">As written in the source.</param>
/// <param name="Origin">The flag, the variable, or the file's line.</param>
internal readonly record struct SettingValue(string Text, string Origin);
