using System.Globalization;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.Telemetry;

/// <summary>Three nodes and a router with two shards under load, and a Prometheus that scrapes them. Node 1 also pushes its metrics by OTLP.</summary>
internal sealed class ScrapedCluster : IAsyncDisposable
{
    private ScrapedCluster(FaultCluster cluster, PrometheusServer prometheus, Load load)
    {
        Cluster = cluster;
        Prometheus = prometheus;
        Load = load;
    }

    public FaultCluster Cluster { get; }

    public PrometheusServer Prometheus { get; }

    public Load Load { get; }

    /// <summary>The admin ports of the nodes, by id from 1 on, and of the router.</summary>
    public required IReadOnlyList<string> Targets { get; init; }

    /// <summary>The time of the first possible scrape.</summary>
    public DateTime Began { get; } = DateTime.UtcNow.AddSeconds(-1);

    /// <summary>The name of a node, or 4 for the router, as a scraped target. By OTLP node 1 is "node-1".</summary>
    public string TargetOf(int node) => Targets[node - 1];

    /// <summary>Whether the node or router behind a target runs.</summary>
    public bool Runs(string target) => Cluster.Nodes.FirstOrDefault(node => TargetOf(node.Node) == target)?.IsRunning ?? true;

    /// <param name="dataOf">The directory of a node's data, if it is not in the cluster's directory.</param>
    public static async Task<ScrapedCluster> StartAsync(Func<int, string?> dataOf)
    {
        var first = FreePorts.Ten();
        var port = first + 9;
        string[] byOtlp =
        [
            "env", string.Create(CultureInfo.InvariantCulture, $"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://127.0.0.1:{port}/api/v1/otlp/v1/metrics"),
            "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_METRIC_EXPORT_INTERVAL=1000",
        ];
        string[] admin = [.. Enumerable.Range(first, 4).Select(port => string.Create(CultureInfo.InvariantCulture, $"127.0.0.1:{port}"))];
        var cluster = await FaultCluster.StartAsync(splitAt: "m", dataOf: dataOf, prepare: node =>
        {
            node.Options = ["--admin", $"http://{admin[node.Node - 1]}"];
            node.Wrapper = node.Node == 1 && PrometheusServer.HasOtlp ? byOtlp : [];
        });
        try
        {
            var router = cluster.StartRouter("--admin", $"http://{admin[3]}");
            var prometheus = await PrometheusServer.StartAsync(Path.Combine(cluster.Folder, "prometheus"), port, admin, TelemetryFiles.ImpatientAlerts);
            return new ScrapedCluster(cluster, prometheus, new Load(router)) { Targets = admin };
        }
        catch
        {
            await cluster.DisposeAsync();
            throw;
        }
    }

    public async ValueTask DisposeAsync()
    {
        await Load.DisposeAsync();
        await Prometheus.DisposeAsync();
        await Cluster.DisposeAsync();
    }
}
