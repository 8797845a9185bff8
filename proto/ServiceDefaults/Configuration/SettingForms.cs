using System.Globalization;

namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>Parsers for the values of settings. Each throws a <see cref="FormatException"/> whose message continues a line for an operator.</summary>
internal static class SettingForms
{
    /// <summary>Any text except the empty one.</summary>
    public static string Text(string text) => text.Length > 0 ? text : throw new FormatException("is empty.");

    /// <summary>A path, made absolute.</summary>
    public static string Path(string text) => System.IO.Path.GetFullPath(Text(text));

    public static bool Switch(string text) => text.ToLowerInvariant() switch
    {
        "true" or "yes" or "on" or "1" => true,
        "false" or "no" or "off" or "0" => false,
        _ => throw new FormatException($"'{text}' is neither true nor false."),
    };

    /// <summary>A whole number within bounds.</summary>
    public static Func<string, int> Number(int least, int most) => text =>
        int.TryParse(text, NumberStyles.AllowLeadingSign, CultureInfo.InvariantCulture, out var number) && number >= least && number <= most
            ? number
            : throw new FormatException($"'{text}' is not a number from {least} to {most}.");

    /// <summary>One of some words.</summary>
    public static Func<string, string> Choice(params string[] words) => text =>
        words.Contains(text) ? text : throw new FormatException($"'{text}' is not one of {string.Join(", ", words)}.");

    /// <summary>"scheme://host:port" with nothing after it.</summary>
    public static Func<string, string> Url(params string[] schemes) => text =>
        Uri.TryCreate(text, UriKind.Absolute, out var url) && schemes.Contains(url.Scheme) && url is { PathAndQuery: "/", UserInfo.Length: 0, Host.Length: > 0 }
            ? url.GetLeftPart(UriPartial.Authority)
            : throw new FormatException($"'{WithoutUser(text)}' is not of the form {string.Join(" or ", schemes.Select(scheme => $"{scheme}://host:port"))}.");

    /// <summary>A host name valid in DNS.</summary>
    public static string HostName(string text) => Uri.CheckHostName(text) == UriHostNameType.Dns ? text : throw new FormatException($"'{text}' is not a host name.");

    /// <summary>A list of items separated by commas, with at least one item.</summary>
    public static IReadOnlyList<T> List<T>(string text, Func<string, T> item)
    {
        var items = text.Split(',', StringSplitOptions.TrimEntries | StringSplitOptions.RemoveEmptyEntries);
        return items.Length > 0 ? [.. items.Select(item)] : throw new FormatException("has no items.");
    }

    // A password in an address is invalid here and must not be logged.
    private static string WithoutUser(string url) => url.LastIndexOf('@') is >= 0 and var end ? $"...{url[end..]}" : url;
}
