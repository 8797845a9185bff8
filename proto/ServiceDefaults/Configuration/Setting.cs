namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>
/// One thing that can be set. By its one name it is the flag <c>--tls-cert</c>, the variable <c>KVCLUSTER_TLS_CERT</c> and the key
/// <c>tls-cert</c> of the file. The tables of programs list them; help, checks, <c>config show</c> and the tables of deploy/OPERATIONS.md come from there.
/// </summary>
/// <param name="name">Lower case words with hyphens; a unit ends it.</param>
/// <param name="form">What a value looks like, in one word: URL, FILE, SECONDS.</param>
/// <param name="meaning">A sentence or two.</param>
internal abstract class Setting(string name, string form, string meaning)
{
    /// <summary>What variables of the environment begin with.</summary>
    public const string VariablePrefix = "KVCLUSTER_";

    public string Name => name;

    public string Form => form;

    public string Meaning => meaning;

    /// <summary>The value that holds when nothing is said, as one would write it; null: none.</summary>
    public string? Default { get; init; }

    /// <summary>Without it the program does not start.</summary>
    public bool IsRequired { get; init; }

    /// <summary>As a flag it needs no value.</summary>
    public bool IsSwitch { get; init; }

    public string Flag => $"--{name}";

    public string Variable => VariablePrefix + name.Replace('-', '_').ToUpperInvariant();

    /// <summary>What a text means.</summary>
    /// <exception cref="FormatException">Nothing; the message says why, as the rest of a line that begins with where the text is from.</exception>
    public abstract object? Read(string text);
}
