using System.Globalization;
using System.Text.Json;
using System.Text.RegularExpressions;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.Telemetry;

/// <summary>The files of deploy/telemetry, read as Grafana and Prometheus do.</summary>
internal static partial class TelemetryFiles
{
    private static readonly string Folder = Path.Combine(Tools.Repository(), "deploy", "telemetry");

    /// <summary>The rule file.</summary>
    public static string Alerts => File.ReadAllText(Path.Combine(Folder, "alerts.yaml"));

    /// <summary>The names of the alerts in it.</summary>
    public static IReadOnlyList<string> AlertNames => [.. AlertName().Matches(Alerts).Select(match => match.Groups[1].Value)];

    /// <summary>The text of each rule, by the name of its alert.</summary>
    public static IReadOnlyDictionary<string, string> AlertTexts { get; } =
        Alerts.Split("- alert: ").Skip(1).ToDictionary(static text => text[..text.IndexOf('\n', StringComparison.Ordinal)].Trim());

    /// <summary>The reasons of failed and refused calls that an alert counts.</summary>
    public static IReadOnlyList<string> ReasonsOf(string alert) => Reasons().Match(AlertTexts[alert]).Groups[1].Value.Split('|');

    public static IReadOnlyList<string> Dashboards => [.. Directory.GetFiles(Path.Combine(Folder, "dashboards"), "*.json").Order(StringComparer.Ordinal)];

    /// <summary>Every query of every panel, with the panel's name and with Grafana's variables replaced.</summary>
    public static IEnumerable<(string Panel, string Query)> DashboardQueries()
    {
        foreach (var file in Dashboards)
        {
            using var dashboard = JsonDocument.Parse(File.ReadAllText(file));
            foreach (var panel in dashboard.RootElement.GetProperty("panels").EnumerateArray().Where(panel => panel.TryGetProperty("targets", out _)))
            {
                foreach (var target in panel.GetProperty("targets").EnumerateArray())
                    yield return ($"{Path.GetFileName(file)}, {panel.GetProperty("title").GetString()}", Filled(target.GetProperty("expr").GetString()!));
            }
        }
    }

    /// <summary>Every panel, with its dashboard's title as Grafana shows it in the folder of the product.</summary>
    public static IEnumerable<(string Dashboard, string Panel)> Panels()
    {
        foreach (var file in Dashboards)
        {
            using var dashboard = JsonDocument.Parse(File.ReadAllText(file));
            var title = dashboard.RootElement.GetProperty("title").GetString()!["KvCluster / ".Length..];
            foreach (var panel in dashboard.RootElement.GetProperty("panels").EnumerateArray())
                yield return (title, panel.GetProperty("title").GetString()!);
        }
    }

    /// <summary>
    /// The rules with every wait and every window a tenth as long, and those of hours a hundredth. Scrapes here are fifteen times as frequent, so a fault
    /// of some seconds is long enough.
    /// </summary>
    public static string ImpatientAlerts =>
        Time().Replace(Alerts, time => string.Create(CultureInfo.InvariantCulture, $"{time.Groups[1]}{MillisecondsOf(time)}ms"));

    /// <summary>The longest window of a rule and its `for`, as in <see cref="ImpatientAlerts"/>.</summary>
    public static (TimeSpan Window, TimeSpan Wait) WaitsOf(string alert)
    {
        var times = Time().Matches(AlertTexts[alert])
            .ToLookup(static time => time.Groups[1].Value, static time => TimeSpan.FromMilliseconds(MillisecondsOf(time)));
        return (times["["].DefaultIfEmpty().Max(), times["for: "].DefaultIfEmpty().Max());
    }

    private static string Filled(string query) => query
        .Replace("$__rate_interval", "15s", StringComparison.Ordinal).Replace("$instance", ".*", StringComparison.Ordinal);

    [GeneratedRegex(@"- alert: (\w+)")]
    private static partial Regex AlertName();

    [GeneratedRegex(@"error_type=~""([A-Z_|]+)""")]
    private static partial Regex Reasons();

    private static int MillisecondsOf(Match time) => int.Parse(time.Groups[2].ValueSpan, CultureInfo.InvariantCulture) * time.Groups[3].Value switch
    {
        "s" => 1_000 / 10,
        "m" => 60_000 / 10,
        "h" => 3_600_000 / 100,
        _ => 86_400_000 / 100,
    };

    [GeneratedRegex(@"(for: |\[)(\d+)([smhd])\b")]
    private static partial Regex Time();
}
