using System.Globalization;
using System.Text.Json;
using KvCluster.Admin.V1;
using KvCluster.Client;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.Faults;

/// <summary>
/// The commands of the runbook's entries, as they stand there, on clusters that are broken in that way. Each test names its entries by the trait Runbook and ends with a
/// healthy cluster.
/// </summary>
[Trait("Turn", "3")]
public sealed class RunbookTests
{
    private const string Entry = "Runbook";
    private const string FourShards = "h,p,w";
    private const int Shards = 4;
    private const int ProblemsFound = 7;
    private const int Unavailable = 3;
    private const int Damaged = 65;
    private const int DiskMebibytes = 64;

    // The node in trouble and the further one, as in the runbook.
    private const int Troubled = 3;
    private const int Further = 4;

    /// <summary>Its process ends, then it loses its disk, then it does not come back and another node takes its place, and in the end it is emptied.</summary>
    [ToolFact("etcd", "etcdctl", "bash")]
    [Trait(Entry, "KvClusterNodeUnreachable")]
    public async Task Node_ThatIsUnreachable_IsStartedRebuiltReplacedAndEmptied()
    {
        const string Unreachable = "KvClusterNodeUnreachable";
        await using var cluster = await FaultCluster.StartAsync(nodes: 4, splitAt: FourShards, founders: 3);
        var (shell, node) = (ShellOf(cluster), cluster.Node(Troubled));
        var runbook = new Runbook(shell);

        await node.KillAsync();
        var seen = await LookAsync(runbook, Unreachable);
        Assert.Contains("node 3: does not answer", seen, StringComparison.Ordinal);
        Assert.Contains("add a node and run `kv admin replace-node 3 NEW`", seen, StringComparison.Ordinal);
        // Without a further node nothing is changed, and the answer is what the runbook says.
        var refused = await shell.RunAsync("kv admin replace-node 3");
        Assert.True(refused.ExitCode == Unavailable, refused.ToString());
        Assert.Contains("start node 3 with an empty data directory", refused.Error, StringComparison.Ordinal);
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
        Assert.Contains("move its replicas to the other nodes: `kv admin replace-node 3`", await LookAsync(runbook, Unreachable), StringComparison.Ordinal);
        await runbook.UntilDoneAsync(Unreachable, block: 1);
        await AssertHasNoneAsync(cluster, Troubled);
        // What was done is found done.
        var again = await shell.RunAsync("kv admin replace-node 3 4");
        Assert.Equal((0, "node 3 has no replicas\n"), (again.ExitCode, again.Output));
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
    public async Task Shards_WithoutALeader_AndAClusterThatIsGone_ComeBack()
    {
        await using var cluster = await FaultCluster.StartAsync();
        var shell = ShellOf(cluster);
        var runbook = new Runbook(shell);
        await KillAsync(cluster, 2, 3);
        var answers = await runbook.RunAsync("KvClusterNoLeader");
        Assert.True(answers is [{ ExitCode: 0 }, { ExitCode: ProblemsFound }, { ExitCode: 0 }], string.Join("; ", answers));
        Assert.Contains("shard 0: only 1 of the nodes of its 3 voters answer, which is not a majority", answers[1].Output, StringComparison.Ordinal);
        Assert.Contains("node 3: does not answer", answers[1].Output, StringComparison.Ordinal);

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
    public async Task Replica_ThatStopped_IsRebuilt_AndItsOldCopyIsExaminedAndRemoved()
    {
        await using var cluster = await FaultCluster.StartAsync();
        var shell = ShellOf(cluster);
        var runbook = new Runbook(shell);
        var before = await ReplicaAsync(cluster);
        await cluster.AdminOf(Troubled).QuarantineAsync(new QuarantineRequest { Node = Troubled, Shard = 0, Reason = "a test" });
        await runbook.UntilDoneAsync("KvClusterAlarm");
        await runbook.UntilDoneAsync("KvClusterReplicaFailed");
        await Eventually.TrueAsync(async () => await ReplicaAsync(cluster) is var now && now != before && now != 0, "the replica is rebuilt");
        await UntilHealthyAsync(cluster, shell);

        var rebuilt = await ReplicaAsync(cluster);
        await runbook.UntilDoneAsync("KvClusterReplicaFailed", block: 1);
        Assert.NotEqual(rebuilt, await ReplicaAsync(cluster));
        await UntilHealthyAsync(cluster, shell);

        var aside = Path.Combine(cluster.Node(Troubled).Data, "aside", "0");
        await Eventually.TrueAsync(() => Directory.Exists(aside), "what was replaced is set aside");
        var answers = await runbook.RunAsync("KvClusterReplicaSetAside");
        // The mark of a quarantined replica counts as damage, and the copy that was replaced last has none.
        Assert.True(answers is [{ ExitCode: 0 }, { ExitCode: 0 }, { ExitCode: 0 or Damaged }, { ExitCode: 0 }], string.Join("; ", answers));
        Assert.Contains(" of shard 0 is ", answers[2].Output, StringComparison.Ordinal);
        Assert.False(Directory.Exists(aside) || Directory.Exists(cluster.Node(Troubled).Data + ".aside-0"));
        await UntilHealthyAsync(cluster, shell);
        runbook.AssertAllExecuted("KvClusterReplicaFailed", "KvClusterAlarm", "KvClusterReplicaSetAside");
    }

    [ToolFact("etcd", "etcdctl", "bash")]
    [Trait(Entry, "KvClusterCoordinatorUnreachable")]
    public async Task Coordinator_ThatIsGone_IsNamedByDoctor()
    {
        await using var cluster = await FaultCluster.StartAsync();
        var shell = ShellOf(cluster);
        var runbook = new Runbook(shell);
        await cluster.Etcd.KillAsync(0);
        var answers = await runbook.RunAsync("KvClusterCoordinatorUnreachable");
        Assert.Equal(ProblemsFound, answers[0].ExitCode);
        Assert.Contains("coordinator: does not answer node", answers[0].Output, StringComparison.Ordinal);
        Assert.NotEqual(0, answers[1].ExitCode);
        cluster.Etcd.Start(0);
        await Eventually.TrueAsync(
            async () => (answers = await runbook.RunAsync("KvClusterCoordinatorUnreachable"))[1].ExitCode == 0 && !answers[0].Output.Contains("coordinator: does not answer", StringComparison.Ordinal),
            () => $"etcd answers again: {string.Join("; ", answers)}");
        // An election needs it.
        await cluster.TransferAsync();
        await UntilHealthyAsync(cluster, shell);
        runbook.AssertAllExecuted("KvClusterCoordinatorUnreachable");
    }

    /// <summary>A node that stands still lags; a slow network makes writes slow; transfers are leaders that move.</summary>
    [ToolFact("etcd", "etcdctl", "bash")]
    [Trait(Entry, "KvClusterFollowerLags")]
    [Trait(Entry, "KvClusterWritesSlow")]
    [Trait(Entry, "KvClusterLeadersMove")]
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
        var answers = await runbook.RunAsync("KvClusterFollowerLags");
        Assert.All(answers, static answer => Assert.True(answer.ExitCode == 0, answer.ToString()));
        cluster.Network.Heal();
        await UntilHealthyAsync(cluster, shell);

        foreach (var (one, other) in new[] { (1, 2), (1, 3), (2, 3) })
            cluster.Network.Delay(one, other, TimeSpan.FromMilliseconds(50));
        await client.PutAsync("slow", "value");
        Assert.True(Assert.Single(await runbook.RunAsync("KvClusterWritesSlow")).ExitCode is 0 or ProblemsFound);
        cluster.Network.Heal();
        await UntilHealthyAsync(cluster, shell);

        await cluster.TransferAsync();
        answers = await runbook.RunAsync("KvClusterLeadersMove");
        Assert.True(answers[0].ExitCode == 0, answers[0].ToString());
        Assert.True(answers[1].ExitCode is 0 or ProblemsFound, answers[1].ToString());
        await UntilHealthyAsync(cluster, shell);
        runbook.AssertAllExecuted("KvClusterFollowerLags", "KvClusterWritesSlow", "KvClusterLeadersMove");
    }

    [SmallDiskFact]
    [Trait(Entry, "KvClusterDiskImpaired")]
    public async Task Disk_ThatIsFull_IsNamedByDoctor_AndWorksAgainWithRoom()
    {
        await using var disk = await SmallDisk.CreateAsync(DiskMebibytes, 2 * DiskMebibytes);
        await using var cluster = await FaultCluster.StartAsync(dataOf: node => node == Troubled ? disk.Data : null);
        var shell = ShellOf(cluster);
        var runbook = new Runbook(shell);
        disk.Fill();
        var answer = Assert.Single(await runbook.RunAsync("KvClusterDiskImpaired"));
        Assert.Equal(ProblemsFound, answer.ExitCode);
        Assert.Contains("free space of node 3: 0.0 of ", answer.Output, StringComparison.Ordinal);
        disk.Empty();
        await UntilHealthyAsync(cluster, shell);
        runbook.AssertAllExecuted("KvClusterDiskImpaired");
    }

    [Fact]
    public void Entries_WithCommands_EachHaveATest()
    {
        var tested = typeof(RunbookTests).GetMethods().SelectMany(static method => method.GetCustomAttributesData()).Where(static attribute => attribute.AttributeType == typeof(TraitAttribute))
            .Select(static attribute => attribute.ConstructorArguments).Where(static trait => (string)trait[0].Value! == Entry).Select(static trait => (string)trait[1].Value!);
        Assert.Equal(Runbook.Entries.Keys.Order(), tested.Order());
    }

    private static OperatorShell ShellOf(FaultCluster cluster) => new(cluster.DirectEndpoints[0], cluster, Troubled);

    // Status and doctor, which have to answer in whatever state the cluster is. On a busy machine a connection may take longer than they wait for it.
    private static async Task<string> LookAsync(Runbook runbook, string entry)
    {
        IReadOnlyList<ShellAnswer> answers = [];
        await Eventually.TrueAsync(
            async () => (answers = await runbook.RunAsync(entry)) is [{ ExitCode: 0 }, { ExitCode: ProblemsFound }], () => $"status and doctor answer: {string.Join("; ", answers)}");
        return answers[1].Output;
    }

    private static async Task KillAsync(FaultCluster cluster, params int[] nodes)
    {
        foreach (var node in nodes)
            await cluster.Node(node).KillAsync();
    }

    // Equal replicas, and no problem of a node or a shard. Disks, clocks and processors of the machine that tests run on are not judged.
    private static async Task UntilHealthyAsync(FaultCluster cluster, OperatorShell shell)
    {
        await cluster.UntilEqualAsync();
        var said = default(ShellAnswer);
        await Eventually.TrueAsync(
            async () =>
            {
                said = await shell.RunAsync("kv doctor --output json");
                if (said.ExitCode is not (0 or ProblemsFound))
                    return false;
                using var document = JsonDocument.Parse(said.Output);
                return !document.RootElement.GetProperty("findings").EnumerateArray().Any(static finding => finding.GetProperty("severity").GetString() == "problem"
                    && finding.GetProperty("subject").GetString() is { } subject
                    && (subject.StartsWith("node ", StringComparison.Ordinal) || subject.StartsWith("shard", StringComparison.Ordinal) || subject == "coordinator"));
            },
            () => $"doctor finds no problem of nodes and shards: {said}");
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
