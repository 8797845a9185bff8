using System.Runtime.CompilerServices;
using KvCluster.ClusterTests.History;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.Faults;

/// <summary>Faults of etcd and of the connections to it, under five client processes whose histories must be linearizable: F5, F6, F9 to F11.</summary>
[Trait("Turn", "1")]
public sealed class CoordinatorFaultTests(SharedCluster shared) : IClassFixture<SharedCluster>
{
    private const int Some = 150;

    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F5_LeaderCutOffFromEtcd_ContinuesAndIsNotDeposed()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        await cluster.LeaderStaysAsync(async leader =>
        {
            cluster.Network.Cut(leader, Network.Etcd);
            await histories.MoreChangesAsync(5 * Some);
            cluster.Network.Heal();
            await histories.MoreChangesAsync(Some);
        });
        await shared.EndAsync();
    }

    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F6_FollowerCutOffFromEtcd_KeepsAcknowledgingAndDoesNotCampaign()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        await cluster.LeaderStaysAsync(async leader =>
        {
            var followers = cluster.Nodes.Where(node => node.Node != leader).ToArray();
            cluster.Network.Cut(followers[0].Node, Network.Etcd);
            // Without the other follower every commit needs an acknowledgement of the one that is cut off from etcd.
            await followers[1].KillAsync();
            await histories.MoreChangesAsync(3 * Some);
            cluster.Network.Heal();
            followers[1].Start();
            await histories.MoreChangesAsync(Some);
            await cluster.UntilEveryReplicaWorksAsync();
        });
        await shared.EndAsync();
    }

    /// <summary>First etcd is slow for everybody. Then etcd's leader dies, and so does ours while etcd has none.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F9_EtcdSlowAndWithoutItsLeader_DeposesNobodyAndStillElects()
    {
        await using var cluster = await FaultCluster.StartAsync(etcdMembers: 3, secure: true);
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        foreach (var node in cluster.Nodes)
            cluster.Network.Delay(node.Node, Network.Etcd, TimeSpan.FromMilliseconds(300));
        await cluster.LeaderStaysAsync(_ => histories.MoreChangesAsync(Some));
        var (leader, epoch) = (await cluster.LeaderAsync(), await cluster.EpochAsync());
        await cluster.Etcd.KillAsync(await cluster.Etcd.LeaderAsync());
        await cluster.Node(leader).KillAsync();
        await cluster.LeaderAsync(except: leader);
        await histories.MoreChangesAsync(Some);
        cluster.Network.Heal();
        cluster.Node(leader).Start();
        await histories.MoreChangesAsync(Some);
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
        Assert.True(await cluster.EpochAsync() > epoch);
    }

    /// <summary>A node's watch breaks, and etcd compacts the revisions that it would have sent. The node lists again and has etcd's map.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F10_CompactionPastAWatcher_ListsAgain()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        var (watcher, leader, since) = (0, 0, 0);
        do
        {
            // Try again if another node was elected before the watcher was cut off, because after that none can be.
            cluster.Network.Heal();
            leader = await cluster.LeaderAsync();
            watcher = cluster.Nodes.First(node => node.Node != leader).Node;
            since = cluster.Node(watcher).Log.Count;
            cluster.Network.Cut(watcher, Network.Etcd);
        }
        while (await cluster.LeaderAsync() != leader);
        await cluster.Node(leader).KillAsync();
        var next = cluster.Nodes.Single(node => node.Node != watcher && node.Node != leader).Node;
        Assert.Equal(next, await cluster.LeaderAsync(except: leader));
        var revision = (await cluster.Etcd.ControlAsync("get", "x", "-w", "fields"))
            .Split('\n').Single(line => line.StartsWith("\"Revision\"", StringComparison.Ordinal)).Split(" : ")[1];
        await cluster.Etcd.ControlAsync("compact", revision);
        await cluster.UntilSaidAsync(watcher, "being read again", since);
        cluster.Network.Heal();
        cluster.Node(leader).Start();
        await histories.MoreChangesAsync(Some);
        // To write its own record it has to know the one of the leader that it never read.
        await cluster.UntilLeadsAsync(watcher);
        await histories.MoreChangesAsync(Some);
        await shared.EndAsync();
    }

    /// <summary>An older copy of etcd's data is restored. The nodes raise an alarm and never elect again, and calls continue.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F11_EtcdRestoredFromAnOldCopy_StopsElectionsAndKeepsServing()
    {
        // If a stall of the machine costs a leadership meanwhile, it cannot return. Then try again with another cluster.
        for (var round = 0; !await ServesOnAfterRestoreAsync(); round++)
            Assert.True(round < 5, "The leader at the time of the alarm did not stay.");
    }

    private static async Task<bool> ServesOnAfterRestoreAsync([CallerMemberName] string test = "")
    {
        await using var cluster = await FaultCluster.StartAsync();
        var backup = Path.Combine(cluster.Folder, "backup");
        await cluster.Etcd.RestartAsync(() => EtcdProcesses.CopyFolder(cluster.Etcd.DataOf(0), backup));
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        var first = await cluster.LeaderAsync();
        await cluster.Node(first).KillAsync();
        await cluster.LeaderAsync(except: first);
        cluster.Node(first).Start();
        await cluster.UntilSaidAsync(first, "start 2");
        await histories.MoreChangesAsync(Some);
        await cluster.Etcd.RestartAsync(() =>
        {
            Directory.Delete(cluster.Etcd.DataOf(0), recursive: true);
            EtcdProcesses.CopyFolder(backup, cluster.Etcd.DataOf(0));
        });
        foreach (var node in cluster.Nodes)
            await cluster.UntilSaidAsync(node.Node, "ALARM");
        var leader = await cluster.LeadsNowAsync();
        var since = cluster.LogLengths();
        await cluster.UntilMoreChangesOrLeaderlessAsync(histories, 2 * Some);
        // No election any more: the former leader leads, or nobody.
        var leads = await cluster.LeadsNowAsync();
        Assert.True(leads == leader || leads == 0, $"node {leads} leads after node {leader}");
        if (leads == 0)
        {
            Assert.True(leader == 0 || cluster.StallSince(since) is not null, $"node {leader} no longer leads, although no node stalled");
            return false;
        }

        await histories.CheckAsync(test);
        await cluster.UntilEqualAsync();
        return true;
    }
}
