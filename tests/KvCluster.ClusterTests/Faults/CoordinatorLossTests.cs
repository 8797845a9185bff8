using System.Diagnostics;
using System.Globalization;
using KvCluster.Client;
using KvCluster.ClusterTests.History;
using KvCluster.Processes;
using Xunit.Abstractions;

namespace KvCluster.ClusterTests.Faults;

/// <summary>F53: etcd's data is gone, and `kv admin coordinator recover` rebuilds the records from the nodes, under five client processes whose histories must be linearizable.</summary>
[Trait("Turn", "3")]
public sealed class CoordinatorLossTests(ITestOutputHelper printed)
{
    private const int Some = 100;
    private const int Refused = 3;

    /// <summary>Without the records the cluster was lost for good, although every key had three copies.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F53_EtcdWipedUnderLoad_LeadersGoOnAndOneCommandRebuildsTheRecords()
    {
        await using var cluster = await FaultCluster.StartAsync();
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        var before = await cluster.RecordAsync();
        await WipeAsync(cluster);
        foreach (var node in cluster.Nodes)
            await cluster.UntilSaidAsync(node.Node, "ALARM");
        await cluster.UntilMoreChangesOrLeaderlessAsync(histories, Some);

        var (exitCode, plan, error) = await RecoverAsync(cluster.DirectEndpoints[0], "--plan");
        Assert.True(exitCode == 0, error);
        Assert.Contains("voters on 1, 2, 3", plan, StringComparison.Ordinal);
        Assert.Equal("", await cluster.Etcd.ControlAsync("get", "--prefix", "--keys-only", "/kvcluster/"));
        (exitCode, _, error) = await RecoverAsync(cluster.DirectEndpoints[0]);
        Assert.True(exitCode == 0, error);

        await histories.MoreChangesAsync(Some);
        var after = await cluster.RecordAsync();
        Assert.Equal((before.Lineage, 1UL), (after.Lineage, after.Recovery));
        Assert.Equal(before.Replicas.Select(static replica => replica.Replica), after.Replicas.Select(static replica => replica.Replica));
        await FailOverAsync(cluster, histories);
        Assert.True(await cluster.EpochAsync() > after.EpochFloor, "the next epoch is above every promise");
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
    }

    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F53_EtcdWipedWithANodeDown_RecoversWithoutItAndRebuildsItWhenItReturns()
    {
        await using var cluster = await FaultCluster.StartAsync();
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        var down = await cluster.FollowerAsync();
        await cluster.Node(down).KillAsync();
        await WipeAsync(cluster);
        await cluster.UntilMoreChangesOrLeaderlessAsync(histories, Some);

        var asked = cluster.DirectEndpoints[down % 3];
        var (exitCode, _, error) = await RecoverAsync(asked);
        Assert.Equal(Refused, exitCode);
        Assert.Contains($"--without {down}", error, StringComparison.Ordinal);
        Assert.Equal("", await cluster.Etcd.ControlAsync("get", "--prefix", "--keys-only", "/kvcluster/"));
        (exitCode, _, error) = await RecoverAsync(asked, "--without", $"{down}");
        Assert.True(exitCode == 0, error);

        await histories.MoreChangesAsync(Some);
        // Nobody knows what its replicas have promised and acknowledged, so they do not count any more.
        cluster.Node(down).Start();
        await cluster.UntilSaidAsync(down, "the coordinator's records were rebuilt without this node");
        await histories.MoreChangesAsync(Some);
        await cluster.UntilEqualAsync();
        Assert.NotEmpty((await cluster.RecordAsync()).Removed);
        await histories.CheckAsync();
    }

    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F53_EtcdWipedAndAllNodesRestarted_RecoversFromWhatIsOnTheirDisks()
    {
        await using var cluster = await FaultCluster.StartAsync();
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        await WipeAsync(cluster);
        var since = cluster.LogLengths();
        foreach (var node in cluster.Nodes)
            await node.KillAsync();
        foreach (var node in cluster.Nodes)
            node.Start();
        foreach (var node in cluster.Nodes)
            await cluster.UntilSaidAsync(node.Node, "kv admin coordinator recover", since[node.Node]);

        var (exitCode, output, error) = await RecoverAsync(cluster.PeerEndpoints[1]);
        Assert.True(exitCode == 0, error);
        Assert.Contains("no leader runs", output, StringComparison.Ordinal);
        await histories.MoreChangesAsync(Some);
        await FailOverAsync(cluster, histories);
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
    }

    /// <summary>The lost etcd comes back after the recovery: nobody follows it, whatever its revision. Its records can be raised in turn.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F53_OldEtcdReturnsAfterTheRecovery_IsRefusedUntilItsRecordsAreRaised()
    {
        await using var cluster = await FaultCluster.StartAsync();
        var old = Path.Combine(cluster.Folder, "old");
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        await cluster.Etcd.RestartAsync(() => Directory.Move(cluster.Etcd.DataOf(0), old));
        var (exitCode, _, error) = await RecoverAsync(cluster.DirectEndpoints[0]);
        Assert.True(exitCode == 0, error);
        await FailOverAsync(cluster, histories);

        var since = cluster.LogLengths();
        await cluster.Etcd.RestartAsync(() =>
        {
            Directory.Delete(cluster.Etcd.DataOf(0), recursive: true);
            Directory.Move(old, cluster.Etcd.DataOf(0));
        });
        foreach (var node in cluster.Nodes)
            await cluster.UntilSaidAsync(node.Node, "ALARM", since[node.Node]);
        var restarted = await cluster.FollowerAsync();
        await cluster.Node(restarted).KillAsync();
        // Its alarm said so too.
        since = cluster.LogLengths();
        cluster.Node(restarted).Start();
        await cluster.UntilSaidAsync(restarted, "has joined recovery 1", since[restarted]);
        await cluster.UntilMoreChangesOrLeaderlessAsync(histories, Some);

        (exitCode, _, error) = await RecoverAsync(cluster.PeerEndpoints[restarted - 1]);
        Assert.True(exitCode == 0, error);
        Assert.Equal(2UL, (await cluster.RecordAsync()).Recovery);
        await FailOverAsync(cluster, histories);
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
    }

    /// <summary>
    /// How long one command takes until every shard takes writes again, with a hundred shards whose nodes were all restarted after the loss: the slowest case, because
    /// nobody leads. The time is printed and not judged: `dotnet test tests/KvCluster.ClusterTests -c Release --filter HundredShards --logger "console;verbosity=detailed"`.
    /// </summary>
    [ToolFact("etcd", "etcdctl")]
    public async Task F53_EtcdWipedWithAHundredShards_OneCommandMakesAllOfThemWritable()
    {
        const int Shards = 100;
        await using var cluster = await FaultCluster.StartAsync(splitAt: string.Join(',', Enumerable.Range(1, Shards - 1).Select(KeyOf)));
        await WipeAsync(cluster);
        var since = cluster.LogLengths();
        foreach (var node in cluster.Nodes)
            await node.KillAsync();
        foreach (var node in cluster.Nodes)
            node.Start();
        foreach (var node in cluster.Nodes)
            await cluster.UntilSaidAsync(node.Node, "kv admin coordinator recover", since[node.Node]);
        await using var client = new KvClient(new KvClientOptions { Endpoints = cluster.Endpoints, Timeout = Eventually.Limit });

        var began = Stopwatch.GetTimestamp();
        var (exitCode, _, error) = await RecoverAsync(cluster.PeerEndpoints[0]);
        var commanded = Stopwatch.GetElapsedTime(began);
        Assert.True(exitCode == 0, error);
        for (var shard = 0; shard < Shards; shard++)
            await client.PutAsync(KeyOf(shard), "written");
        var writable = Stopwatch.GetElapsedTime(began);
        printed.WriteLine(string.Create(CultureInfo.InvariantCulture, $"coordinator wiped, 3 nodes restarted, {Shards} shards: the command took {commanded.TotalSeconds:F1} s, and all shards were writable after {writable.TotalSeconds:F1} s (to reach: 60 s)"));
        await cluster.UntilEqualAsync();

        static string KeyOf(int shard) => string.Create(CultureInfo.InvariantCulture, $"s{shard:D3}");
    }

    private static Task WipeAsync(FaultCluster cluster) => cluster.Etcd.RestartAsync(() => Directory.Delete(cluster.Etcd.DataOf(0), recursive: true));

    private static Task<(int ExitCode, string Output, string Error)> RecoverAsync(string endpoint, params string[] arguments) =>
        Tools.RunAsync(Tools.Built("kv", "KvCluster.Cli"), ["admin", "coordinator", "recover", "--endpoint", endpoint, .. arguments]);

    // Elections are possible again.
    private static async Task FailOverAsync(FaultCluster cluster, Histories histories)
    {
        var leader = await cluster.LeaderAsync();
        await cluster.Node(leader).KillAsync();
        await cluster.LeaderAsync(except: leader);
        await histories.MoreChangesAsync(Some);
        cluster.Node(leader).Start();
        await cluster.UntilEveryReplicaWorksAsync();
        await histories.MoreChangesAsync(Some);
    }
}
