using System.Globalization;
using System.Runtime.CompilerServices;
using KvCluster.Client;
using KvCluster.ClusterTests.History;
using KvCluster.Processes;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.ClusterTests.Faults;

/// <summary>Full and failing disks, under five client processes whose histories must be linearizable.</summary>
public sealed class DiskFaultTests
{
    private const int Some = 150;
    private const int DiskMebibytes = 64;

    // The preferred node of one shard, and a node that leads nothing unless both others fail.
    private const int Leader = 1;
    private const int Follower = 3;

    [SmallDiskFact]
    [Trait("Turn", "4")]
    public async Task F18_FollowersDiskFull_DelaysNobodyAndCatchesUpWhenThereIsRoom()
    {
        await using var disk = await SmallDisk.CreateAsync(DiskMebibytes, 2 * DiskMebibytes);
        await using var cluster = await FaultCluster.StartAsync(dataOf: node => node == Follower ? disk.Data : null);
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        disk.Fill();
        await FillJournalsAsync(cluster);
        await cluster.TransferAsync();
        await histories.MoreChangesAsync(Some);
        disk.Empty();
        await histories.MoreChangesAsync(Some);
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
    }

    /// <summary>The leader's node. Its leaderships move to nodes with space, and no write is refused meanwhile.</summary>
    [SmallDiskFact]
    [Trait("Turn", "4")]
    public async Task F18_LeadersDiskFull_TransfersItsLeaderships()
    {
        await using var disk = await SmallDisk.CreateAsync(DiskMebibytes, 2 * DiskMebibytes);
        // One shard for each node to lead, and puts to all of them.
        await using var cluster = await FaultCluster.StartAsync(splitAt: "large/3,large/6", dataOf: node => node == 1 ? disk.Data : null);
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        disk.Fill();
        await Eventually.TrueAsync(async () =>
        {
            await FillJournalsAsync(cluster);
            return await cluster.StatusOfAsync(1) is { } status && status.Replicas.All(replica => replica.Role == Role.Follower);
        }, "the node whose disk is full leads nothing");
        await histories.MoreChangesAsync(Some);
        disk.Empty();
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
    }

    /// <summary>All three nodes. Puts are refused with the reason, reads and deletes work, and puts work again when there is space.</summary>
    [SmallDiskFact]
    [Trait("Turn", "4")]
    public async Task F18_AllDisksFull_RefusesPutsReadsAndDeletesAndRecovers()
    {
        var disks = new List<SmallDisk>();
        try
        {
            for (var node = 0; node < 3; node++)
                disks.Add(await SmallDisk.CreateAsync(DiskMebibytes, 2 * DiskMebibytes));
            await using var cluster = await FaultCluster.StartAsync(dataOf: node => disks[node - 1].Data);
            await using var client = new KvClient(new KvClientOptions { Endpoints = cluster.Endpoints, Timeout = Eventually.Limit });
            await client.PutAsync("kept", "before");
            await client.PutAsync("deleted", "before");
            foreach (var disk in disks)
                disk.Fill();
            var refused = await PutUntilRefusedAsync(client);
            Assert.Equal(("DISK_FULL", ChangeOutcome.NotApplied), (refused.Reason, refused.Outcome));
            Assert.True((await client.GetAsync("kept")).Found);
            Assert.True((await client.DeleteAsync("deleted")).Existed);
            foreach (var disk in disks)
                disk.Empty();
            await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
            await histories.MoreChangesAsync(Some);
            await histories.CheckAsync();
            Assert.False((await client.GetAsync("deleted")).Found);
            await cluster.UntilEqualAsync();
        }
        finally
        {
            foreach (var disk in disks)
                await disk.DisposeAsync();
        }
    }

    /// <summary>A volume that was enlarged is noticed without a restart, and without anything being deleted: all that it was full of is still there.</summary>
    [SmallDiskFact]
    [Trait("Turn", "4")]
    public async Task F18_FullDiskThatGrows_IsNoticedWithoutARestart()
    {
        await using var disk = await SmallDisk.CreateGrowingAsync(DiskMebibytes);
        var admin = string.Create(CultureInfo.InvariantCulture, $"http://127.0.0.1:{FreePorts.Ten()}");
        await using var cluster = await FaultCluster.StartAsync(dataOf: node => node == Leader ? disk.Data : null, prepare: node =>
        {
            if (node.Node == Leader)
                node.Options = ["--admin", admin];
        });
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        var process = cluster.Node(Leader).Id;
        disk.Fill();
        await Eventually.TrueAsync(async () =>
        {
            await FillJournalsAsync(cluster);
            return await IsFullAsync(admin);
        }, "the disk counts as full");
        await cluster.LeaderAsync(except: Leader);
        await disk.GrowAsync(3 * DiskMebibytes);
        await Eventually.TrueAsync(async () => !await IsFullAsync(admin), "the disk does not count as full any more");
        // It may lead again, and has room for what it leads.
        await cluster.UntilLeadsAsync(Leader);
        await FillJournalsAsync(cluster);
        await histories.MoreChangesAsync(Some);
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
        Assert.Equal(process, cluster.Node(Leader).Id);
        Assert.True(cluster.Node(Leader).IsRunning);
    }

    /// <summary>
    /// The device under a follower's journal refuses writes. The follower does not acknowledge what it could not sync, and a restart recovers it.
    /// </summary>
    [BadDiskFact]
    [Trait("Turn", "1")]
    public Task F17_DeviceFailsUnderAFollower_DelaysNobodyAndARestartRecovers() => FailDeviceAsync(Follower);

    /// <summary>The same under the leader's journal: another node leads.</summary>
    [BadDiskFact]
    [Trait("Turn", "1")]
    public Task F17_DeviceFailsUnderTheLeader_AnotherLeadsAndARestartRecovers() => FailDeviceAsync(Leader);

    private static async Task FailDeviceAsync(int node, [CallerMemberName] string test = "")
    {
        await using var disk = await BadDisk.CreateAsync();
        await using var cluster = await FaultCluster.StartAsync(dataOf: other => other == node ? disk.Data : null);
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        disk.Rule($"write-error {BadDisk.InRules("shards/0/")}");
        await FillJournalsAsync(cluster);
        // Nothing more is concluded from a file whose sync failed, because the process has ended.
        await Eventually.TrueAsync(() => Task.FromResult(!cluster.Node(node).IsRunning), "the node has ended");
        await cluster.LeaderAsync(except: node);
        await histories.MoreChangesAsync(Some);
        await cluster.TransferAsync();
        await histories.MoreChangesAsync(Some);
        disk.Rule();
        cluster.Node(node).Start();
        await histories.MoreChangesAsync(Some);
        await histories.CheckAsync(test);
        await cluster.UntilEqualAsync();
    }

    /// <summary>
    /// The file system has space and its device has none, like one that is provisioned thinly: writes in place are refused. The node keeps running
    /// without leading, and writes again without a restart when there is space.
    /// </summary>
    [SmallDiskFact]
    [Trait("Turn", "4")]
    public async Task F18_DeviceWithoutRoomUnderTheLeader_AnotherLeadsAndItRecoversWhenThereIsRoom()
    {
        await using var disk = await SmallDisk.CreateAsync(DiskMebibytes, DiskMebibytes / 2);
        await using var cluster = await FaultCluster.StartAsync(dataOf: node => node == Leader ? disk.Data : null);
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        disk.FillDevice();
        await FillJournalsAsync(cluster);
        await cluster.LeaderAsync(except: Leader);
        await histories.MoreChangesAsync(Some);
        disk.EmptyDevice();
        await histories.MoreChangesAsync(Some);
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
        Assert.True(cluster.Node(Leader).IsRunning);
    }

    /// <summary>Five writes a second. The disk still works, but every caller of the shard would wait for it.</summary>
    [SlowDiskFact]
    [Trait("Turn", "1")]
    public async Task F19_LeadersDiskSlow_TransfersTheShard()
    {
        await using var disk = await SmallDisk.CreateAsync(DiskMebibytes, 2 * DiskMebibytes);
        await using var cluster = await FaultCluster.StartAsync(dataOf: node => node == Leader ? disk.Data : null);
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        for (var round = 0; ; round++)
        {
            await disk.SlowDownAsync(cluster.Node(Leader).Id, writesPerSecond: 5);
            await cluster.LeaderAsync(except: Leader);
            await Eventually.TrueAsync(
                async () => (await cluster.StatusOfAsync(Leader))?.Replicas.FirstOrDefault()?.Role == Role.Follower, "the node with the slow disk follows");
            await histories.MoreChangesAsync(Some);
            await SmallDisk.SpeedUpAsync(cluster.Node(Leader).Id);
            if (cluster.Node(Leader).Log.Any(static line => line.Contains("its disk is slow", StringComparison.Ordinal)))
                break;
            // The busy machine caused an election first.
            Assert.True(round < 5, "The leader does not report that its disk is slow.");
            await cluster.UntilLeadsAsync(Leader);
        }

        await histories.MoreChangesAsync(Some);
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
    }

    // What the alert of a full disk goes by.
    private static async Task<bool> IsFullAsync(string admin)
    {
        IReadOnlyList<double> full = [];
        await Eventually.TrueAsync(
            async () => (full = await Scrape.ValuesAsync(admin, "kvcluster_node_replicas_impaired", "kvcluster_disk=\"full\"")).Count > 0,
            "the node shows its metrics");
        return full.Sum() > 0;
    }

    // Writes so much that journals need new blocks. A leader whose disk is full refuses puts until another one leads.
    private static async Task FillJournalsAsync(FaultCluster cluster)
    {
        // Long enough for a leader with a failing disk to be replaced, on any machine.
        await using var client = new KvClient(new KvClientOptions { Endpoints = cluster.Endpoints, Timeout = Eventually.Limit });
        var value = new byte[64 << 10];
        Random.Shared.NextBytes(value);
        for (var number = 0; number < 64; number++)
        {
            var key = System.Text.Encoding.UTF8.GetBytes($"large/{number % 8}");
            await Eventually.TrueAsync(() => TryPutAsync(client, key, value), "a leader has room for a put");
        }
    }

    // False if the leader's disk is full.
    private static async Task<bool> TryPutAsync(KvClient client, byte[] key, byte[] value)
    {
        try
        {
            await client.PutAsync(key, value);
            return true;
        }
        catch (KvException refused) when (refused.Reason == "DISK_FULL")
        {
            return false;
        }
    }

    private static async Task<KvException> PutUntilRefusedAsync(KvClient client)
    {
        var value = new byte[64 << 10];
        Random.Shared.NextBytes(value);
        for (var number = 0; number < 16 * DiskMebibytes; number++)
        {
            try
            {
                await client.PutAsync(System.Text.Encoding.UTF8.GetBytes($"large/{number}"), value);
            }
            catch (KvException refused)
            {
                return refused;
            }
        }

        throw new InvalidOperationException("More was put than the disk has space for.");
    }
}
