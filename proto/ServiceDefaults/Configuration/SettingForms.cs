using System.Globalization;
using System.Text.Json.Nodes;

namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>Parsers for the values of settings. Each throws a <see cref="FormatException"/> whose message continues a line for an operator.</summary>
internal static class SettingForms
{
    /// <summary>Any text except the empty one.</summary>
    public static string Text(string text) => text.Length > 0 ? text : throw new FormatException("is empty.");

    /// <summary>A path, made absolute.</summary>
    public static string Path(string text) => System.IO.Path.GetFullPath(Text(text));

    public static SettingParser<bool> Switch { get; } = new(
        static text => text.ToLowerInvariant() switch
        {
            "true" or "yes" or "on" or "1" => true,
            "false" or "no" or "off" or "0" => false,
            _ => throw new FormatException($"'{text}' is neither true nor false."),
        },
        new JsonObject { ["type"] = "boolean" });

    /// <summary>A whole number within bounds.</summary>
    public static SettingParser<int> Number(int least, int most) => new(text => ReadNumber(text, least, most), NumberSchema(least, most));

    /// <summary>A whole number within bounds, for a setting whose default is not a constant.</summary>
    public static SettingParser<int?> OptionalNumber(int least, int most) => new(text => ReadNumber(text, least, most), NumberSchema(least, most));

    /// <summary>The JSON schema of whole numbers within bounds.</summary>
    public static JsonObject NumberSchema(long least, long most) => new() { ["type"] = "integer", ["minimum"] = least, ["maximum"] = most };

    /// <summary>One of some words.</summary>
    public static SettingParser<string> Choice(params string[] words) => new(
        text => words.Contains(text) ? text : throw new FormatException($"'{text}' is not one of {string.Join(", ", words)}."),
        new JsonObject { ["enum"] = new JsonArray([.. words.Select(static word => (JsonNode?)word)]) });

    /// <summary>"scheme://host:port" with nothing after it.</summary>
    public static Func<string, string> Url(params string[] schemes) => text =>
        Uri.TryCreate(text, UriKind.Absolute, out var url) && schemes.Contains(url.Scheme) && url is { PathAndQuery: "/", UserInfo.Length: 0, Host.Length: > 0 }
            ? url.GetLeftPart(UriPartial.Authority)
            : throw new FormatException($"'{WithoutUser(text)}' is not of the form {string.Join(" or ", schemes.Select(scheme => $"{scheme}://host:port"))}.");

    /// <summary>A host name valid in DNS.</summary>
    public static string HostName(string text) =>
        Uri.CheckHostName(text) == UriHostNameType.Dns ? text : throw new FormatException($"'{text}' is not a host name.");

    /// <summary>A list of items separated by commas, with at least one item.</summary>
    public static IReadOnlyList<T> List<T>(string text, Func<string, T> item)
    {
        var items = text.Split(',', StringSplitOptions.TrimEntries | StringSplitOptions.RemoveEmptyEntries);
        return items.Length > 0 ? [.. items.Select(item)] : throw new FormatException("has no items.");
    }

    /// <summary>A list of items, which a file may also contain as a list.</summary>
    public static SettingParser<IReadOnlyList<T>> ListOf<T>(Func<string, T> item) => new(
        text => List(text, item),
        new JsonObject
        {
            ["type"] = new JsonArray("string", "array"),
            ["minLength"] = 1,
            ["minItems"] = 1,
            ["items"] = new JsonObject { ["type"] = "string" }
        });

    private static int ReadNumber(string text, int least, int most) =>
        int.TryParse(text, NumberStyles.AllowLeadingSign, CultureInfo.InvariantCulture, out var number) && number >= least && number <= most
            ? number
            : throw new FormatException($"'{text}' is not a number from {least} to {most}.");

    // A password in an address is invalid here and must not be logged.
    private static string WithoutUser(string url) => url.LastIndexOf('@') is >= 0 and var end ? $"...{url[end..]}" : url;
}
