using System.Diagnostics;
using System.Globalization;
using KvCluster.Client;
using KvCluster.ClusterTests.History;
using KvCluster.Processes;
using Xunit.Abstractions;

namespace KvCluster.ClusterTests.Faults;

/// <summary>
/// F53: etcd's data is gone, and `kv admin coordinator recover` rebuilds the records from the nodes, under five client processes whose histories must be
/// linearizable.
/// </summary>
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

        Assert.Contains("voters on 1, 2, 3", await FaultCluster.UntilRecoveredAsync(cluster.DirectEndpoints[0], "--plan"), StringComparison.Ordinal);
        Assert.Empty(await RecordKeysAsync(cluster.Etcd));
        await FaultCluster.UntilRecoveredAsync(cluster.DirectEndpoints[0]);

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
        await UntilRefusedAsync(asked, $"--without {down}");
        Assert.Empty(await RecordKeysAsync(cluster.Etcd));
        await FaultCluster.UntilRecoveredAsync(asked, "--without", $"{down}");

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

        Assert.Contains("no leader runs", await FaultCluster.UntilRecoveredAsync(cluster.PeerEndpoints[1]), StringComparison.Ordinal);
        await histories.MoreChangesAsync(Some);
        await CheckAfterFailOverAsync(cluster, histories);
    }

    /// <summary>
    /// A node that has lost its disk as well is started before the recovery, and bootstrap-nodes still stands in its settings. It created a second cluster in
    /// the empty etcd, as did kv-node init. The nodes with the data refused that one, and it had to be deleted by hand before anything could be rebuilt.
    /// </summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F53_EtcdWipedAndANodeStartedWithAnEmptyDirectory_CreatesNoSecondClusterAndJoinsAfterTheRecovery()
    {
        await using var cluster = await FaultCluster.StartAsync();
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        var before = await cluster.RecordAsync();
        var empty = await cluster.FollowerAsync();
        int[] others = [.. Enumerable.Range(1, 3).Where(node => node != empty)];
        foreach (var node in cluster.Nodes)
            await node.KillAsync();
        Directory.Delete(cluster.Node(empty).Data, recursive: true);
        await WipeAsync(cluster);
        var since = cluster.LogLengths();
        foreach (var node in others)
            cluster.Node(node).Start();
        foreach (var node in others)
            await cluster.UntilSaidAsync(node, "kv admin coordinator recover", since[node]);

        cluster.Node(empty).Options = ["--bootstrap-nodes", "1,2,3"];
        cluster.Node(empty).Start();
        await cluster.UntilSaidAsync(empty, "nodes have data of a cluster of this name", since[empty]);
        var coordinator = "etcd=" + string.Join(',', cluster.Etcd.Endpoints);
        var (exitCode, output, error) = (0, "", "");
        await Eventually.TrueAsync(async () =>
        {
            (exitCode, output, error) = await Tools.RunAsync(NodeProcess.Program, "init", "--coordinator", coordinator, "--nodes", "1,2,3");
            Assert.True(exitCode == Refused, $"{exitCode}: {output}\n{error}");
            // On a busy machine etcd may not answer in time, which is refused with the same code.
            return error.Contains("kv admin coordinator recover", StringComparison.Ordinal);
        }, "init names the recovery");
        Assert.DoesNotContain('\n', error);
        Assert.Empty(await RecordKeysAsync(cluster.Etcd));

        await FaultCluster.UntilRecoveredAsync(cluster.PeerEndpoints[others[0] - 1], "--without", $"{empty}");
        await histories.MoreChangesAsync(Some);
        await UntilReplacedAsync(cluster, empty, cluster.Etcd);
        var after = await cluster.RecordAsync();
        Assert.Equal((before.Lineage, 1UL), (after.Lineage, after.Recovery));
        await CheckAfterFailOverAsync(cluster, histories);
        Assert.DoesNotContain("waiting", await cluster.Etcd.ControlAsync("get", "--prefix", "--keys-only", "/kvcluster/"), StringComparison.Ordinal);
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
        await FaultCluster.UntilRecoveredAsync(cluster.DirectEndpoints[0]);
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

        await FaultCluster.UntilRecoveredAsync(cluster.PeerEndpoints[restarted - 1]);
        Assert.Equal(2UL, (await cluster.RecordAsync()).Recovery);
        await CheckAfterFailOverAsync(cluster, histories);
    }

    /// <summary>
    /// etcd's data is gone again, before the node that was down has joined the first recovery. It comes back after the second one, or already takes part in
    /// that: in both cases nothing of its replicas counts, and new ones are built.
    /// </summary>
    [ToolTheory("etcd", "etcdctl", "lincheck")]
    [InlineData(false)]
    [InlineData(true)]
    public async Task F53_EtcdWipedAgainBeforeANodeHasJoined_RecoversTwiceAndRebuildsTheNode(bool isBackForTheSecond)
    {
        await using var cluster = await FaultCluster.StartAsync();
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        var before = await cluster.RecordAsync();
        var down = await cluster.FollowerAsync();
        int[] up = [.. Enumerable.Range(1, 3).Where(node => node != down)];
        await cluster.Node(down).KillAsync();
        await WipeAsync(cluster);
        await cluster.UntilMoreChangesOrLeaderlessAsync(histories, Some);
        var since = cluster.LogLengths();
        await FaultCluster.UntilRecoveredAsync(cluster.DirectEndpoints[up[0] - 1], "--without", $"{down}");
        foreach (var node in up)
            await cluster.UntilSaidAsync(node, "(recovery 1)", since[node]);
        await histories.MoreChangesAsync(Some);

        since = cluster.LogLengths();
        await WipeAsync(cluster);
        foreach (var node in up)
            await cluster.UntilSaidAsync(node, "ALARM", since[node]);
        await cluster.UntilMoreChangesOrLeaderlessAsync(histories, Some);
        string[] without = isBackForTheSecond ? [] : ["--without", $"{down}"];
        if (isBackForTheSecond)
        {
            cluster.Node(down).Start();
            await cluster.UntilSaidAsync(down, "kv admin coordinator recover", since[down]);
        }

        await FaultCluster.UntilRecoveredAsync(cluster.DirectEndpoints[up[0] - 1], without);
        foreach (var node in up)
            await cluster.UntilSaidAsync(node, "(recovery 2)", since[node]);
        await histories.MoreChangesAsync(Some);
        if (!isBackForTheSecond)
            cluster.Node(down).Start();
        await cluster.UntilSaidAsync(down, "the coordinator's records were rebuilt without this node", since[down]);
        await UntilReplacedAsync(cluster, down, cluster.Etcd);
        var after = await cluster.RecordAsync();
        Assert.Equal((before.Lineage, 2UL), (after.Lineage, after.Recovery));
        await CheckAfterFailOverAsync(cluster, histories);
    }

    /// <summary>
    /// A new etcd has another address, which two nodes have got and the third has not when the records are to be rebuilt. While the third runs, the old etcd is
    /// not lost. Stopped and left out, and started again with the old address, it followed the old etcd, which was back, and nobody was told.
    /// </summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F53_NewAddressOnTwoNodesOnly_OldEtcdIsNotFollowedAndTheThirdEndsInTheNewOne()
    {
        await using var cluster = await FaultCluster.StartAsync();
        await using var created = await EtcdProcesses.StartAsync();
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        var before = await cluster.RecordAsync();
        var last = await cluster.FollowerAsync();
        int[] moved = [.. Enumerable.Range(1, 3).Where(node => node != last)];
        var asked = cluster.PeerEndpoints[moved[0] - 1];
        await cluster.Etcd.KillAsync(0);
        var since = cluster.LogLengths();
        foreach (var node in moved)
        {
            await cluster.Node(node).KillAsync();
            Move(cluster.Node(node), created);
        }

        foreach (var node in moved)
            await cluster.UntilSaidAsync(node, "kv admin coordinator recover", since[node]);
        await UntilRefusedAsync(asked, $"node {last} cannot tell whether its coordinator has lost the cluster");
        cluster.Etcd.Start(0);
        Assert.Equal(before.Lineage, (await cluster.RecordAsync()).Lineage);
        await UntilRefusedAsync(asked, $"node {last} has a coordinator with a record of the cluster, which is therefore not lost");
        await UntilRefusedAsync(asked, $"node {last} is named by --without, but it answers", "--without", $"{last}");
        Assert.Empty(await RecordKeysAsync(created));

        await cluster.Node(last).KillAsync();
        await FaultCluster.UntilRecoveredAsync(asked, "--without", $"{last}");
        await histories.MoreChangesAsync(Some);
        since = cluster.LogLengths();
        cluster.Node(last).Start();
        await cluster.UntilSaidAsync(last, "ALARM: the coordinator is not followed: its records are older, of recovery 0, and node", since[last]);
        await histories.MoreChangesAsync(Some);
        Assert.Null(await cluster.StatusOfAsync(last));

        await cluster.Node(last).KillAsync();
        since = cluster.LogLengths();
        Move(cluster.Node(last), created);
        await cluster.UntilSaidAsync(last, "the coordinator's records were rebuilt without this node", since[last]);
        await UntilReplacedAsync(cluster, last, created);
        var after = await cluster.RecordAsync(etcd: created);
        Assert.Equal((before.Lineage, 1UL), (after.Lineage, after.Recovery));
        await CheckAfterFailOverAsync(cluster, histories);
    }

    /// <summary>
    /// How long one command takes until every shard takes writes again, with a hundred shards whose nodes were all restarted after the loss: the slowest case,
    /// because nobody leads. The time is printed and not judged: `dotnet test tests/KvCluster.ClusterTests -c Release --filter HundredShards --logger
    /// "console;verbosity=detailed"`.
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
        await FaultCluster.UntilRecoveredAsync(cluster.PeerEndpoints[0]);
        var commanded = Stopwatch.GetElapsedTime(began);
        for (var shard = 0; shard < Shards; shard++)
            await client.PutAsync(KeyOf(shard), "written");
        var writable = Stopwatch.GetElapsedTime(began);
        printed.WriteLine(string.Create(CultureInfo.InvariantCulture, $"coordinator wiped, 3 nodes restarted, {Shards} shards: "
            + $"the command took {commanded.TotalSeconds:F1} s, and all shards were writable after {writable.TotalSeconds:F1} s (to reach: 60 s)"));
        await cluster.UntilEqualAsync();

        static string KeyOf(int shard) => string.Create(CultureInfo.InvariantCulture, $"s{shard:D3}");
    }

    private static Task WipeAsync(FaultCluster cluster) => cluster.Etcd.RestartAsync(() => Directory.Delete(cluster.Etcd.DataOf(0), recursive: true));

    // Nodes that lack the records say so under keys of their own.
    private static async Task<IEnumerable<string>> RecordKeysAsync(EtcdProcesses etcd) =>
        (await etcd.ControlAsync("get", "--prefix", "--keys-only", "/kvcluster/")).Split('\n', StringSplitOptions.RemoveEmptyEntries)
            .Where(static key => !key.StartsWith("/kvcluster/local/waiting/", StringComparison.Ordinal));

    private static void Move(NodeProcess node, EtcdProcesses etcd)
    {
        node.Coordinator = "etcd=" + string.Join(',', etcd.Endpoints);
        node.Start();
    }

    // What a node says of its coordinator follows etcd's end or start a moment later.
    private static Task UntilRefusedAsync(string endpoint, string reason, params string[] arguments) => Eventually.TrueAsync(
        async () =>
        {
            var (exitCode, output, error) = await FaultCluster.RecoverAsync(endpoint, arguments);
            Assert.True(exitCode == Refused, $"{exitCode}: {output}\n{error}");
            return output.Contains(reason, StringComparison.Ordinal);
        },
        $"the command is refused, because {reason}");

    // A new replica votes in the place of the one that counts for nothing.
    private static Task UntilReplacedAsync(FaultCluster cluster, int node, EtcdProcesses etcd) => Eventually.TrueAsync(
        async () =>
        {
            var record = await cluster.RecordAsync(etcd: etcd);
            return record.Removed.Count > 0 && record.Replicas.Count == 3
                && record.Replicas.All(static replica => replica is { Learner: false, Absent: false, Created: true })
                && record.Replicas.Any(replica => replica.Node == node);
        },
        $"node {node} has a new replica");

    // Nothing acknowledged is lost, also by another leader.
    private static async Task CheckAfterFailOverAsync(FaultCluster cluster, Histories histories)
    {
        await FailOverAsync(cluster, histories);
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
    }

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
