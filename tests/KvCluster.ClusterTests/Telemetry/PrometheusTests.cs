using System.Diagnostics;
using System.Globalization;
using KvCluster.Admin.V1;
using KvCluster.Processes;
using Xunit.Abstractions;

namespace KvCluster.ClusterTests.Telemetry;

/// <summary>Three nodes and a router under load, scraped by a real Prometheus, while one component after the other fails.</summary>
public sealed class PrometheusTests(ITestOutputHelper output)
{
    private const int OnSmallDisk = 3;

    // Far more than the node's replicas keep without the fault: 256 MiB of journal each for lagging followers, up to four segments of 64 MiB, and the
    // trees. With half of this the disk was sometimes full without a fault.
    private const int DiskMebibytes = 2_048;

    // Alerts that a busy machine causes, too.
    private static readonly string[] OfABusyMachine = ["KvClusterWritesSlow", "KvClusterLeadersMove"];

    // The mean of the last minute by node. A slow disk's is clearly higher than the others'.
    private const string JournalWrites =
        "sum by (instance) (rate(kvcluster_node_journal_write_duration_seconds_sum[1m])) / sum by (instance) "
        + "(rate(kvcluster_node_journal_write_duration_seconds_count[1m]))";

    // Why calls fail for as long as a shard has no majority. At first some fail for other reasons.
    private const string Lasting = "error_type=\"NO_LEADER\"";

    // Parts of nodes' log lines that explain an alert that keeps firing.
    private static readonly string[] OfInterest = ["disk", "stalled", "epoch", "Alarm"];

    // Alerts that look back for minutes and keep firing after their fault.
    private static readonly string[] Remembering = ["KvClusterNodeRestarts", "KvClusterReplicaFailed", "KvClusterAlarm", "KvClusterLeadersMove"];

    // Alerts whose cause no fault of some minutes is: a day's growth, certificates, an upgrade, snapshots of etcd. Their unit tests are in test-alerts*.yaml.
    private static readonly string[] OfDays =
        ["KvClusterDiskFills", "KvClusterCertificateExpires", "KvClusterVersionsDiffer", "KvClusterCoordinatorSnapshotOld"];

    // Of faults that take time to come about, or to be seen by the nodes. All others are there when they are made.
    private static readonly Dictionary<string, FaultSign> Signs = new()
    {
        ["KvClusterNodeUnreachable"] = new("kvcluster_node_peer_connected", ["kvcluster_peer=\"3\""], [1, 2], AtAll: true, static (now, _) => now == 0),
        ["KvClusterFollowerLags"] = new(
            "kvcluster_node_peer_lag_size_bytes", ["kvcluster_peer=\"3\""], [1, 2], AtAll: false, static (now, _) => now > 64 << 20),
        ["KvClusterNoLeader"] = new("kvcluster_node_shards_leaderless", [], [1], AtAll: true, static (now, _) => now > 0),
        ["KvClusterRequestsFail"] = new("kvcluster_router_request_refused_total", [Lasting], [4], AtAll: true, static (now, before) => now > before),
        ["KvClusterNodesRefuse"] = new("kvcluster_node_request_refused_total", [Lasting], [1], AtAll: true, static (now, before) => now > before),
        ["KvClusterCoordinatorUnreachable"] = new("kvcluster_node_coordinator_reachable", [], [1, 2, 3], AtAll: false, static (now, _) => now == 0),
        ["KvClusterCoordinatorNotFollowed"] = new("kvcluster_node_coordinator_followed", [], [1, 2, 3], AtAll: false, static (now, _) => now == 0),
        ["KvClusterDiskImpaired"] = new(
            "kvcluster_node_replicas_impaired", ["kvcluster_disk=\"full\""], [OnSmallDisk], AtAll: true, static (now, _) => now > 0),
        ["KvClusterReplicaSetAside"] = new("kvcluster_node_aside_size_bytes", [], [3], AtAll: true, static (now, _) => now > 0),
    };

    // Delays of commits cost leaders their leadership at times, and while there is none no commit is slow.
    private static readonly FaultSign Elections = new("kvcluster_node_elections_total", [], [1, 2, 3], AtAll: false, static (now, before) => now > before);

    /// <summary>A healthy cluster: its series exist, and no alert fires.</summary>
    [ToolFact("etcd", "etcdctl", "prometheus")]
    [Trait("Turn", "5")]
    public async Task Cluster_UnderLoad_IsScrapedAndNoAlertFires()
    {
        await using var cluster = await ScrapedCluster.StartAsync(dataOf: _ => null);
        await cluster.Prometheus.UntilDataAsync(QueriesOfHealth, cluster.Began);
        await UntilCalmAsync(cluster.Prometheus);
        if (!PrometheusServer.HasOtlp)
            return;
        // Metrics have the same names, whether they were scraped or pushed.
        await cluster.Prometheus.UntilDataAsync(
            ["kvcluster_node_info{job=\"kvcluster/kv-node\",instance=\"node-1\"}", "kvcluster_node_follower_lag_size_bytes{job=\"kvcluster/kv-node\"}",
                "target_info{job=\"kvcluster/kv-node\",kvcluster_cluster!=\"\"}"], cluster.Began);
        HashSet<string> different = [];
        await Eventually.TrueAsync(async () =>
        {
            var (pushed, scraped) =
                (await cluster.Prometheus.NamesAsync("node-1", "kvcluster_node_"), await cluster.Prometheus.NamesAsync(cluster.TargetOf(1), "kvcluster_node_"));
            different = [.. pushed.Except(scraped)
                .Select(static name => $"only by OTLP {name}"), .. scraped.Except(pushed).Select(static name => $"only scraped {name}")];
            return pushed.Count > 50 && different.Count == 0;
        }, () => $"the names by OTLP are those that are scraped: {string.Join(", ", different)}");
    }

    /// <summary>
    /// Every alert fires in its fault, no later than its rule says, and none without. Afterwards every query of every dashboard has had data. Takes some
    /// minutes, so only with KV_LONG=1.
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
        Assert.Equal(TelemetryFiles.AlertNames.Except(OfDays).Order(), faults.SelectMany(fault => fault.Alerts).Distinct().Order());
        using var loop = new BareLoop(cluster.Folder);
        var chosen = Environment.GetEnvironmentVariable("KV_ALERTS")?.Split(',');
        Assert.Empty((chosen ?? []).Except(faults.SelectMany(static fault => fault.Alerts)));
        foreach (var (alerts, fault) in faults.Where(fault => chosen is null || fault.Alerts.Intersect(chosen).Any()))
        {
            var began = Stopwatch.GetTimestamp();
            await fault(await FaultWatch.BeginAsync(scraped, loop, alerts, Signs, () => FiringAsync(prometheus), output.WriteLine));
            await cluster.UntilEveryReplicaWorksAsync();
            await UntilSilentAsync(scraped, alerts.Except(Remembering).ToHashSet().Contains);
            output.WriteLine($"{string.Join(" and ", alerts)}: {Stopwatch.GetElapsedTime(began).TotalSeconds:F0} s with the end of the fault");
        }

        await UntilSilentAsync(scraped, static _ => true);
        if (chosen is null)
            await prometheus.UntilDataAsync(TelemetryFiles.DashboardQueries().Select(panel => panel.Query), scraped.Began);
    }

    [Fact]
    public void Dashboards_AreFiveWithDifferentNames()
    {
        Assert.Equal(["clients.json", "node.json", "overview.json", "shards.json", "storage.json"], TelemetryFiles.Dashboards.Select(Path.GetFileName));
        Assert.True(TelemetryFiles.DashboardQueries().Count() > 80);
    }

    [Fact]
    public void Alerts_EachHaveASectionOfTheRunbook()
    {
        const string heading = "## ";
        var sections = File.ReadLines(Path.Combine(Tools.Repository(), "deploy", "telemetry", "RUNBOOK.md"))
            .Where(static line => line.StartsWith(heading, StringComparison.Ordinal));
        Assert.NotEmpty(TelemetryFiles.AlertNames);
        Assert.Equal(TelemetryFiles.AlertNames.Order(), sections.Select(static line => line[heading.Length..]).Order());
    }

    /// <summary>Prometheus' own unit tests of the rules, with their real waits, for which tests of processes have no time.</summary>
    [ToolFact("promtool")]
    public async Task Alerts_PassTheirUnitTests()
    {
        var folder = Path.Combine(Tools.Repository(), "deploy", "telemetry");
        var files = Directory.GetFiles(folder, "test-alerts*.yaml");
        Assert.Equal(2, files.Length);
        var (exitCode, output, error) = await Tools.RunAsync("promtool", ["test", "rules", .. files]);
        Assert.True(exitCode == 0, $"{output}\n{error}");
    }

    // Queries that show that all targets are scraped and under load.
    private static IEnumerable<string> QueriesOfHealth =>
    [
        "count(kvcluster_node_info{job=\"kvcluster\",kvcluster_cluster!=\"\"}) == 3", "kvcluster_router_info{kvcluster_cluster!=\"\"}",
        "kvcluster_node_replicas{kvcluster_role=\"leader\"}", "rate(kvcluster_router_request_duration_seconds_count[15s]) > 0",
        "rate(kvcluster_node_journal_write_duration_seconds_count[15s]) > 0", "kvcluster_node_follower_lag_size_bytes",
    ];

    // An alert caused by a stall stops firing soon. A wrong one does not.
    private static async Task UntilCalmAsync(PrometheusServer prometheus)
    {
        IReadOnlyList<FiringAlert> firing = [];
        await Eventually.TrueAsync(
            async () => (firing =
                [.. (await prometheus.FiringAsync()).Where(static alert => !OfABusyMachine.Contains(alert.Name) && !IsOfABusyMachine(alert))]).Count == 0,
            () => $"no alert fires: {string.Join("; ", firing)}");
    }

    // By name, except the alert of a slow disk, which the machine may cause (IsOfABusyMachine) and no fault of these tests does.
    private static async Task<IReadOnlySet<string>> FiringAsync(PrometheusServer prometheus) =>
        (await prometheus.FiringAsync()).Where(static alert => !IsOfABusyMachine(alert)).Select(static alert => alert.Name).ToHashSet();

    // The small disk is a loop device, whose kernel thread has to wait for a processor, too. Under other load its writes take longer than those of
    // the other nodes' disks, so the alert is right. The fault tested here is a full disk, which has its own series. The other disks are the machine's, which
    // other programs fill, a build with a megabyte per second.
    private static bool IsOfABusyMachine(FiringAlert alert) => alert.Name == "KvClusterDiskFills"
        || (alert.Name == "KvClusterDiskImpaired" && alert.Labels.Contains("kvcluster_disk=slow", StringComparison.Ordinal));

    // Alerts that keep firing are reported with labels and values, with the write times of the nodes' disks, and with the nodes' log lines about
    // disks, leaders and stalls. The name alone does not show the node or the reason.
    private static async Task UntilSilentAsync(ScrapedCluster scraped, Func<string, bool> concerns)
    {
        IReadOnlyList<FiringAlert> firing = [];
        IReadOnlyList<string> writes = [];
        await Eventually.TrueAsync(
            async () =>
            {
                firing = await scraped.Prometheus.FiringAsync();
                if (!firing.Any(alert => concerns(alert.Name) && !IsOfABusyMachine(alert)))
                    return true;
                writes = await scraped.Prometheus.ValuesAsync(JournalWrites);
                return false;
            },
            () => $"silent again: {string.Join("; ", firing)}; seconds of a journal's write: "
                + $"{string.Join("; ", writes)}{Environment.NewLine}{string.Join(Environment.NewLine, LastWords(scraped))}");
    }

    private static IEnumerable<string> LastWords(ScrapedCluster scraped) => scraped.Cluster.Nodes.SelectMany(node => node.Log
        .Where(static line => OfInterest.Any(word => line.Contains(word, StringComparison.Ordinal))).TakeLast(20)
        .Select(line => $"node {node.Node} ({scraped.TargetOf(node.Node)}): {line}"));

    // Faults that are remembered longest come first. Each fault waits for its alerts with what it gets, and is then removed.
    private static IEnumerable<(string[] Alerts, Func<FaultWatch, Task> Fault)> Faults(ScrapedCluster scraped, SmallDisk disk) =>
    [
        (["KvClusterNodeRestarts"], watch => Eventually.TrueAsync(async () =>
        {
            // Each start must be seen: several between two scrapes count as one.
            await scraped.Cluster.Node(2).KillAsync();
            watch.Again();
            scraped.Cluster.Node(2).Start();
            await scraped.Cluster.UntilEveryReplicaWorksAsync();
            var since = DateTimeOffset.UtcNow;
            var seen = string.Create(
                CultureInfo.InvariantCulture, $"timestamp(kvcluster_node_starts_total{{instance=\"{scraped.TargetOf(2)}\"}}) > {since.ToUnixTimeSeconds()}");
            await scraped.Prometheus.UntilDataAsync([seen], since.UtcDateTime);
            return await watch.FiredAsync();
        }, "the alert of restarts fires")),
        (["KvClusterReplicaFailed", "KvClusterAlarm", "KvClusterReplicaSetAside"], async watch =>
        {
            await scraped.Cluster.AdminOf(3).QuarantineAsync(new QuarantineRequest { Node = 3, Shard = 0, Reason = "a test" });
            await FireAsync(scraped, watch);
            Directory.Delete(Path.Combine(scraped.Cluster.Node(3).Data, "aside"), recursive: true);
        }),
        (["KvClusterLeadersMove"], watch => Eventually.TrueAsync(async () =>
        {
            watch.Again();
            await scraped.Cluster.TransferAsync(0);
            await scraped.Cluster.TransferAsync(1);
            return await watch.FiredAsync();
        }, "the alert of moving leaders fires")),
        (["KvClusterNodeUnreachable", "KvClusterFollowerLags", "KvClusterNodeNotSeen"], watch => WithoutAsync(
            scraped, [3], () => WithLargeValuesAsync(scraped, watch, keys: 20))),
        (["KvClusterNodeUnreachable"], async watch =>
        {
            // Cut off from the others but still scraped: it knows no leader, although every shard has one.
            scraped.Cluster.Network.Cut(3, 1);
            scraped.Cluster.Network.Cut(3, 2);
            await FireAsync(scraped, watch);
            var leaderless = $"kvcluster_node_shards_leaderless{{instance=\"{scraped.TargetOf(3)}\"}} == 2";
            await Eventually.TrueAsync(
                async () => await scraped.Prometheus.CountAsync(leaderless, DateTime.UtcNow) > 0
                    && !(await FiringAsync(scraped.Prometheus)).Contains("KvClusterNoLeader"),
                "the node that is cut off knows no leader, and no alert says that there is none");
            scraped.Cluster.Network.Heal();
        }),
        (["KvClusterNoLeader", "KvClusterRequestsFail", "KvClusterNodesRefuse"], async watch =>
        {
            // The router asks the leaders that it knows. A node that led none would not be asked, and refuse nothing.
            await scraped.Cluster.UntilLeadsAsync(1);
            await WithoutAsync(scraped, [2, 3], () => FireAsync(scraped, watch));
        }),
        (["KvClusterNotSeen"], watch => WithoutAsync(scraped, [1, 2, 3], () => FireAsync(scraped, watch))),
        (["KvClusterCoordinatorUnreachable"], async watch =>
        {
            await scraped.Cluster.Etcd.KillAsync(0);
            await FireAsync(scraped, watch);
            scraped.Cluster.Etcd.Start(0);
        }),
        (["KvClusterCoordinatorNotFollowed"], async watch =>
        {
            await scraped.Cluster.Etcd.ControlAsync("del", "--prefix", "/kvcluster/");
            await FireAsync(scraped, watch);
            await Eventually.TrueAsync(
                async () => (await scraped.Cluster.CoordinatorOf(1).RecoverAsync(new RecoverRequest())).Applied, "the coordinator's records are rebuilt");
        }),
        (["KvClusterWritesSlow"], async watch =>
        {
            foreach (var (one, other) in new[] { (1, 2), (1, 3), (2, 3) })
                scraped.Cluster.Network.Delay(one, other, TimeSpan.FromMilliseconds(400));
            var elections = await Elections.ReadAsync(scraped);
            await Eventually.TrueAsync(async () =>
            {
                if (await Elections.IsThereAsync(scraped, elections))
                {
                    elections = await Elections.ReadAsync(scraped);
                    watch.Again();
                }
                return await watch.FiredAsync();
            }, "the alert of slow writes fires");
            scraped.Cluster.Network.Heal();
        }),
        (["KvClusterDiskImpaired"], async watch =>
        {
            disk.Fill();
            // The tree must grow: a journal alone gets room by each checkpoint, and the disk is full for some milliseconds at a time.
            await WithLargeValuesAsync(scraped, watch, keys: 1_000);
            disk.Empty();
        }),
    ];

    private static Task FireAsync(ScrapedCluster scraped, FaultWatch watch) => Eventually.TrueAsync(
        watch.FiredAsync,
        () => $"the fault fires {watch.Missing}; {scraped.Load}{Environment.NewLine}{string.Join(Environment.NewLine, LastWords(scraped))}");

    private static async Task WithLargeValuesAsync(ScrapedCluster scraped, FaultWatch watch, int keys)
    {
        var before = scraped.Load.Keys;
        (scraped.Load.ValueBytes, scraped.Load.Keys) = (256 << 10, keys);
        await FireAsync(scraped, watch);
        (scraped.Load.ValueBytes, scraped.Load.Keys) = (100, before);
    }

    private static async Task WithoutAsync(ScrapedCluster scraped, int[] nodes, Func<Task> fires)
    {
        foreach (var node in nodes)
            await scraped.Cluster.Node(node).KillAsync();
        await fires();
        foreach (var node in nodes)
            scraped.Cluster.Node(node).Start();
    }
}
