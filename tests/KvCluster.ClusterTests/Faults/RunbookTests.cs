using System.Globalization;
using System.Text.Json;
using KvCluster.Admin.V1;
using KvCluster.Client;
using KvCluster.ClusterTests.Telemetry;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.Faults;

/// <summary>
/// The commands of the runbook's entries, as they stand there, on clusters that are broken in that way. Each test names its entries by the trait Runbook and
/// ends with a healthy cluster.
/// </summary>
public sealed class RunbookTests
{
    /// <summary>The trait.</summary>
    internal const string Entry = "Runbook";

    private const string FourShards = "h,p,w";
    private const int Shards = 4;
    private const int ProblemsFound = 7;
    private const int Unavailable = 3;
    private const int Damaged = 65;
    private const int NotReady = 1;
    private const int Misconfigured = 2;
    private const int DiskMebibytes = 64;

    // Less than a fifth of the disk, and enough for the node to work.
    private const long LittleRoom = 8 << 20;

    // As many within the window of the alert are too many.
    private const int Restarts = 3;

    private const double WeekSeconds = 7 * 86_400;

    // The node in trouble and the further one, as in the runbook.
    private const int Troubled = 3;
    private const int Further = 4;

    /// <summary>Its process ends, then it loses its disk, then it does not come back and another node takes its place, and in the end it is emptied.</summary>
    [ToolFact("etcd", "etcdctl", "bash")]
    [Trait(Entry, "KvClusterNodeUnreachable")]
    [Trait("Turn", "2")]
    public async Task Node_ThatIsUnreachable_IsStartedRebuiltReplacedAndEmptied()
    {
        const string Unreachable = "KvClusterNodeUnreachable";
        await using var cluster = await FaultCluster.StartAsync(nodes: 4, splitAt: FourShards, founders: 3);
        var (shell, node) = (ShellOf(cluster), cluster.Node(Troubled));
        var runbook = new Runbook(shell);

        await node.KillAsync();
        await UntilSeenAsync(runbook, Unreachable, "node 3: does not answer", "add a node and run `kv admin replace-node 3 NEW`");
        // Without a further node nothing is changed, and the answer is what the runbook says.
        await UntilAnsweredAsync(shell, "kv admin replace-node 3", static refused => refused.ExitCode == Unavailable
            && refused.Error.Contains("start node 3 with an empty data directory", StringComparison.Ordinal));
        node.Start();
        await UntilHealthyAsync(cluster, shell);

        await node.KillAsync();
        Directory.Delete(node.Data, recursive: true);
        node.Start();
        await UntilHealthyAsync(cluster, shell);

        cluster.Node(Further).Start();
        await cluster.UntilLevelAsync();
        await UntilHealthyAsync(cluster, shell);
        await node.KillAsync();
        await UntilSeenAsync(runbook, Unreachable, "move its replicas to the other nodes: `kv admin replace-node 3`");
        await runbook.UntilDoneAsync(Unreachable, block: 1);
        await AssertHasNoneAsync(cluster, Troubled);
        // What was done is found done.
        await UntilAnsweredAsync(shell, "kv admin replace-node 3 4", static again => again is { ExitCode: 0, Output: "node 3 has no replicas\n" });
        node.Start();
        await UntilHealthyAsync(cluster, shell);
        await runbook.UntilDoneAsync(Unreachable, block: 2);
        await cluster.UntilLevelAsync();

        await runbook.UntilDoneAsync(Unreachable, block: 3);
        await AssertHasNoneAsync(cluster, Troubled);
        await runbook.UntilDoneAsync(Unreachable, block: 2);
        await cluster.UntilLevelAsync();
        await UntilHealthyAsync(cluster, shell);
        runbook.AssertAllExecuted(Unreachable);
    }

    [ToolFact("etcd", "etcdctl", "bash")]
    [Trait(Entry, "KvClusterNoLeader")]
    [Trait(Entry, "KvClusterNotSeen")]
    [Trait("Turn", "2")]
    public async Task Shards_WithoutALeader_AndAClusterThatIsGone_ComeBack()
    {
        await using var cluster = await FaultCluster.StartAsync();
        var shell = ShellOf(cluster);
        var runbook = new Runbook(shell);
        await KillAsync(cluster, 2, 3);
        await runbook.UntilAsync(
            "KvClusterNoLeader",
            static told => told is [{ ExitCode: 0 }, { ExitCode: ProblemsFound, Output: var said }, { ExitCode: 0 }]
                && said.Contains("shard 0: only 1 of the nodes of its 3 voters answer, which is not a majority", StringComparison.Ordinal)
                && said.Contains("node 3: does not answer", StringComparison.Ordinal));

        await KillAsync(cluster, 1);
        var silent = Assert.Single(await runbook.RunAsync("KvClusterNotSeen"));
        Assert.True(silent.ExitCode == Unavailable, silent.ToString());
        foreach (var node in cluster.Nodes)
            node.Start();
        await UntilHealthyAsync(cluster, shell);
        Assert.Single(await runbook.UntilDoneAsync("KvClusterNotSeen"));
        runbook.AssertAllExecuted("KvClusterNoLeader", "KvClusterNotSeen");
    }

    /// <summary>A replica that is taken out of service stops, which is an alarm, and what it had is set aside.</summary>
    [ToolFact("etcd", "etcdctl", "bash")]
    [Trait(Entry, "KvClusterReplicaFailed")]
    [Trait(Entry, "KvClusterAlarm")]
    [Trait(Entry, "KvClusterReplicaSetAside")]
    [Trait("Turn", "2")]
    public async Task Replica_ThatStopped_IsRebuilt_AndItsOldCopyIsExaminedAndRemoved()
    {
        await using var cluster = await FaultCluster.StartAsync();
        var shell = ShellOf(cluster);
        var runbook = new Runbook(shell);
        var before = await ReplicaAsync(cluster);
        await QuarantineAsync(cluster);
        await runbook.UntilAsync("KvClusterAlarm", static told => told is [{ ExitCode: 0 or ProblemsFound }, { ExitCode: 0 }]);
        await runbook.UntilDoneAsync("KvClusterReplicaFailed");
        await Eventually.TrueAsync(async () => await ReplicaAsync(cluster) is var now && now != before && now != 0, "the replica is rebuilt");
        await UntilHealthyAsync(cluster, shell);

        var rebuilt = await ReplicaAsync(cluster);
        await runbook.UntilDoneAsync("KvClusterReplicaFailed", block: 1);
        Assert.NotEqual(rebuilt, await ReplicaAsync(cluster));
        await UntilHealthyAsync(cluster, shell);

        var aside = Path.Combine(cluster.Node(Troubled).Data, "aside", "0");
        await Eventually.TrueAsync(() => Directory.Exists(aside), "what was replaced is set aside");
        Assert.Contains(" of shard 0; ", (await runbook.UntilDoneAsync("KvClusterReplicaSetAside"))[1].Output, StringComparison.Ordinal);
        var answers = await runbook.RunAsync("KvClusterReplicaSetAside", block: 1);
        // The mark of a quarantined replica counts as damage.
        Assert.True(answers is [{ ExitCode: 0 }, { ExitCode: 0 or Damaged }, { ExitCode: 0 }], string.Join("; ", answers));
        Assert.Contains(" of shard 0 is ", answers[1].Output, StringComparison.Ordinal);
        Assert.False(Directory.Exists(aside) || Directory.Exists(cluster.Node(Troubled).Data + ".aside-0"));
        await UntilHealthyAsync(cluster, shell);

        before = await ReplicaAsync(cluster);
        await QuarantineAsync(cluster);
        await Eventually.TrueAsync(
            async () => await ReplicaAsync(cluster) is var now && now != before && now != 0 && Directory.Exists(aside),
            "the replica is rebuilt again, and the old one set aside");
        await UntilHealthyAsync(cluster, shell);
        Assert.Contains("Deleted ", Assert.Single(await runbook.UntilDoneAsync("KvClusterReplicaSetAside", block: 2)).Output, StringComparison.Ordinal);
        Assert.False(Directory.Exists(aside));
        await UntilHealthyAsync(cluster, shell);
        runbook.AssertAllExecuted("KvClusterReplicaFailed", "KvClusterAlarm", "KvClusterReplicaSetAside");
    }

    [ToolFact("etcd", "etcdctl", "bash")]
    [Trait(Entry, "KvClusterCoordinatorUnreachable")]
    [Trait("Turn", "2")]
    public async Task Coordinator_ThatIsGone_IsNamedByDoctor()
    {
        await using var cluster = await FaultCluster.StartAsync();
        var shell = ShellOf(cluster);
        var runbook = new Runbook(shell);
        await cluster.Etcd.KillAsync(0);
        await runbook.UntilAsync(
            "KvClusterCoordinatorUnreachable",
            static told => told is [{ ExitCode: ProblemsFound, Output: var said }, { ExitCode: not 0 }, ..]
                && said.Contains("coordinator: does not answer node", StringComparison.Ordinal));
        cluster.Etcd.Start(0);
        await runbook.UntilAsync(
            "KvClusterCoordinatorUnreachable",
            static told => told is [{ Output: var said }, { ExitCode: 0 }, ..] && !said.Contains("coordinator: does not answer", StringComparison.Ordinal));
        // An election needs it.
        await cluster.TransferAsync();
        await UntilHealthyAsync(cluster, shell);
        runbook.AssertAllExecuted("KvClusterCoordinatorUnreachable");
    }

    /// <summary>After ten minutes nothing said any more that no shard could fail over, and doctor called the coordinator healthy.</summary>
    [ToolFact("etcd", "etcdctl", "bash")]
    [Trait(Entry, "KvClusterCoordinatorNotFollowed")]
    [Trait("Turn", "2")]
    public async Task Coordinator_WhoseRecordsAreGone_IsNamedByDoctor_AndRebuilt()
    {
        const string NotFollowed = "KvClusterCoordinatorNotFollowed";
        const string Metric = "kvcluster_node_coordinator_followed";
        using var settings = new SettingsOnDisk(Troubled);
        await using var cluster = await FaultCluster.StartAsync(prepare: settings.Prepare);
        var shell = ShellOf(cluster);
        var runbook = new Runbook(shell);
        await Eventually.TrueAsync(async () => await Scrape.ValuesAsync(settings.Admin, Metric) is [1.0], "the coordinator is followed");
        await cluster.Etcd.ControlAsync("del", "--prefix", "/kvcluster/");
        var answers = await runbook.UntilAsync(NotFollowed, static told => told is [{ ExitCode: ProblemsFound, Output: var said }, { ExitCode: 0 }]
            && said.Contains("coordinator: is not followed by node 3: it has no record of the cluster, so its data is lost", StringComparison.Ordinal));
        Assert.Contains("nothing was changed; the same command without --plan writes this", answers[1].Output, StringComparison.Ordinal);
        await Eventually.TrueAsync(async () => await Scrape.ValuesAsync(settings.Admin, Metric) is [0.0], "the metric says so, too");

        await runbook.UntilDoneAsync(NotFollowed, block: 1);
        await Eventually.TrueAsync(async () => await Scrape.ValuesAsync(settings.Admin, Metric) is [1.0], "the coordinator is followed again");
        // An election needs it.
        await cluster.TransferAsync();
        await UntilHealthyAsync(cluster, shell);
        runbook.AssertAllExecuted(NotFollowed);
    }

    [ToolFact("etcd", "etcdctl", "bash")]
    [Trait(Entry, "KvClusterCoordinatorSnapshotOld")]
    [Trait("Turn", "2")]
    public async Task Snapshot_ThatIsOld_IsFollowedByOneThatEveryNodeKnows()
    {
        await using var cluster = await FaultCluster.StartAsync();
        var shell = ShellOf(cluster).With("SNAPSHOTS", Path.Combine(cluster.Folder, "snapshots"));
        var runbook = new Runbook(shell);
        var old = DateTimeOffset.UtcNow.AddDays(-2).ToUnixTimeSeconds();
        await cluster.Etcd.ControlAsync("put", "/kvcluster/local/snapshot", old.ToString(CultureInfo.InvariantCulture));
        foreach (var node in cluster.Nodes)
            await Eventually.TrueAsync(async () => (await cluster.StatusOfAsync(node.Node))?.CoordinatorSnapshotUnixUs == old * 1_000_000, $"node {node.Node} "
                + "knows of the old snapshot");

        IReadOnlyList<ShellAnswer> answers = [];
        await Eventually.TrueAsync(
            async () =>
            {
                // Again where etcd did not answer one of the commands in time.
                await cluster.Etcd.ControlAsync("put", "/kvcluster/local/snapshot", old.ToString(CultureInfo.InvariantCulture));
                answers = await runbook.RunAsync("KvClusterCoordinatorSnapshotOld");
                return answers.All(static answer => answer.ExitCode == 0);
            },
            () => $"a snapshot is taken: {string.Join("; ", answers)}");
        Assert.Equal(old.ToString(CultureInfo.InvariantCulture), answers[0].Output.Trim());
        Assert.NotEmpty(Directory.GetFiles(Path.Combine(cluster.Folder, "snapshots")));
        foreach (var node in cluster.Nodes)
            await Eventually.TrueAsync(async () => (await cluster.StatusOfAsync(node.Node))?.CoordinatorSnapshotUnixUs > old * 1_000_000, $"node {node.Node} "
                + "knows of the new snapshot");
        await UntilHealthyAsync(cluster, shell);
        runbook.AssertAllExecuted("KvClusterCoordinatorSnapshotOld");
    }

    /// <summary>A node that stands still lags; a slow network makes writes slow; transfers are leaders that move.</summary>
    [ToolFact("etcd", "etcdctl", "bash")]
    [Trait(Entry, "KvClusterFollowerLags")]
    [Trait(Entry, "KvClusterWritesSlow")]
    [Trait(Entry, "KvClusterLeadersMove")]
    [Trait("Turn", "2")]
    public async Task Replicas_ThatLag_AreSlow_OrChangeTheirLeader_AreShown()
    {
        await using var cluster = await FaultCluster.StartAsync();
        var shell = ShellOf(cluster);
        var runbook = new Runbook(shell);
        await using var client = new KvClient(new KvClientOptions { Endpoints = cluster.DirectEndpoints, Timeout = Eventually.Limit });
        cluster.Network.Cut(Troubled, 1);
        cluster.Network.Cut(Troubled, 2);
        for (var number = 0; number < 100; number++)
            await client.PutAsync(string.Create(CultureInfo.InvariantCulture, $"lag/{number}"), "value");
        await runbook.UntilDoneAsync("KvClusterFollowerLags");
        cluster.Network.Heal();
        await UntilHealthyAsync(cluster, shell);

        foreach (var (one, other) in new[] { (1, 2), (1, 3), (2, 3) })
            cluster.Network.Delay(one, other, TimeSpan.FromMilliseconds(50));
        await client.PutAsync("slow", "value");
        await runbook.UntilAsync("KvClusterWritesSlow", static told => told is [{ ExitCode: 0 or ProblemsFound }]);
        cluster.Network.Heal();
        await UntilHealthyAsync(cluster, shell);

        await cluster.TransferAsync();
        await runbook.UntilAsync("KvClusterLeadersMove", static told => told is [{ ExitCode: 0 }, { ExitCode: 0 or ProblemsFound }, ..]);
        await UntilHealthyAsync(cluster, shell);
        runbook.AssertAllExecuted("KvClusterFollowerLags", "KvClusterWritesSlow", "KvClusterLeadersMove");
    }

    [SmallDiskFact]
    [Trait(Entry, "KvClusterDiskImpaired")]
    [Trait("Turn", "2")]
    public async Task Disk_ThatIsFull_IsNamedByDoctor_AndWorksAgainWithRoom()
    {
        await using var disk = await SmallDisk.CreateAsync(DiskMebibytes, 2 * DiskMebibytes);
        await using var cluster = await FaultCluster.StartAsync(dataOf: node => node == Troubled ? disk.Data : null);
        var shell = ShellOf(cluster);
        var runbook = new Runbook(shell);
        disk.Fill();
        await runbook.UntilAsync("KvClusterDiskImpaired", static told => told is [{ ExitCode: ProblemsFound, Output: var said }]
            && said.Contains("free space of node 3: 0.0 of ", StringComparison.Ordinal));
        disk.Empty();
        await UntilHealthyAsync(cluster, shell);
        runbook.AssertAllExecuted("KvClusterDiskImpaired");
    }

    /// <summary>A node that the system kills whenever it has run for a while, and whose settings are then corrected, with a mistake at first.</summary>
    [ToolFact("etcd", "etcdctl", "bash")]
    [Trait(Entry, "KvClusterNodeRestarts")]
    [Trait("Turn", "2")]
    public async Task Node_ThatRestartsAgainAndAgain_IsStoppedAndStartsWithOtherSettings()
    {
        const string Restart = "KvClusterNodeRestarts";
        using var settings = new SettingsOnDisk(Troubled);
        await using var cluster = await FaultCluster.StartAsync(prepare: settings.Prepare);
        var (shell, node) = (settings.On(ShellOf(cluster)), cluster.Node(Troubled));
        var runbook = new Runbook(shell);
        var counted = 0.0;
        for (var restarts = 0; restarts <= Restarts; restarts++)
        {
            // Prometheus sees each start, as the alert needs it.
            await Eventually.TrueAsync(
                async () => await Scrape.ValuesAsync(settings.Admin, "kvcluster_node_starts_total") is [var starts] && starts > counted, "a start is counted");
            counted++;
            await node.KillAsync();
            if (restarts < Restarts)
                node.Start();
        }

        settings.Add("memory-budget-mb: 256");
        var answers = await runbook.UntilAsync(Restart, static told => told is [{ ExitCode: ProblemsFound }, { ExitCode: Misconfigured }]);
        Assert.Contains("node 3: does not answer", answers[0].Output, StringComparison.Ordinal);
        Assert.Contains("is not known, did you mean 'memory-budget-mib'?", answers[1].Error, StringComparison.Ordinal);
        settings.Edit("memory-budget-mb", "memory-budget-mib");
        answers = await runbook.UntilAsync(Restart, static told => told is [{ ExitCode: ProblemsFound }, { ExitCode: 0 }]);
        var shown = Assert.Single(answers[1].Output.Split('\n'), static line => line.StartsWith("memory-budget-mib ", StringComparison.Ordinal));
        Assert.Contains(" 256 ", shown, StringComparison.Ordinal);
        Assert.Contains(settings.Path, shown, StringComparison.Ordinal);
        node.Start();
        await runbook.UntilDoneAsync(Restart, block: 1);
        await UntilHealthyAsync(cluster, shell);
        runbook.AssertAllExecuted(Restart);
    }

    /// <summary>The process has ended, then it does not start with its settings, then its admin port has another address than Prometheus asks.</summary>
    [ToolFact("etcd", "etcdctl", "bash", "curl")]
    [Trait(Entry, "KvClusterNodeNotSeen")]
    [Trait("Turn", "2")]
    public async Task Node_WithoutMetrics_IsFoundEndedOrMisconfiguredOrAtAnotherAddress()
    {
        const string NotSeen = "KvClusterNodeNotSeen";
        using var settings = new SettingsOnDisk(Troubled);
        await using var cluster = await FaultCluster.StartAsync(prepare: settings.Prepare);
        var (shell, node) = (settings.On(ShellOf(cluster)), cluster.Node(Troubled));
        var runbook = new Runbook(shell);
        await runbook.UntilDoneAsync(NotSeen);

        await node.KillAsync();
        var answers = await runbook.UntilAsync(NotSeen, static told => told is [{ ExitCode: 0 }, { ExitCode: NotReady }, { ExitCode: not 0 }]);
        Assert.Contains("no answer from", answers[1].Output, StringComparison.Ordinal);

        settings.Add("jurnal-retention-mib: 512");
        node.Start();
        Assert.Equal(Misconfigured, await node.ExitAsync());
        var mistaken = Assert.Single(await runbook.RunAsync(NotSeen, block: 1));
        Assert.Equal(Misconfigured, mistaken.ExitCode);
        Assert.Contains($"{settings.Path}:", mistaken.Error, StringComparison.Ordinal);
        Assert.Contains("is not known, did you mean 'journal-retention-mib'?", mistaken.Error, StringComparison.Ordinal);
        settings.Edit("jurnal-retention-mib", "journal-retention-mib");

        settings.Edit(settings.Admin, settings.OtherAdmin);
        node.Start();
        await UntilHealthyAsync(cluster, shell);
        await runbook.UntilAsync(NotSeen, static told => told is [{ ExitCode: 0 }, { ExitCode: 0 }, { ExitCode: not 0 }]);
        Assert.Contains(settings.OtherAdmin, Assert.Single(await runbook.UntilDoneAsync(NotSeen, block: 1)).Output, StringComparison.Ordinal);

        await node.StopAsync();
        settings.Edit(settings.OtherAdmin, settings.Admin);
        node.Start();
        await runbook.UntilDoneAsync(NotSeen);
        await UntilHealthyAsync(cluster, shell);
        runbook.AssertAllExecuted(NotSeen);
    }

    /// <summary>Without a majority a node refuses calls, those of programs with the library and those of a router, which tells its callers.</summary>
    [ToolFact("etcd", "etcdctl", "bash")]
    [Trait(Entry, "KvClusterRequestsFail")]
    [Trait(Entry, "KvClusterNodesRefuse")]
    [Trait("Turn", "5")]
    public async Task Calls_ThatRoutersAndNodesRefuse_AreExplainedByDoctor_AndSucceedAgain()
    {
        string[] entries = ["KvClusterRequestsFail", "KvClusterNodesRefuse"];
        using var settings = new SettingsOnDisk(node: 1);
        await using var cluster = await FaultCluster.StartAsync(prepare: settings.Prepare);
        var router = cluster.StartRouter("--admin", settings.OtherAdmin);
        var shell = ShellOf(cluster).With("ROUTER", router);
        var runbook = new Runbook(shell);
        await KillAsync(cluster, 2, 3);
        await UntilRefusedAsync(router, isRouter: true, settings.OtherAdmin, "kvcluster_router_request_refused_total", entries[0]);
        await UntilRefusedAsync(cluster.DirectEndpoints[0], isRouter: false, settings.Admin, "kvcluster_node_request_refused_total", entries[1]);
        foreach (var entry in entries)
        {
            await runbook.UntilAsync(entry, static told => told is [{ ExitCode: ProblemsFound, Output: var said }, { ExitCode: 0 }]
                && said.Contains("shard 0: only 1 of the nodes of its 3 voters answer, which is not a majority", StringComparison.Ordinal));
        }

        cluster.Node(2).Start();
        cluster.Node(3).Start();
        await UntilHealthyAsync(cluster, shell);
        foreach (var entry in entries)
            await runbook.UntilDoneAsync(entry, block: 1);
        await UntilHealthyAsync(cluster, shell);
        runbook.AssertAllExecuted(entries);
    }

    /// <summary>A disk with little room, from which a replica is moved to a further node.</summary>
    [SmallDiskFact]
    [Trait(Entry, "KvClusterDiskFills")]
    [Trait("Turn", "5")]
    public async Task Disk_ThatFills_IsMeasured_AndAReplicaIsMovedToAnotherNode()
    {
        const string Fills = "KvClusterDiskFills";
        await using var disk = await SmallDisk.CreateAsync(DiskMebibytes, 2 * DiskMebibytes);
        await using var cluster = await FaultCluster.StartAsync(nodes: 4, founders: 3, dataOf: node => node == Troubled ? disk.Data : null);
        var shell = ShellOf(cluster);
        var runbook = new Runbook(shell);
        disk.FillExcept(LittleRoom);
        var answers = await runbook.UntilAsync(Fills, static told => told is [{ ExitCode: ProblemsFound, Output: var said }, { ExitCode: 0 }, { ExitCode: 0 }]
            && said.Contains("free space of node 3: 0.0 of ", StringComparison.Ordinal));
        Assert.Contains("/shards", answers[2].Output, StringComparison.Ordinal);

        cluster.Node(Further).Start();
        await runbook.UntilDoneAsync(Fills, block: 1);
        Assert.DoesNotContain((await cluster.RecordAsync()).Replicas, static replica => replica.Node == Troubled);
        var retired = Path.Combine(disk.Data, "retired");
        await Eventually.TrueAsync(() => !Directory.Exists(retired) || !Directory.EnumerateFileSystemEntries(retired).Any(), "what was moved away is deleted, "
            + "because there is little room");
        disk.Empty();
        await UntilHealthyAsync(cluster, shell);
        runbook.AssertAllExecuted(Fills);
    }

    /// <summary>The certificate of a node expires in two days, and is replaced while the node runs.</summary>
    [ToolFact("bash", "openssl")]
    [Trait(Entry, "KvClusterCertificateExpires")]
    [Trait("Turn", "5")]
    public async Task Certificate_ThatExpires_IsReplacedWithoutARestart()
    {
        const string Expires = "KvClusterCertificateExpires";
        const string Metric = "kvcluster_tls_certificate_expiry_seconds";
        using var folder = new TemporaryDirectory();
        await using var cluster = await LauncherProcess.StartAsync(folder.Path, FreePorts.Ten(), "--processes", "--tls");
        string CertificatesOf(string holder) => Path.Combine(folder.Path, "certs", holder);
        var (admin, own, next) = ($"http://127.0.0.1:{cluster.ConsolePort + Troubled}", CertificatesOf("node-3"), Path.Combine(folder.Path, "next"));
        using var issuer = new CertificateIssuer(CertificatesOf(""));
        var shell = new OperatorShell(new Dictionary<string, string>
        {
            ["KV_ENDPOINT"] = cluster.SecureRouterAddress,
            ["ROUTER"] = cluster.SecureRouterAddress,
            ["KVCLUSTER_TLS_CA"] = Path.Combine(CertificatesOf("client"), "ca.crt"),
            ["KVCLUSTER_TLS_CERT"] = Path.Combine(CertificatesOf("client"), "tls.crt"),
            ["KVCLUSTER_TLS_KEY"] = Path.Combine(CertificatesOf("client"), "tls.key"),
            ["CERTS"] = own,
            ["NEW"] = next,
        });
        var runbook = new Runbook(shell);
        await UntilNoProblemAsync(shell);

        issuer.Issue(own, Troubled, TimeSpan.FromDays(2));
        await Eventually.TrueAsync(
            async () => await Scrape.ValuesAsync(admin, Metric) is [< WeekSeconds], "the certificate is used, and the alert's condition holds");
        await runbook.UntilAsync(Expires, static told => told is [{ ExitCode: ProblemsFound }, { ExitCode: 0 }]
            && Expiry(told[0])?.Contains("tls.crt expires in ", StringComparison.Ordinal) == true);

        issuer.Issue(next, Troubled, TimeSpan.FromDays(90));
        var written = await runbook.RunAsync(Expires, block: 1);
        Assert.All(written, static answer => Assert.True(answer.ExitCode == 0, answer.ToString()));
        await Eventually.TrueAsync(async () => await Scrape.ValuesAsync(admin, Metric) is [> WeekSeconds], "the new certificate is used");
        var seen = await runbook.UntilAsync(Expires, static told => told is [{ ExitCode: 0 or ProblemsFound }, { ExitCode: 0 }] && Expiry(told[0]) is null);
        Assert.Contains("node-3", seen[1].Output, StringComparison.Ordinal);
        await UntilNoProblemAsync(shell);
        runbook.AssertAllExecuted(Expires);

        static string? Expiry(ShellAnswer doctor) =>
            doctor.Output.Split('\n').FirstOrDefault(static line => line.Contains("certificate of node 3: ", StringComparison.Ordinal));
    }

    /// <summary>
    /// One node runs another version, and goes back. Its program differs from the others' in what it says of its version and in nothing else.
    /// </summary>
    [ToolFact("etcd", "etcdctl", "bash")]
    [Trait(Entry, "KvClusterVersionsDiffer")]
    [Trait("Turn", "5")]
    public async Task Node_OfAnotherVersion_IsNamedByDoctor_AndGoesBack()
    {
        const string Differ = "KvClusterVersionsDiffer";
        using var other = new OtherVersion();
        using var settings = new SettingsOnDisk(Troubled);
        await using var cluster = await FaultCluster.StartAsync(prepare: process =>
        {
            settings.Prepare(process);
            process.Executable = process.Node == Troubled ? other.Program : NodeProcess.Program;
        });
        var (shell, node) = (settings.On(ShellOf(cluster)), cluster.Node(Troubled));
        var runbook = new Runbook(shell);
        await Eventually.TrueAsync(
            async () => (await Scrape.ValuesAsync(settings.Admin, "kvcluster_node_info", $"kvcluster_version=\"{other.Version}\"")).Count == 1,
            "the metric names the other version");
        // Disks and processors of this machine are not judged.
        await runbook.UntilAsync(Differ, told => told is [{ ExitCode: 0 or ProblemsFound, Output: var said }]
            && said.Contains($"{other.Version}: node 3", StringComparison.Ordinal));

        await runbook.UntilDoneAsync(Differ, block: 1);
        Assert.Equal(0, await node.StopAsync());
        node.Executable = NodeProcess.Program;
        node.Start();
        await runbook.UntilAsync(
            Differ, static told => told is [{ ExitCode: 0 }, { ExitCode: 0 or ProblemsFound, Output: var said }]
                && said.Contains("versions: all nodes run ", StringComparison.Ordinal), block: 2);
        await UntilHealthyAsync(cluster, shell);
        runbook.AssertAllExecuted(Differ);
    }

    private static OperatorShell ShellOf(FaultCluster cluster) => new(cluster.DirectEndpoints[0], cluster, Troubled);

    // Status and doctor, which have to answer in whatever state the cluster is.
    private static Task UntilSeenAsync(Runbook runbook, string entry, params string[] findings) =>
        runbook.UntilAsync(entry, told => told is [{ ExitCode: 0 }, { ExitCode: ProblemsFound, Output: var said }]
            && findings.All(finding => said.Contains(finding, StringComparison.Ordinal)));

    // On a busy machine a node may not answer a command in time, which it then says.
    private static async Task UntilAnsweredAsync(OperatorShell shell, string line, Func<ShellAnswer, bool> isExpected)
    {
        ShellAnswer? answer = null;
        await Eventually.TrueAsync(async () => isExpected(answer = await shell.RunAsync(line)), () => $"the answer is as expected: {answer}");
    }

    private static Task QuarantineAsync(FaultCluster cluster) => FaultCluster.AnsweredAsync(
        () => cluster.AdminOf(Troubled).QuarantineAsync(new QuarantineRequest { Node = Troubled, Shard = 0, Reason = "a test" }));

    private static async Task KillAsync(FaultCluster cluster, params int[] nodes)
    {
        foreach (var node in nodes)
            await cluster.Node(node).KillAsync();
    }

    // Equal replicas, and no problem of a node or a shard. Disks, clocks and processors of the machine that tests run on are not judged.
    private static async Task UntilHealthyAsync(FaultCluster cluster, OperatorShell shell)
    {
        await cluster.UntilEqualAsync();
        await UntilNoProblemAsync(shell);
    }

    private static async Task UntilNoProblemAsync(OperatorShell shell)
    {
        var said = default(ShellAnswer);
        await Eventually.TrueAsync(
            async () =>
            {
                said = await shell.RunAsync("kv doctor --output json");
                if (said.ExitCode is not (0 or ProblemsFound))
                    return false;
                using var document = JsonDocument.Parse(said.Output);
                return !document.RootElement.GetProperty("findings").EnumerateArray().Any(
                    static finding => finding.GetProperty("severity").GetString() == "problem"
                        && finding.GetProperty("subject").GetString() is { } subject
                        && (subject.StartsWith("node ", StringComparison.Ordinal)
                            || subject.StartsWith("shard", StringComparison.Ordinal) || subject == "coordinator"));
            },
            () => $"doctor finds no problem of nodes and shards: {said}");
    }

    // Calls until one is refused in a way that an alert counts.
    private static async Task UntilRefusedAsync(string endpoint, bool isRouter, string admin, string metric, string alert)
    {
        string[] labels = [.. TelemetryFiles.ReasonsOf(alert).Select(static reason => $"error_type=\"{reason}\"")];
        await using var client = new KvClient(new KvClientOptions { Endpoints = [endpoint], Gateway = isRouter, Timeout = TimeSpan.FromSeconds(3) });
        await Eventually.TrueAsync(
            async () =>
            {
                if ((await Scrape.ValuesAsync(admin, metric, labels)).Any(static count => count > 0))
                    return true;
                await Assert.ThrowsAnyAsync<KvException>(async () => await client.PutAsync("refused", "value"));
                return false;
            },
            $"{metric} counts a call that was refused");
    }

    private static async Task AssertHasNoneAsync(FaultCluster cluster, int node)
    {
        for (var shard = 0u; shard < Shards; shard++)
            Assert.DoesNotContain((await cluster.RecordAsync(shard)).Replicas, replica => replica.Node == node);
    }

    // The id of the replica of shard 0 on the node in trouble, if it votes; otherwise 0.
    private static async Task<ulong> ReplicaAsync(FaultCluster cluster) =>
        (await cluster.RecordAsync()).Replicas.FirstOrDefault(static replica => replica.Node == Troubled && !replica.Learner)?.Replica ?? 0;
}
