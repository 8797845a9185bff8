using KvCluster.Benchmarks.Cluster;

namespace KvCluster.Benchmarks.Api;

/// <summary>The calls of the API against three node processes, each with its own way to be measured.</summary>
internal static class ApiSuite
{
    /// <summary>The suite's name in its rows.</summary>
    public const string Name = "api";

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(bool quick, Action<string> progress, CancellationToken cancellation)
    {
        await using var servers = await KvServers.StartAsync(cancellation);
        // The memory of watchers is seen best while the programs have little else.
        var rows = new List<BenchmarkRow>(await WatchMeasure.RunAsync(servers, quick, progress, cancellation));
        rows.AddRange(await LeaseMeasure.RunAsync(servers, quick, progress, cancellation));
        rows.AddRange(await FacetMeasure.RunAsync(servers, quick, progress, cancellation));
        rows.AddRange(await LoadMeasure.RunAsync(servers, quick, progress, cancellation));
        return rows;
    }
}
