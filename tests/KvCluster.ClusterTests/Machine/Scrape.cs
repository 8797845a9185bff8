using System.Globalization;

namespace KvCluster.ClusterTests;

/// <summary>The page of metrics of an admin port, read as Prometheus does. Counters begin with the first page.</summary>
internal static class Scrape
{
    /// <summary>The values of a metric's series. None if nobody answers.</summary>
    /// <param name="admin">The address of the admin port.</param>
    /// <param name="metric">The name of the metric.</param>
    /// <param name="labels">Labels as the page writes them, of which a series must have one; none: all series.</param>
    public static async Task<IReadOnlyList<double>> ValuesAsync(string admin, string metric, params IReadOnlyList<string> labels)
    {
        using var http = new HttpClient();
        try
        {
            var page = await http.GetStringAsync($"{admin}/metrics");
            return
            [
                .. page.Split('\n').Where(line => line.StartsWith(metric + "{", StringComparison.Ordinal))
                    .Where(line => labels.Count == 0 || labels.Any(label => line.Contains(label, StringComparison.Ordinal)))
                    .Select(static line => double.Parse(line.AsSpan(line.LastIndexOf(' ') + 1), CultureInfo.InvariantCulture)),
            ];
        }
        catch (HttpRequestException)
        {
            // It has ended, or is not up yet.
            return [];
        }
    }
}
