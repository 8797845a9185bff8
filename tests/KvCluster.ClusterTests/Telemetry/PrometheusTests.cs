using KvCluster.Processes;
using KvCluster.V1;
using Xunit.Abstractions;

namespace KvCluster.ClusterTests.Telemetry;

/// <summary>Three nodes and a router under load, scraped by the real Prometheus, while one thing after the other fails.</summary>
public sealed class PrometheusTests(ITestOutputHelper output)
{
    private const int OnSmallDisk = 3;
    private const int DiskMebibytes = 1_024;
    private static readonly TimeSpan Limit = TimeSpan.FromSeconds(120);

    // What a machine that is too busy brings about as any fault does, and what goes on firing for minutes.
    private static readonly string[] OfABusyMachine = ["KvClusterWritesSlow", "KvClusterLeadersMove"];
    private static readonly string[] Remembering = ["KvClusterReplicaFailed", "KvClusterAlarm", "KvClusterLeadersMove"];

    /// <summary>A cluster that nothing is wrong with: its series are there, and no alert fires.</summary>
    [ToolFact("etcd", "etcdctl", "prometheus")]
    public async Task Cluster_UnderLoad_IsScrapedAndNoAlertFires()
    {
        await using var cluster = await ScrapedCluster.StartAsync(dataOf: _ => null);
        await cluster.Prometheus.UntilDataAsync(QueriesOfHealth, cluster.Began);
        await UntilCalmAsync(cluster.Prometheus);
        if (!PrometheusServer.HasOtlp)
            return;
        // Whether they were scraped or pushed, metrics have the same names.
        await cluster.Prometheus.UntilDataAsync(["kvcluster_node_info{job=\"kvcluster/kv-node\",instance=\"node-1\"}", "kvcluster_node_follower_lag_size_bytes{job=\"kvcluster/kv-node\"}"], cluster.Began);
        await Until.TrueAsync(async () =>
        {
            var (pushed, scraped) = (await cluster.Prometheus.NamesAsync("node-1", "kvcluster_node_"), await cluster.Prometheus.NamesAsync(cluster.FirstNode, "kvcluster_node_"));
            return pushed.Count > 50 && pushed.SetEquals(scraped);
        }, "the names by OTLP are those that are scraped");
    }

    /// <summary>
    /// Every alert fires in its fault and none without; afterwards every query of every dashboard has had data. Takes some minutes, so only with
    /// KV_LONG=1.
    /// </summary>
    [LongSmallDiskFact]
    public async Task Alerts_FireInTheirFaults_AndEveryQueryOfEveryDashboardHasData()
    {
        await using var disk = await SmallDisk.CreateAsync(DiskMebibytes, 2 * DiskMebibytes);
        await using var scraped = await ScrapedCluster.StartAsync(node => node == OnSmallDisk ? disk.Data : null);
        var (cluster, prometheus) = (scraped.Cluster, scraped.Prometheus);
        await prometheus.UntilDataAsync(QueriesOfHealth, scraped.Began);
        await UntilCalmAsync(prometheus);
        var faults = Faults(scraped, disk).ToList();
        Assert.Equal(TelemetryFiles.AlertNames.Order(), faults.Select(fault => fault.Alert).Order());
        foreach (var (alert, fault) in faults)
        {
            await fault(() => Until.TrueAsync(async () => (await prometheus.FiringAsync()).Contains(alert), $"{alert} fires", Limit));
            await cluster.UntilEveryReplicaWorksAsync();
            output.WriteLine($"{alert} fired");
            // What looks back for ten minutes goes on firing.
            if (!Remembering.Contains(alert))
                await Until.TrueAsync(async () => !(await prometheus.FiringAsync()).Contains(alert), $"{alert} is silent again", Limit);
        }
        await prometheus.UntilDataAsync(TelemetryFiles.DashboardQueries().Select(panel => panel.Query), scraped.Began);
    }

    [Fact]
    public void Dashboards_AreFiveWithDifferentNames()
    {
        Assert.Equal(["clients.json", "node.json", "overview.json", "shards.json", "storage.json"], TelemetryFiles.Dashboards.Select(Path.GetFileName));
        Assert.True(TelemetryFiles.DashboardQueries().Count() > 80);
    }

    [Fact]
    public void Alerts_HaveEachARunbookInTheReadme()
    {
        var readme = File.ReadAllText(Path.Combine(Tools.Repository(), "README.md"));
        Assert.NotEmpty(TelemetryFiles.AlertNames);
        Assert.All(TelemetryFiles.AlertNames, alert => Assert.Contains($"**{alert}**", readme, StringComparison.Ordinal));
    }

    /// <summary>Prometheus' own unit tests of the rules: with their real waits, which a test of processes has no time for.</summary>
    [ToolFact("promtool")]
    public async Task Alerts_PassTheirUnitTests()
    {
        var folder = Path.Combine(Tools.Repository(), "deploy", "telemetry");
        var (exitCode, output, error) = await Tools.RunAsync("promtool", "test", "rules", Path.Combine(folder, "test-alerts.yaml"));
        Assert.True(exitCode == 0, $"{output}\n{error}");
    }

    // What shows that all targets are scraped and load goes through them.
    private static IEnumerable<string> QueriesOfHealth =>
    [
        "count(kvcluster_node_info{job=\"kvcluster\"}) == 3", "kvcluster_node_replicas{kvcluster_role=\"leader\"}", "rate(kvcluster_router_request_duration_seconds_count[15s]) > 0",
        "rate(kvcluster_node_journal_write_duration_seconds_count[15s]) > 0", "kvcluster_node_follower_lag_size_bytes",
    ];

    // An alert that a stall set off is silent again soon after; one that is wrong goes on.
    private static async Task UntilCalmAsync(PrometheusServer prometheus)
    {
        IEnumerable<string> firing = [];
        await Until.TrueAsync(async () => !(firing = (await prometheus.FiringAsync()).Except(OfABusyMachine)).Any(), () => $"no alert fires: {string.Join(", ", firing)}");
    }

    private static IEnumerable<(string Alert, Func<Func<Task>, Task> Fault)> Faults(ScrapedCluster scraped, SmallDisk disk) =>
    [
        ("KvClusterNodeUnreachable", fires => WithoutAsync(scraped, [3], fires)),
        ("KvClusterFollowerLags", fires => WithoutAsync(scraped, [3], async () =>
        {
            scraped.Load.ValueBytes = 256 << 10;
            await fires();
            scraped.Load.ValueBytes = 100;
        })),
        ("KvClusterNoLeader", fires => WithoutAsync(scraped, [2, 3], fires)),
        ("KvClusterRequestsFail", fires => WithoutAsync(scraped, [2, 3], fires)),
        ("KvClusterCoordinatorUnreachable", async fires =>
        {
            await scraped.Cluster.Etcd.KillAsync(0);
            await fires();
            scraped.Cluster.Etcd.Start(0);
        }),
        ("KvClusterWritesSlow", async fires =>
        {
            foreach (var (one, other) in new[] { (1, 2), (1, 3), (2, 3) })
                scraped.Cluster.Network.Delay(one, other, TimeSpan.FromMilliseconds(400));
            await fires();
            scraped.Cluster.Network.Heal();
        }),
        ("KvClusterDiskImpaired", async fires =>
        {
            disk.Fill();
            scraped.Load.ValueBytes = 256 << 10;
            await fires();
            scraped.Load.ValueBytes = 100;
            disk.Empty();
        }),
        ("KvClusterReplicaFailed", async fires =>
        {
            await scraped.Cluster.AdminOf(3).QuarantineAsync(new QuarantineRequest { Node = 3, Shard = 0, Reason = "a test" });
            await fires();
        }),
        // Of the same replica.
        ("KvClusterAlarm", fires => fires()),
        ("KvClusterLeadersMove", async fires =>
        {
            for (var round = 0; round < 30; round++)
                await scraped.Cluster.HandOverAsync((uint)(round % 2));
            await fires();
        }),
    ];

    private static async Task WithoutAsync(ScrapedCluster scraped, int[] nodes, Func<Task> fires)
    {
        foreach (var node in nodes)
            await scraped.Cluster.Node(node).KillAsync();
        await fires();
        foreach (var node in nodes)
            scraped.Cluster.Node(node).Start();
    }
}
