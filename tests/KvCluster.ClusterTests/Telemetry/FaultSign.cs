namespace KvCluster.ClusterTests.Telemetry;

/// <summary>By what nodes or the router show at their own ports that a fault has come about which takes time to, such as a lag that grows.</summary>
/// <param name="Metric">The name of the metric. Of a target's series the sum counts.</param>
/// <param name="Labels">Labels as the page writes them, of which a series must have one; none: all series.</param>
/// <param name="Targets">The nodes that show it, and 4 for the router.</param>
/// <param name="AtAll">Whether all of them must, or one.</param>
/// <param name="Holds">Whether a value shows it, by what it is now and what it was before the fault.</param>
internal sealed record FaultSign(string Metric, IReadOnlyList<string> Labels, IReadOnlyList<int> Targets, bool AtAll, Func<double, double, bool> Holds)
{
    /// <summary>Reads the value of each target; null if it does not answer or has no such series.</summary>
    public Task<double?[]> ReadAsync(ScrapedCluster scraped) => Task.WhenAll(Targets.Select(async target =>
        await Scrape.ValuesAsync($"http://{scraped.TargetOf(target)}", Metric, Labels) is { Count: > 0 } values ? values.Sum() : (double?)null));

    /// <summary>Whether the fault is there.</summary>
    /// <param name="now">What was read.</param>
    /// <param name="before">What was read before the fault.</param>
    public bool IsThere(IReadOnlyList<double?> now, IReadOnlyList<double?> before)
    {
        var shown = now.Zip(before, (value, then) => value is { } known && Holds(known, then ?? 0)).ToList();
        return AtAll ? shown.TrueForAll(static shows => shows) : shown.Contains(true);
    }

    /// <summary>Whether the fault is there now.</summary>
    public async Task<bool> IsThereAsync(ScrapedCluster scraped, IReadOnlyList<double?> before) => IsThere(await ReadAsync(scraped), before);
}
