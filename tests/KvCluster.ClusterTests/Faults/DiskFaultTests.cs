using System.Runtime.CompilerServices;
using KvCluster.Client;
using KvCluster.ClusterTests.History;

namespace KvCluster.ClusterTests.Faults;

/// <summary>Disks that are full or fail, under five client processes whose histories must be linearizable.</summary>
public sealed class DiskFaultTests
{
    private const int Some = 150;
    private const int DiskMebibytes = 64;

    // Where one shard belongs, and a node that leads nothing unless both others fail.
    private const int Leader = 1;
    private const int Follower = 3;

    [SmallDiskFact]
    public async Task F18_FollowersDiskFull_HoldsNobodyUpAndCatchesUpWhenThereIsRoom()
    {
        await using var disk = await SmallDisk.CreateAsync(DiskMebibytes, 2 * DiskMebibytes);
        await using var cluster = await FaultCluster.StartAsync(dataOf: node => node == Follower ? disk.Data : null);
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        disk.Fill();
        await FillJournalsAsync(cluster);
        await cluster.HandOverAsync();
        await histories.MoreChangesAsync(Some);
        disk.Empty();
        await histories.MoreChangesAsync(Some);
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
    }

    /// <summary>The node that leads: its leaderships go to nodes with room, and no writer is refused meanwhile.</summary>
    [SmallDiskFact]
    public async Task F18_LeadersDiskFull_HandsItsLeadershipsOver()
    {
        await using var disk = await SmallDisk.CreateAsync(DiskMebibytes, 2 * DiskMebibytes);
        // A shard for each node to lead; puts go to all.
        await using var cluster = await FaultCluster.StartAsync(splitAt: "large/3,large/6", dataOf: node => node == 1 ? disk.Data : null);
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        disk.Fill();
        await Eventually.TrueAsync(async () =>
        {
            await FillJournalsAsync(cluster);
            return await cluster.StatusOfAsync(1) is { } status && status.Replicas.All(replica => replica.Role == "follower");
        }, "the node whose disk is full leads nothing");
        await histories.MoreChangesAsync(Some);
        disk.Empty();
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
    }

    /// <summary>All three: nothing can be put, each refusal says why, reads and deletes work; and puts again once there is room.</summary>
    [SmallDiskFact]
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

    /// <summary>The disk beneath a follower's journal takes no write: what it could not sync it does not acknowledge, and a restart recovers it.</summary>
    [BadDiskFact]
    public Task F17_DeviceFailsUnderAFollower_HoldsNobodyUpAndARestartRecovers() => FailDeviceAsync(Follower);

    /// <summary>The same beneath the leader's: another leads.</summary>
    [BadDiskFact]
    public Task F17_DeviceFailsUnderTheLeader_AnotherLeadsAndARestartRecovers() => FailDeviceAsync(Leader);

    private static async Task FailDeviceAsync(int node, [CallerMemberName] string test = "")
    {
        await using var disk = await BadDisk.CreateAsync();
        await using var cluster = await FaultCluster.StartAsync(dataOf: other => other == node ? disk.Data : null);
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        disk.Rule($"write-error {BadDisk.InRules("shards/0/")}");
        await FillJournalsAsync(cluster);
        // Nothing more is concluded from a file whose sync failed: the process has ended.
        await Eventually.TrueAsync(() => Task.FromResult(!cluster.Node(node).IsRunning), "the node has ended");
        await cluster.LeaderAsync(except: node);
        await histories.MoreChangesAsync(Some);
        await cluster.HandOverAsync();
        await histories.MoreChangesAsync(Some);
        disk.Rule();
        cluster.Node(node).Start();
        await histories.MoreChangesAsync(Some);
        await histories.CheckAsync(test);
        await cluster.UntilEqualAsync();
    }

    /// <summary>
    /// The file system has room and the device beneath it none, as one that is provisioned thinly: writes in place are refused. The node goes on without
    /// leading, and writes again once there is room, without a restart.
    /// </summary>
    [SmallDiskFact]
    public async Task F18_DeviceWithoutRoomUnderTheLeader_AnotherLeadsAndItGoesOnWhenThereIsRoom()
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

    /// <summary>Five writes a second: it still answers, and every caller of the shard would wait for it.</summary>
    [SlowDiskFact]
    public async Task F19_LeadersDiskSlow_HandsTheShardOver()
    {
        await using var disk = await SmallDisk.CreateAsync(DiskMebibytes, 2 * DiskMebibytes);
        await using var cluster = await FaultCluster.StartAsync(dataOf: node => node == Leader ? disk.Data : null);
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        for (var round = 0; ; round++)
        {
            await disk.SlowDownAsync(cluster.Node(Leader).Id, writesPerSecond: 5);
            await cluster.LeaderAsync(except: Leader);
            await Eventually.TrueAsync(async () => (await cluster.StatusOfAsync(Leader))?.Replicas.FirstOrDefault()?.Role == "follower", "the node with the slow disk follows");
            await histories.MoreChangesAsync(Some);
            await SmallDisk.SpeedUpAsync(cluster.Node(Leader).Id);
            if (cluster.Node(Leader).Log.Any(static line => line.Contains("its disk is slow", StringComparison.Ordinal)))
                break;
            // An election of a busy machine came first.
            Assert.True(round < 5, "The leader does not say that its disk is slow.");
            await cluster.UntilLeadsAsync(Leader);
        }

        await histories.MoreChangesAsync(Some);
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
    }

    // So much that journals need new blocks.
    private static async Task FillJournalsAsync(FaultCluster cluster)
    {
        // Long enough for a leader whose disk fails to be replaced, wherever this runs.
        await using var client = new KvClient(new KvClientOptions { Endpoints = cluster.Endpoints, Timeout = Eventually.Limit });
        var value = new byte[64 << 10];
        Random.Shared.NextBytes(value);
        for (var number = 0; number < 64; number++)
            await client.PutAsync(System.Text.Encoding.UTF8.GetBytes($"large/{number % 8}"), value);
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

        throw new InvalidOperationException("More was put than there is room for.");
    }
}
