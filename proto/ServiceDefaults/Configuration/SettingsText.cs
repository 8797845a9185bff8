using System.Text;
using System.Text.Json.Nodes;

namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>Formats settings: for <c>config show</c>, as the table of the documentation, and as the schema of the chart's values.</summary>
internal static class SettingsText
{
    /// <summary>One line for each setting: name, value and source. Passwords and tokens are in separate files, so none are shown.</summary>
    public static IEnumerable<string> Lines(IReadOnlyList<Setting> table, Settings settings)
    {
        var nameWidth = table.Max(setting => setting.Name.Length);
        var values = table.Select(settings.Describe).ToArray();
        var valueWidth = values.Max(value => value.Text.Length);
        return table.Zip(
            values, (setting, value) => $"{setting.Name.PadRight(nameWidth)}  {value.Text.PadRight(valueWidth)}  {SourceOf(setting, value)}".TrimEnd());
    }

    /// <summary>A Markdown table of settings.</summary>
    public static string Markdown(IEnumerable<Setting> table)
    {
        var text = new StringBuilder("| setting | form | default | meaning |\n|---|---|---|---|\n");
        foreach (var setting in table)
            text.Append($"| `{setting.Name}` | {setting.Form}{RangeOf(setting)} | {setting.Default ?? (setting.IsRequired ? "must be set" : "")} | "
                + $"{setting.Meaning} |\n");
        return text.ToString();
    }

    // Of numbers: ", 1 to 64".
    private static string RangeOf(Setting setting) =>
        setting.Schema is var schema && schema["minimum"] is { } least && schema["maximum"] is { } most ? $", {least} to {most}" : "";

    /// <summary>A JSON schema of a mapping of settings to their values.</summary>
    public static JsonObject Schema(IEnumerable<Setting> table)
    {
        var properties = new JsonObject();
        foreach (var setting in table)
        {
            var schema = setting.Schema.DeepClone().AsObject();
            schema["description"] = setting.Meaning;
            properties[setting.Name] = schema;
        }
        return new JsonObject { ["type"] = "object", ["additionalProperties"] = false, ["properties"] = properties };
    }

    // The origin of a value from a file ends with the setting's name, which is not repeated.
    private static string SourceOf(Setting setting, SettingValue value) => value.Origin.EndsWith($": {setting.Name}", StringComparison.Ordinal)
        ? value.Origin[..^(setting.Name.Length + 2)]
        : value.Origin;
}
