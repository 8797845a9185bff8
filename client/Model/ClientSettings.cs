using System.Globalization;

namespace KvCluster.Client;

/// <summary>
/// Reads the settings of <see cref="KvClientOptions"/> from texts, which connection strings and configuration have. What cannot be read is a mistake of the
/// options (<see cref="KvClientOptions.MistakesOfText"/>), so that whoever validates them names all mistakes at once. Never throws. Thread-safe; the options
/// belong to the caller.
/// </summary>
internal static class ClientSettings
{
    private const string TrueOrFalse = "true or false";

    // Each reads a text into the options, and returns what the text should be if it is something else. In code there are also a log and whatever is no text.
    private static readonly Dictionary<string, Func<KvClientOptions, string, string?>> Settings = new(StringComparer.OrdinalIgnoreCase)
    {
        [nameof(KvClientOptions.Endpoints)] = static (options, text) =>
        {
            // Whether they are addresses is told when the options are validated.
            options.Endpoints = text.Split(',', StringSplitOptions.TrimEntries);
            return null;
        },
        [nameof(KvClientOptions.Gateway)] = static (options, text) =>
        {
            if (!bool.TryParse(text, out var gateway))
                return TrueOrFalse;
            options.Gateway = gateway;
            return null;
        },
        [nameof(KvClientOptions.ExactlyOnce)] = static (options, text) =>
        {
            if (!bool.TryParse(text, out var exactlyOnce))
                return TrueOrFalse;
            options.ExactlyOnce = exactlyOnce;
            return null;
        },
        [nameof(KvClientOptions.Read)] = static (options, text) =>
        {
            // A number would be read as a mode, too, and so would several names.
            var names = Enum.GetNames<KvReadMode>();
            var index = Array.FindIndex(names, name => name.Equals(text, StringComparison.OrdinalIgnoreCase));
            if (index < 0)
                return $"one of {string.Join(", ", names)}";
            options.Read = Enum.GetValues<KvReadMode>()[index];
            return null;
        },
        [nameof(KvClientOptions.Timeout)] = static (options, text) =>
        {
            // "10" would be ten days.
            if (!text.Contains(':', StringComparison.Ordinal) || !TimeSpan.TryParse(text, CultureInfo.InvariantCulture, out var timeout))
                return "a time like 00:00:10";
            options.Timeout = timeout;
            return null;
        },
        [nameof(KvClientOptions.CallsInFlightMax)] = static (options, text) =>
        {
            if (!int.TryParse(text, NumberStyles.AllowLeadingSign, CultureInfo.InvariantCulture, out var callsInFlightMax))
                return "a number";
            options.CallsInFlightMax = callsInFlightMax;
            return null;
        },
        [NameOfTls(nameof(KvTlsOptions.AuthorityFile))] = static (options, text) => Nothing(TlsOf(options).AuthorityFile = text),
        [NameOfTls(nameof(KvTlsOptions.CertificateFile))] = static (options, text) => Nothing(TlsOf(options).CertificateFile = text),
        [NameOfTls(nameof(KvTlsOptions.KeyFile))] = static (options, text) => Nothing(TlsOf(options).KeyFile = text),
        [NameOfTls(nameof(KvTlsOptions.ServerName))] = static (options, text) => Nothing(TlsOf(options).ServerName = text),
    };

    /// <summary>The names of all settings, with a colon for those inside of others, as in configuration.</summary>
    public static IReadOnlyCollection<string> Names => Settings.Keys;

    /// <summary>Reads one setting.</summary>
    /// <param name="options">What is set.</param>
    /// <param name="place">Where the text is from, for the message of a mistake.</param>
    /// <param name="name">One of <see cref="Names"/>, in any case.</param>
    /// <param name="text">The value.</param>
    public static void Read(KvClientOptions options, string place, string name, string text)
    {
        if (!Settings.TryGetValue(name, out var read))
            options.MistakesOfText.Add($"{place}: there is no setting '{name}'. There are {string.Join(", ", Names)}.");
        else if (read(options, text) is { } expected)
            options.MistakesOfText.Add($"{place}: '{text}' is not {expected}.");
    }

    /// <summary>Reads a connection string (<see cref="KvClientOptions.FromConnectionString"/>).</summary>
    /// <param name="options">What is set.</param>
    /// <param name="place">Where it is from, for the message of a mistake.</param>
    /// <param name="text">The connection string.</param>
    public static void ReadConnectionString(KvClientOptions options, string place, string text)
    {
        var parts = text.Split(';', StringSplitOptions.TrimEntries | StringSplitOptions.RemoveEmptyEntries);
        if (parts.Length == 0)
            options.MistakesOfText.Add($"{place} is empty.");
        foreach (var part in parts)
        {
            var (name, value) = part.Split('=', 2, StringSplitOptions.TrimEntries) is [var before, var after] ? (before, after) : ("", part);
            // An address with an equals sign is a wrong one, and may have a password before it, which must not get into a message.
            if (!Settings.ContainsKey(name) && (name.Length == 0 || name.Contains("://", StringComparison.Ordinal) || part.Contains('@')))
                (name, value) = (nameof(KvClientOptions.Endpoints), part);
            Read(options, $"{place}, {name}", name, value);
        }
    }

    private static string NameOfTls(string name) => $"{nameof(KvClientOptions.Tls)}:{name}";

    private static KvTlsOptions TlsOf(KvClientOptions options) => options.Tls ??= new KvTlsOptions();

    // Any text can be the name of a file or a host.
    private static string? Nothing(string? _) => null;
}
