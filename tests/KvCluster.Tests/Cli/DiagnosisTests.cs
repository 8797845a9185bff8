using KvCluster.Client;
using KvCluster.Client.Doctor;

namespace KvCluster.Tests.Cli;

/// <summary>What <c>kv doctor</c> concludes from the answers of nodes.</summary>
public sealed class DiagnosisTests
{
    private static readonly DateTimeOffset Now = new(2026, 11, 21, 12, 0, 0, TimeSpan.Zero);

    [Fact]
    public void Findings_OfASoundCluster_AreAllOk()
    {
        var findings = Diagnose([Sound(1), Sound(2), Sound(3)], Leader(1));
        Assert.All(findings, finding => Assert.Equal((Severity.Ok, ""), (finding.Severity, finding.Advice)));
        foreach (var subject in (string[])["node 1", "shards",
            "versions", "clocks", "disk of node 2", "free space of node 2", "coordinator", "open files of node 3", "stalls of node 3", "certificate of node 3"])
            Assert.Contains(findings, finding => finding.Subject == subject);
    }

    [Fact]
    public void Findings_WithoutTlsAndLimits_RequireNeither()
    {
        var findings = Diagnose([Sound(1) with { CertificateEnd = null, CertificateFile = "", OpenFiles = 0, OpenFilesMax = 0 }], Leader(1));
        Assert.All(findings, finding => Assert.Equal(Severity.Ok, finding.Severity));
        Assert.DoesNotContain(findings, finding => finding.Subject.StartsWith("certificate", StringComparison.Ordinal));
    }

    public static TheoryData<string, NodeExamination, string, string> Troubles() => new()
    {
        { "problem", Sound(2) with { Error = "connection refused" }, "node 2", "does not answer at http://n2: connection refused" },
        { "warning", Sound(2) with { Version = "0.2.0" }, "versions", "0.1.0: node 1, 3; 0.2.0: node 2" },
        { "warning", Sound(2) with { Clock = Now.AddSeconds(2) }, "clocks", "node 1 and node 2 are 2,000.0 ms apart" },
        { "warning", Sound(2) with { Clock = Now.AddSeconds(-2) }, "clocks", "node 2 and this machine are 1,950.0 ms apart" },
        { "problem", Sound(2) with { Clock = Now.AddMinutes(-1) }, "clocks", "node 2 and node 1 are 60,000.0 ms apart" },
        {
            "warning", Sound(2) with { SyncMedian = TimeSpan.FromMilliseconds(30) }, "disk of node 2",
            "writing and syncing 4 KiB takes 30.0 ms (median), 5.0 ms (longest)"
        },
        {
            "problem", Sound(2) with { SyncMedian = TimeSpan.FromSeconds(1) }, "disk of node 2",
            "writing and syncing 4 KiB takes 1,000.0 ms (median), 5.0 ms (longest)"
        },
        { "problem", Sound(2) with { DiskError = "No space left on device" }, "disk of node 2", "could not be measured: No space left on device" },
        { "warning", Sound(2) with { DiskFreeBytes = 9_000_000_000 }, "free space of node 2", "9.0 of 100.0 GB are free; data files of 0.0 GB take 0.0 GB" },
        { "problem", Sound(2) with { DiskFreeBytes = 500_000_000 }, "free space of node 2", "0.5 of 100.0 GB are free; data files of 0.0 GB take 0.0 GB" },
        {
            "warning", Sound(2) with { Aside = [new AsideReplica("4", 4, 303_000_000, "")] }, "aside of node 2",
            "the copy '4' of a replica of shard 4 takes 303 MB"
        },
        {
            "warning", Sound(2) with { Aside = [new AsideReplica("4", 4, 303_000_000, "its control file is lost")] }, "aside of node 2",
            "the copy '4' of a replica of shard 4 takes 303 MB, and is kept although space is needed, because its control file is lost"
        },
        { "warning", Sound(2) with { CoordinatorTime = TimeSpan.FromMilliseconds(300) }, "coordinator", "answers node 2 within 300.0 ms" },
        { "problem", Sound(2) with { CoordinatorError = "refused" }, "coordinator", "does not answer node 2: refused" },
        { "problem", Sound(2) with { CoordinatorRefusal = "its data is lost" }, "coordinator", "is not followed by node 2: its data is lost" },
        { "warning", Sound(2) with { OpenFilesMax = 1_024 }, "open files of node 2", "100 of 1024" },
        { "problem", Sound(2) with { OpenFiles = 900, OpenFilesMax = 1_024 }, "open files of node 2", "900 of 1024" },
        { "warning", Stalled(300), "stalls of node 2", "7 since it started, the last one 5 minutes ago: no processor" },
        { "problem", Stalled(1_100), "stalls of node 2", "7 since it started, the last one 5 minutes ago: no processor" },
        { "warning", Sound(2) with { CertificateEnd = Now.AddDays(20) }, "certificate of node 2", "/tls/tls.crt expires in 20.0 days, 2026-12-11 12:00:00Z" },
        { "problem", Sound(2) with { CertificateEnd = Now.AddDays(1) }, "certificate of node 2", "/tls/tls.crt expires in 1.0 days, 2026-11-22 12:00:00Z" },
        { "problem", Sound(2) with { CertificateEnd = Now.AddDays(-1) }, "certificate of node 2", "/tls/tls.crt has expired, 2026-11-20 12:00:00Z" },
        { "problem", Sound(2) with { CertificateError = "/tls/tls.key does not match" }, "certificate of node 2", "the certificates now in its files cannot be "
            + "used, so the earlier ones stay in use: /tls/tls.key does not match" },
    };

    /// <summary>The advice was a command that only says what is in the copy.</summary>
    [Fact]
    public void Findings_OfACopyThatWasSetAside_NameTheCommandThatDeletesIt()
    {
        var findings = Diagnose([Sound(1), Sound(2) with { Aside = [new AsideReplica("4", 4, 303_000_000, "")] }, Sound(3)], Leader(1));

        Assert.Contains(
            "`kv-node aside remove DATA 4 --accept-loss`", Assert.Single(findings, static finding => finding.Subject == "aside of node 2").Advice,
            StringComparison.Ordinal);
    }

    /// <summary>The advice was to enlarge the volume, which the chart refused.</summary>
    [Theory]
    [InlineData(9_000_000_000UL)]
    [InlineData(500_000_000UL)]
    public void Findings_OfADiskWithLittleSpace_NameTheWayToALargerVolume(ulong freeBytes)
    {
        var findings = Diagnose([Sound(1), Sound(2) with { DiskFreeBytes = freeBytes }, Sound(3)], Leader(1));

        Assert.Contains(
            "deploy/kubernetes/grow-storage", Assert.Single(findings, finding => finding.Subject == "free space of node 2").Advice, StringComparison.Ordinal);
    }

    /// <summary>The advice was to check the network and the password.</summary>
    [Fact]
    public void Findings_OfACoordinatorThatIsNotFollowed_NameTheRecovery()
    {
        var findings = Diagnose([Sound(1), Sound(2) with { CoordinatorRefusal = "its data is lost" }, Sound(3)], Leader(1));

        Assert.Contains(
            "kv admin coordinator recover --plan", Assert.Single(findings, static finding => finding.Severity == Severity.Problem).Advice,
            StringComparison.Ordinal);
    }

    /// <summary>
    /// Doctor took such a node for one of an older version, and advised to start it with an empty directory, with which it would have created a second cluster.
    /// </summary>
    [Fact]
    public void Findings_OfANodeThatWaitsForItsCoordinator_NameTheRecoveryAndNoEmptyDirectory()
    {
        var waiting = Sound(2) with { Error = WaitingNode.Text(new NodeId(2), "local", "kvcluster.admin.v1.Admin/Examine") };
        var findings = Diagnose([Sound(1), waiting, Sound(3) with { Error = "connection refused" }], Leader(1));

        var found = Assert.Single(findings, static finding => finding.Subject == "node 2");
        Assert.StartsWith("has started and waits for its coordinator's records", found.Text, StringComparison.Ordinal);
        AssertRecoveryIsAdvised(found);
        AssertRecoveryIsAdvised(Assert.Single(findings, static finding => finding.Subject == "node 3"));
    }

    /// <summary>A node that was lost while the coordinator's records were is not to be started empty either.</summary>
    [Fact]
    public void Findings_OfASilentNodeWhileTheCoordinatorIsNotFollowed_NameTheRecovery()
    {
        var findings = Diagnose([Sound(1) with { CoordinatorRefusal = "its data is lost" }, Sound(2) with { Error = "connection refused" }], Leader(1));

        AssertRecoveryIsAdvised(Assert.Single(findings, static finding => finding.Subject == "node 2"));
    }

    [Theory]
    [MemberData(nameof(Troubles))]
    public void Findings_OfANodeWithAProblem_ReportItAndWhatToDo(string severity, NodeExamination node, string subject, string text)
    {
        var finding = Assert.Single(Diagnose([Sound(1), node, Sound(3)], Leader(1)), finding => finding.Text == text);
        Assert.Equal((severity, subject), (finding.Severity.ToString().ToLowerInvariant(), finding.Subject));
        Assert.NotEmpty(finding.Advice);
    }

    [Fact]
    public void Findings_OfANodeThatStalledHoursAgo_AreOk() =>
        Assert.All(Diagnose([Stalled(1_100) with { StallEnd = Now.AddHours(-2) }], Leader(2)), finding => Assert.Equal(Severity.Ok, finding.Severity));

    [Theory]
    [InlineData(400, false)]
    [InlineData(600, true)]
    public void Findings_OfMemory_WarnWhenWritersAreSlowed(uint mebibytes, bool warns)
    {
        var node = Sound(1) with { Memory = new NodeMemory(
            1_000 << 20, (ulong)(mebibytes - 61) << 20, 4 << 20, 7 << 20, 28 << 20, 2 << 20, 20 << 20, TimeSpan.FromSeconds(12)) };
        var finding = Diagnose([node], Leader(1)).Single(finding => finding.Subject == "memory of node 1");
        Assert.Equal(warns ? Severity.Warning : Severity.Ok, finding.Severity);
        Assert.Equal($"stores use {mebibytes} of 1,000 MiB: changed pages {mebibytes - 61}, pages held by readers 4, free pages 7, journal 28, journal index "
            + "2, waiting requests 20; held back for 12 s since it started", finding.Text);
    }

    // What readers hold slows no writer.
    [Fact]
    public void Findings_OfMemoryThatReadersHold_AreOk()
    {
        var node = Sound(1) with { Memory = new NodeMemory(1_000 << 20, 400 << 20, 180 << 20, 7 << 20, 28 << 20, 2 << 20, 20 << 20, TimeSpan.Zero) };
        Assert.Equal(Severity.Ok, Diagnose([node], Leader(1)).Single(finding => finding.Subject == "memory of node 1").Severity);
    }

    [Fact]
    public void Findings_OfAShardWithAProblem_ReportItAndWhatToDo()
    {
        var findings = Diagnose([Sound(1), Sound(2)], Leader(1), Replica(2, "follower"), Replica(3, "failed", "damaged") with { Shard = 4 });
        Assert.Contains(findings, finding => finding
            is { Severity: Severity.Problem, Subject: "shard 4", Text: "has no leader, so it serves no linearizable reads and no writes", Advice.Length: > 0 });
        Assert.Contains(
            findings,
            finding => finding is { Severity: Severity.Problem, Subject: "shard 4", Text: "the replica on node 3 has failed: damaged", Advice.Length: > 0 });
        Assert.DoesNotContain(findings, finding => finding.Subject is "shards" or "shard 0");
    }

    /// <summary>A leader whose followers were all dead still called itself one, and doctor said that its shard was sound.</summary>
    [Theory]
    [InlineData(2, false)]
    [InlineData(1, true)]
    public void Findings_OfAShardWhoseVotersAreSilent_ReportThatItHasNoMajority(int answer, bool isProblem)
    {
        uint[] voters = [1, 2, 3];
        var status = new ClusterStatus("local", [.. voters.Select(node => new NodeStatus(
            node, "", "", node <= answer ? "" : "silent", node <= answer ? [Replica(1, node == 1 ? "leader" : "follower") with { Voters = voters }] : []))]);
        var findings = new Diagnosis(status, [Sound(1)], Now.AddMilliseconds(-50), Now).Findings();
        Assert.Equal(isProblem, findings.Any(static finding => finding is { Severity: Severity.Problem, Subject: "shard 0", Advice.Length: > 0 }
            && finding.Text.StartsWith("only 1 of the nodes of its 3 voters answer, which is not a majority", StringComparison.Ordinal)));
        Assert.Equal(!isProblem, findings.Any(static finding => finding.Subject == "shards"));
    }

    /// <summary>Doctor said <c>kv admin replace</c>, which refuses in a cluster without a further node.</summary>
    [Theory]
    [InlineData(3u, "add a node and run `kv admin replace-node 2 NEW`")]
    [InlineData(4u, "move its replicas to the other nodes: `kv admin replace-node 2`")]
    public void Findings_OfASilentNode_NameTheCommandThatThisClusterCanExecute(uint nodes, string expected)
    {
        var examined = Enumerable.Range(1, (int)nodes).Select(node => Sound((uint)node) with { Error = node == 2 ? "connection refused" : "" });
        var finding = Diagnose([.. examined], Leader(1) with { Voters = [1, 2, 3] }).Single(static finding => finding.Subject == "node 2");
        Assert.Contains("start it with an empty data directory under the same number", finding.Advice, StringComparison.Ordinal);
        Assert.EndsWith(expected + ".", finding.Advice, StringComparison.Ordinal);
    }

    /// <summary>In the middle of an upgrade each shard that a node of the other version led was said to have no leader.</summary>
    [Fact]
    public void Findings_OfAShardWithARoleThatIsNotKnown_DoNotSayThatItHasNoLeader()
    {
        var finding = Assert.Single(Diagnose([Sound(1), Sound(2)], Replica(1, "unknown"), Replica(2, "follower")), finding => finding.Severity != Severity.Ok);
        Assert.Equal(
            (Severity.Warning, "shard 0", "the version of node 1 tells no role that this kv knows, so its leader may not be known here"),
            (finding.Severity, finding.Subject, finding.Text));
        Assert.NotEmpty(finding.Advice);
    }

    /// <summary>Only nodes were looked at, and a router whose certificate expired served nobody.</summary>
    [Theory]
    [InlineData(90, "", "ok", "what it presents expires in 90.0 days, 2027-02-19 12:00:00Z")]
    [InlineData(20, "", "warning", "what it presents expires in 20.0 days, 2026-12-11 12:00:00Z")]
    [InlineData(-1, "", "problem", "what it presents has expired, 2026-11-20 12:00:00Z")]
    [InlineData(null, "Connection refused", "problem", "could not be read: Connection refused")]
    public void Findings_OfARoutersCertificate_AreThoseOfItsEnd(int? days, string error, string severity, string text)
    {
        var presented = new PresentedCertificate("https://router:7400", days is { } left ? Now.AddDays(left) : null, error);
        var findings = new Diagnosis(new ClusterStatus("local", []), [], Now, Now) { Presented = [presented] }.Findings();
        var finding = Assert.Single(findings, finding => finding.Subject == "certificate of https://router:7400");
        Assert.Equal((severity, text, severity != "ok"), (finding.Severity.ToString().ToLowerInvariant(), finding.Text, finding.Advice.Length > 0));
    }

    /// <summary>Nothing but one line of level info said so before the next failure left the shard without a leader.</summary>
    [Theory]
    [InlineData("learner", "")]
    [InlineData("failed", "the disk is full")]
    public void Findings_OfAReplicaThatCannotBeRebuilt_NameTheSpaceThatIsLacking(string role, string failure)
    {
        var findings = Diagnose([Sound(1), Sound(2)], Leader(1), Replica(2, role, failure) with { LacksSpace = "it needs 300 bytes" });
        var finding = Assert.Single(findings, static finding => finding.Subject == "shard 0");
        Assert.Equal(
            (Severity.Problem, "the replica on node 2 cannot be rebuilt, because its disk lacks space: it needs 300 bytes"), (finding.Severity, finding.Text));
        Assert.NotEmpty(finding.Advice);
    }

    private static void AssertRecoveryIsAdvised(Finding finding)
    {
        Assert.Equal(Severity.Problem, finding.Severity);
        Assert.Contains("`kv admin coordinator recover --plan`", finding.Advice, StringComparison.Ordinal);
        Assert.Contains("Start no node with an empty data directory before", finding.Advice, StringComparison.Ordinal);
        Assert.DoesNotContain("If its disk is lost", finding.Advice, StringComparison.Ordinal);
    }

    private static IReadOnlyList<Finding> Diagnose(NodeExamination[] nodes, params ReplicaStatus[] replicas) => new Diagnosis(
        new ClusterStatus("local", [.. replicas.Select((replica, index) => new NodeStatus((uint)index + 1, "", "", "", [replica]))]),
        nodes, Now.AddMilliseconds(-50), Now).Findings();

    private static ReplicaStatus Leader(uint node) => Replica(node, "leader");

    private static ReplicaStatus Replica(uint node, string role, string failure = "") =>
        new(0, default, default, role, 1, node, default, default, default, default, 0, 0, 0, 0, default, default, failure, null);

    private static NodeExamination Stalled(int milliseconds) =>
        Sound(2) with { Stalls = 7, StallLength = TimeSpan.FromMilliseconds(milliseconds), StallEnd = Now.AddMinutes(-5), StallText = "no processor" };

    private static NodeExamination Sound(uint node) => new(node, $"http://n{node}", "0.1.0", "")
    {
        Clock = Now,
        SyncMedian = TimeSpan.FromMilliseconds(2),
        SyncLongest = TimeSpan.FromMilliseconds(5),
        DiskFreeBytes = 50_000_000_000,
        DiskBytes = 100_000_000_000,
        OpenFiles = 100,
        OpenFilesMax = 65_536,
        CoordinatorTime = TimeSpan.FromMilliseconds(3),
        CertificateEnd = Now.AddDays(90),
        CertificateFile = "/tls/tls.crt",
    };
}
