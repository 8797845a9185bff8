using System.Runtime.CompilerServices;
using KvCluster.Client;
using KvCluster.ClusterTests.History;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.Faults;

/// <summary>Nodes that die, stop, restart or are cut off, under five client processes whose histories must be linearizable.</summary>
public sealed class NodeFaultTests(SharedCluster shared) : IClassFixture<SharedCluster>
{
    private const int Some = 150;

    [ToolFact("etcd", "etcdctl", "lincheck")]
    public Task F1_KillOfTheLeader_LosesNothing() => KillLeadersAsync(1);

    [ToolFact("etcd", "etcdctl", "lincheck")]
    [Trait("Turn", "7")]
    public Task F1_RepeatedKillsOfTheLeader_LoseNothing() => KillLeadersAsync(2 * Histories.Length);

    /// <summary>When it runs again it believes that it leads. Callers that still ask it must not get outdated answers.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F2_LeaderStoppedBeyondItsLease_ResumesAsAFollower()
    {
        var (cluster, histories) = await shared.BeginAsync();
        for (var round = 0; round < 2; round++)
        {
            await histories.MoreChangesAsync(Some);
            // In this order: an election in between has a later epoch.
            var epoch = await cluster.EpochAsync();
            var leader = await cluster.LeaderAsync();
            cluster.Node(leader).Pause();
            await cluster.LeaderAsync(except: leader);
            await histories.MoreChangesAsync(Some);
            cluster.Node(leader).Resume();
            // It follows, or leads again because it is the preferred node, but not under the epoch in which it was stopped.
            await Eventually.TrueAsync(
                async () => (await cluster.StatusOfAsync(leader))?.Replicas.FirstOrDefault()?.Epoch > epoch, "the old leader knows of its successor");
        }

        await histories.MoreChangesAsync(Some);
        await shared.EndAsync();
    }

    /// <summary>Clients can always reach the old leader, and it can reach etcd.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    [Trait("Turn", "7")]
    public async Task F3_LeaderCutOffFromItsFollowers_IsReplacedAndRejoins()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        var leader = await cluster.LeaderAsync();
        foreach (var follower in cluster.Nodes.Where(node => node.Node != leader))
            cluster.Network.Cut(leader, follower.Node);
        await cluster.LeaderAsync(except: leader);
        await histories.MoreChangesAsync(Some);
        cluster.Network.Heal();
        await histories.MoreChangesAsync(Some);
        await shared.EndAsync();
    }

    /// <summary>Its heartbeats arrive, but nothing returns to it. It must not hold the shard for ever.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    [Trait("Turn", "7")]
    public async Task F3_LeaderThatSendsButReceivesNothing_StepsDown()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        var leader = await cluster.LeaderAsync();
        foreach (var follower in cluster.Nodes.Where(node => node.Node != leader))
            cluster.Network.CutOneWay(follower.Node, leader);
        await cluster.LeaderAsync(except: leader);
        await histories.MoreChangesAsync(Some);
        cluster.Network.Heal();
        await histories.MoreChangesAsync(Some);
        await shared.EndAsync();
    }

    [ToolFact("etcd", "etcdctl", "lincheck")]
    [Trait("Turn", "7")]
    public async Task F4_FollowerSlowThenCutOffThenDead_DelaysNobody()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        var follower = 0;
        await cluster.LeaderStaysAsync(async leader =>
        {
            follower = cluster.Nodes.First(node => node.Node != leader).Node;
            cluster.Network.Delay(leader, follower, TimeSpan.FromMilliseconds(100));
            await histories.MoreChangesAsync(Some);
            cluster.Network.Cut(leader, follower);
            await histories.MoreChangesAsync(Some);
            cluster.Network.Heal();
        });
        await cluster.Node(follower).KillAsync();
        await histories.MoreChangesAsync(Some);
        await cluster.TransferAsync();
        await histories.MoreChangesAsync(Some);
        cluster.Node(follower).Start();
        await histories.MoreChangesAsync(Some);
        await shared.EndAsync();
    }

    /// <summary>First the router reaches no node and so knows no shard. Later it was cut off and does not know the new leader. Neither loses a call.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    [Trait("Turn", "7")]
    public async Task F23_RouterWithAnEmptyThenAStaleMap_AnswersEveryCall()
    {
        var (cluster, histories) = await shared.BeginAsync();
        CutRouterOff(cluster);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.StartRouter()], Gateway = true, Timeout = Eventually.Limit });
        var puts = PutMany(client, "of an empty map");
        Assert.DoesNotContain(puts, static put => put.IsCompleted);
        cluster.Network.Heal();
        await Task.WhenAll(puts);

        CutRouterOff(cluster);
        var leader = await cluster.LeaderAsync();
        await cluster.Node(leader).KillAsync();
        await cluster.LeaderAsync(except: leader);
        puts = PutMany(client, "of a stale map");
        cluster.Network.Heal();
        await Task.WhenAll(puts);
        for (var number = 0; number < puts.Length; number++)
            Assert.Equal("of a stale map", System.Text.Encoding.UTF8.GetString((await client.GetAsync($"routed/{number}")).Value.Span));
        cluster.Node(leader).Start();
        await histories.MoreChangesAsync(Some);
        await shared.EndAsync();
    }

    /// <summary>
    /// Processes die, and the system keeps their unsynced writes. That nothing acknowledged depends on such writes is shown by the simulation, whose
    /// disks lose or tear them.
    /// </summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    [Trait("Turn", "7")]
    public async Task F15_AllNodesDieAtOnce_NothingAcknowledgedIsLost()
    {
        var (cluster, histories) = await shared.BeginAsync();
        for (var round = 0; round < 2; round++)
        {
            await histories.MoreChangesAsync(Some);
            await Task.WhenAll(cluster.Nodes.Select(node => node.KillAsync()));
            foreach (var node in cluster.Nodes)
                node.Start();
        }

        await histories.MoreChangesAsync(Some);
        await shared.EndAsync();
    }

    /// <summary>The follower's journal ends before the beginning of every leader's, so it needs a snapshot, and its connection breaks in the middle.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    [Trait("Turn", "1")]
    public async Task F20_FollowerBeyondTheJournal_GetsASnapshotDespiteACut()
    {
        await using var cluster = await FaultCluster.StartAsync(prepare: static node => node.Options = ["--journal-retention-mib", "1"]);
        await using var client = new KvClient(new KvClientOptions { Endpoints = cluster.Endpoints, Timeout = Eventually.Limit });
        var follower = await cluster.FollowerAsync();
        await cluster.Node(follower).KillAsync();
        var value = new byte[256 << 10];
        Random.Shared.NextBytes(value);
        for (var number = 0; number < 64; number++)
            await client.PutAsync(System.Text.Encoding.UTF8.GetBytes($"large/{number}"), value);
        // Twice, because the older of the two meta pages still needs the journal.
        await cluster.CheckpointAsync();
        await client.PutAsync("between", "two checkpoints");
        await cluster.CheckpointAsync();
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        foreach (var other in cluster.Nodes.Where(node => node.Node != follower))
            cluster.Network.Delay(other.Node, follower, TimeSpan.FromMilliseconds(10));
        var since = cluster.Nodes.ToDictionary(static node => node.Node, node => node.Node == follower ? int.MaxValue : node.Log.Count);
        cluster.Node(follower).Start();
        var leader = await cluster.UntilOneSaysAsync("Snapshot", since);
        cluster.Network.Cut(leader, follower);
        await histories.MoreChangesAsync(Some);
        await cluster.TransferAsync();
        cluster.Network.Heal();
        await histories.MoreChangesAsync(Some);
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
    }

    /// <summary>One node's boot clock is eleven days ahead of the others', another's is a day behind. Only differences count.</summary>
    [BootClockFact]
    [Trait("Turn", "1")]
    public async Task F21_BootClocksThatDisagree_ChangeNothing()
    {
        await using var cluster = await FaultCluster.StartAsync(prepare: node =>
        {
            if (node.Node < 3)
                node.Wrapper = ["unshare", "-T", "--boottime", node.Node == 1 ? "1000000" : "100000"];
        });
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        for (var round = 0; round < 2; round++)
        {
            var leader = await cluster.LeaderAsync();
            cluster.Node(leader).Pause();
            await cluster.LeaderAsync(except: leader);
            await histories.MoreChangesAsync(Some);
            cluster.Node(leader).Resume();
            await cluster.TransferAsync();
        }

        // Even with another clock, a node's promises from before its restart must hold.
        var last = cluster.Node(await cluster.LeaderAsync());
        await last.KillAsync();
        last.Wrapper = ["unshare", "-T", "--boottime", "5000000"];
        last.Start();
        await histories.MoreChangesAsync(Some);
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
    }

    private async Task KillLeadersAsync(int rounds, [CallerMemberName] string test = "")
    {
        var (cluster, histories) = await shared.BeginAsync();
        for (var round = 0; round < rounds; round++)
        {
            await histories.MoreChangesNowAsync(Some);
            var leader = await cluster.LeaderAsync();
            await cluster.Node(leader).KillAsync();
            await cluster.UntilLedWithoutAsync(leader);
            await histories.MoreChangesNowAsync(Some);
            await cluster.TransferAsync();
            await histories.MoreChangesNowAsync(Some);
            cluster.Node(leader).Start();
            await cluster.UntilFollowsAsync(leader);
        }

        await shared.EndAsync(test);
    }

    private static void CutRouterOff(FaultCluster cluster)
    {
        foreach (var node in cluster.Nodes)
            cluster.Network.Cut(FaultCluster.Router, node.Node);
    }

    private static Task[] PutMany(KvClient client, string value) =>
        [.. Enumerable.Range(0, 200).Select(number => client.PutAsync($"routed/{number}", value).AsTask())];
}
