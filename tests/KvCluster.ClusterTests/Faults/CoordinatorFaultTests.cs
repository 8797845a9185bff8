using KvCluster.ClusterTests.History;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.Faults;

/// <summary>Faults of etcd, and of the ways to it, under five client processes whose histories must be linearizable: F5, F6, F8 to F11.</summary>
public sealed class CoordinatorFaultTests
{
    private const int Some = 150;

    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F5_LeaderCutOffFromEtcd_GoesOnAndIsNotDeposed()
    {
        await using var cluster = await FaultCluster.StartAsync();
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        var (leader, epoch) = (await cluster.LeaderAsync(), await cluster.EpochAsync());
        cluster.Network.Cut(leader, Network.Etcd);
        await histories.MoreChangesAsync(5 * Some);
        Assert.Equal(leader, await cluster.LeaderAsync());
        cluster.Network.Heal();
        await histories.MoreChangesAsync(Some);
        Assert.Equal(epoch, await cluster.EpochAsync());
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
    }

    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F6_FollowerCutOffFromEtcd_GoesOnAcknowledgingAndDoesNotStand()
    {
        await using var cluster = await FaultCluster.StartAsync();
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        var (leader, epoch) = (await cluster.LeaderAsync(), await cluster.EpochAsync());
        var followers = cluster.Nodes.Where(node => node.Node != leader).ToArray();
        cluster.Network.Cut(followers[0].Node, Network.Etcd);
        // With the other follower gone every commit needs the acknowledgement of the one without etcd.
        await followers[1].KillAsync();
        await histories.MoreChangesAsync(3 * Some);
        Assert.Equal((leader, epoch), (await cluster.LeaderAsync(), await cluster.EpochAsync()));
        cluster.Network.Heal();
        followers[1].Start();
        await histories.MoreChangesAsync(Some);
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
        Assert.Equal(epoch, await cluster.EpochAsync());
    }

    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F8_EtcdAwayWhileAMinorityFails_GoesOnAndNothingMovesWhenItReturns()
    {
        await using var cluster = await FaultCluster.StartAsync(splitAt: "h,p,w");
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        var epoch = await cluster.EpochAsync();
        var leader = await cluster.LeaderAsync();
        await cluster.Etcd.KillAsync(0);
        await histories.MoreChangesAsync(Some);
        // A follower of shard 0; the shards that it leads wait for etcd, the others go on.
        var minority = cluster.Nodes.First(node => node.Node != leader);
        await minority.KillAsync();
        var put = cluster.KvOf(leader).PutAsync(new V1.PutRequest { Key = Google.Protobuf.ByteString.CopyFromUtf8("a"), Value = Google.Protobuf.ByteString.Empty });
        Assert.NotNull((await put).Position);
        await histories.MoreChangesAsync(Some);
        cluster.Etcd.Start(0);
        minority.Start();
        await histories.MoreChangesAsync(2 * Some);
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
        Assert.Equal((leader, epoch), (await cluster.LeaderAsync(), await cluster.EpochAsync()));
    }

    /// <summary>First etcd is slow for everybody, then its leader dies and, while it has none, ours.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F9_EtcdSlowAndWithoutItsLeader_DeposesNobodyAndStillElects()
    {
        await using var cluster = await FaultCluster.StartAsync(etcdMembers: 3, secure: true);
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        var (leader, epoch) = (await cluster.LeaderAsync(), await cluster.EpochAsync());
        foreach (var node in cluster.Nodes)
            cluster.Network.Delay(node.Node, Network.Etcd, TimeSpan.FromMilliseconds(300));
        await histories.MoreChangesAsync(Some);
        Assert.Equal(epoch, await cluster.EpochAsync());
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

    /// <summary>A node's watch breaks off, and etcd forgets what it would have told: the node lists again, and its map is etcd's.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F10_CompactionPastAWatcher_ListsAgain()
    {
        await using var cluster = await FaultCluster.StartAsync();
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        var (watcher, leader) = (await cluster.FollowerAsync(), await cluster.LeaderAsync());
        cluster.Network.Cut(watcher, Network.Etcd);
        await cluster.Node(leader).KillAsync();
        var next = cluster.Nodes.Single(node => node.Node != watcher && node.Node != leader).Node;
        Assert.Equal(next, await cluster.LeaderAsync(except: leader));
        var revision = (await cluster.Etcd.ControlAsync("get", "x", "-w", "fields")).Split('\n').Single(line => line.StartsWith("\"Revision\"", StringComparison.Ordinal)).Split(" : ")[1];
        await cluster.Etcd.ControlAsync("compact", revision);
        await cluster.UntilSaidAsync(watcher, "listed again");
        cluster.Network.Heal();
        cluster.Node(leader).Start();
        await histories.MoreChangesAsync(Some);
        // It has to know the new record to stand, and to win, when the leader that it never read of goes.
        await cluster.UntilEqualAsync();
        await cluster.Node(next).KillAsync();
        await cluster.LeaderAsync(except: next);
        await histories.MoreChangesAsync(Some);
        cluster.Node(next).Start();
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
    }

    /// <summary>An older copy of etcd's data is put back: alarm, no election ever again, and calls go on.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F11_EtcdRestoredFromAnOldCopy_StopsControlAndServesOn()
    {
        await using var cluster = await FaultCluster.StartAsync();
        var backup = Path.Combine(cluster.Folder, "backup");
        await cluster.Etcd.RestartAsync(() => EtcdMembers.CopyFolder(cluster.Etcd.DataOf(0), backup));
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        var first = await cluster.LeaderAsync();
        await cluster.Node(first).KillAsync();
        var leader = await cluster.LeaderAsync(except: first);
        cluster.Node(first).Start();
        await cluster.UntilSaidAsync(first, "start 2");
        await histories.MoreChangesAsync(Some);
        await cluster.Etcd.RestartAsync(() =>
        {
            Directory.Delete(cluster.Etcd.DataOf(0), recursive: true);
            EtcdMembers.CopyFolder(backup, cluster.Etcd.DataOf(0));
        });
        foreach (var node in cluster.Nodes)
            await cluster.UntilSaidAsync(node.Node, "ALARM");
        await histories.MoreChangesAsync(2 * Some);
        Assert.Equal(leader, await cluster.LeaderAsync());
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
    }
}
