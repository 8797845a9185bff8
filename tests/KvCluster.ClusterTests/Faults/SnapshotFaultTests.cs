using KvCluster.Admin.V1;
using KvCluster.Client;
using KvCluster.ClusterTests.History;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.Faults;

/// <summary>F40: a failed snapshot costs no healthy replica and is repeated. F54: so is one for which a damaged copy has to give way.</summary>
[Trait("Turn", "6")]
public sealed class SnapshotFaultTests
{
    private const int Some = 150;
    private const int DiskMebibytes = 64;
    private const int ValueBytes = 256 << 10;

    // A shard of 24 MiB, on a disk with room for one copy of it and no second one.
    private const int RebuildDiskMebibytes = 160;
    private const int LargeValues = 96;
    private const long RoomBytes = 20 << 20;

    // Not the preferred node of the shard.
    private const int Follower = 3;

    [SmallDiskFact]
    public async Task F40_ReceiverHasNoRoom_KeepsRunningAndInstallsTheSnapshotWhenThereIsSome()
    {
        await using var disk = await SmallDisk.CreateAsync(DiskMebibytes, 2 * DiskMebibytes);
        await using var cluster = await FaultCluster.StartAsync(
            dataOf: node => node == Follower ? disk.Data : null, prepare: static node => node.Options = ["--journal-retention-mib", "1"]);
        await FallBehindAsync(cluster);
        var replica = await ReplicaOnAsync(cluster, Follower);
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        disk.Fill();
        var since = cluster.Nodes.ToDictionary(static node => node.Node, static node => node.Log.Count);
        cluster.Network.Heal();
        await cluster.UntilOneSaysAsync("its disk has no space for it", since);
        await histories.MoreChangesAsync(Some);
        // The full disk used to end the process, again at each of its starts.
        Assert.True(cluster.Node(Follower).IsRunning);
        Assert.DoesNotContain(cluster.Node(Follower).Log, static line => line.Contains("stopped:", StringComparison.Ordinal));
        disk.Empty();
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
        Assert.Equal(replica, await ReplicaOnAsync(cluster, Follower));
    }

    [ToolFact("etcd", "etcdctl")]
    public async Task F40_PageGoneBadAtTheSender_CostsTheSenderAndNotItsReceivers()
    {
        await using var cluster = await FaultCluster.StartAsync(prepare: static node => node.Options = ["--journal-retention-mib", "1"]);
        await FallBehindAsync(cluster);
        var leader = await cluster.LeaderAsync();
        var (bad, behind) = (await ReplicaOnAsync(cluster, leader), await ReplicaOnAsync(cluster, Follower));
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        FlipBits(Directory.GetFiles(Path.Combine(cluster.Node(leader).Data, "shards", "0"), "data", SearchOption.AllDirectories).Single());
        // A stall of the machine may have made the other one the sender.
        await cluster.UntilLeadsAsync(leader);
        cluster.Network.Heal();
        await Eventually.TrueAsync(async () => await ReplicaOnAsync(cluster, leader) != bad, "the sender's replica is replaced");
        await histories.MoreChangesAsync(Some);
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
        Assert.Equal(behind, await ReplicaOnAsync(cluster, Follower));
    }

    /// <summary>
    /// The damaged replica was kept in the way of the one that was to replace it. The snapshot was refused for ever, in one line of level info, and with the
    /// next failure the shard had no leader.
    /// </summary>
    [SmallDiskFact]
    public async Task F54_RebuildWithoutRoomForTwoCopies_TheDamagedCopyGivesWay()
    {
        await using var disk = await SmallDisk.CreateAsync(RebuildDiskMebibytes, 2 * RebuildDiskMebibytes);
        await using var cluster = await StartWithLargeShardAsync(disk);
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        var before = await ReplicaOnAsync(cluster, Follower);
        disk.FillExcept(RoomBytes);
        var since = cluster.Node(Follower).Log.Count;
        await FaultCluster.AnsweredAsync(
            () => cluster.AdminOf(Follower).QuarantineAsync(new QuarantineRequest { Shard = 0, Node = Follower, Reason = "a test does not believe it" }));
        await cluster.UntilSaidAsync(Follower, "is deleted because its space is needed", since);
        await RebuiltAsync(cluster, before);
        Assert.False(Directory.Exists(Path.Combine(disk.Data, "aside", "0")), "the copy has given way");
        disk.Empty();
        await histories.MoreChangesAsync(Some);
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
    }

    /// <summary>Nobody can tell what a copy without a control file has acknowledged. It stays, an alarm says so, and the operator's command frees it.</summary>
    [SmallDiskFact]
    public async Task F54_CopyWhoseNewestRecordIsUnknown_StaysUntilAnOperatorFreesIt()
    {
        await using var disk = await SmallDisk.CreateAsync(RebuildDiskMebibytes, 2 * RebuildDiskMebibytes);
        await using var cluster = await StartWithLargeShardAsync(disk);
        var before = await ReplicaOnAsync(cluster, Follower);
        await cluster.Node(Follower).KillAsync();
        await File.WriteAllBytesAsync(Path.Combine(disk.Data, "shards", "0", "control"), new byte[8192]);
        disk.FillExcept(RoomBytes);
        var since = cluster.Node(Follower).Log.Count;
        cluster.Node(Follower).Start();
        await cluster.UntilSaidAsync(Follower, "cannot be rebuilt", since);
        await cluster.UntilSaidAsync(Follower, "its newest record cannot be determined", since);
        await Eventually.TrueAsync(
            async () => (await cluster.StatusOfAsync(Follower))?.Replicas is [{ LacksSpace.Length: > 0 }], "kv status names the space that is lacking");
        var copy = Path.Combine(disk.Data, "aside", "0");
        var node = Tools.Built("kv-node");
        var (code, output, error) = await Tools.RunAsync(node, "aside", "remove", disk.Data, "0");
        Assert.Equal((0, ""), (code, error));
        Assert.Contains("Nothing was changed.", output, StringComparison.Ordinal);
        Assert.True(Directory.Exists(copy), "the copy stays until the operator says so");
        (code, output, error) = await Tools.RunAsync(node, "aside", "remove", disk.Data, "0", "--accept-loss");
        Assert.Equal((0, ""), (code, error));
        Assert.Contains($"Deleted '{copy}'.", output, StringComparison.Ordinal);
        await RebuiltAsync(cluster, before);
        disk.Empty();
        await cluster.UntilEqualAsync();
    }

    private static async Task<FaultCluster> StartWithLargeShardAsync(SmallDisk disk)
    {
        var cluster = await FaultCluster.StartAsync(
            dataOf: node => node == Follower ? disk.Data : null,
            prepare: static node => node.Options = ["--journal-retention-mib", "1", "--digest-interval-minutes", "1"]);
        await PutLargeAsync(cluster, LargeValues);
        return cluster;
    }

    private static Task RebuiltAsync(FaultCluster cluster, ulong before) =>
        Eventually.TrueAsync(
            async () => await ReplicaOnAsync(cluster, Follower) is var now && now != 0 && now != before, "the replica is rebuilt under a new id");

    // Waits until its leader's journal no longer reaches back to it. It is still cut off then.
    private static async Task FallBehindAsync(FaultCluster cluster)
    {
        foreach (var other in cluster.Nodes.Where(static node => node.Node != Follower))
            cluster.Network.Cut(other.Node, Follower);
        await PutLargeAsync(cluster, 64);
    }

    // Afterwards no journal reaches back to the beginning.
    private static async Task PutLargeAsync(FaultCluster cluster, int values)
    {
        await using var client = new KvClient(new KvClientOptions { Endpoints = cluster.Endpoints, Timeout = Eventually.Limit });
        var value = new byte[ValueBytes];
        Random.Shared.NextBytes(value);
        for (var number = 0; number < values; number++)
            await client.PutAsync(System.Text.Encoding.UTF8.GetBytes($"large/{number}"), value);
        // Twice, because the older of the two meta pages still needs the journal.
        await cluster.CheckpointAsync();
        await client.PutAsync("between", "two checkpoints");
        await cluster.CheckpointAsync();
    }

    private static async Task<ulong> ReplicaOnAsync(FaultCluster cluster, int node) =>
        (await cluster.RecordAsync()).Replicas.FirstOrDefault(replica => replica.Node == node && !replica.Learner)?.Replica ?? 0;

    // One in a hundred pages, in values that only a snapshot reads.
    private static void FlipBits(string path)
    {
        using var file = new FileStream(path, FileMode.Open, FileAccess.ReadWrite, FileShare.ReadWrite);
        for (var offset = 1L << 20; offset < file.Length - 100; offset += 100 * 8192)
        {
            file.Position = offset;
            var flipped = (byte)(file.ReadByte() ^ 1);
            file.Position = offset;
            file.WriteByte(flipped);
        }
    }
}
