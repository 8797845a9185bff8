using KvCluster.Client;
using KvCluster.ClusterTests.History;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.Faults;

/// <summary>F40: a failed snapshot costs no healthy replica and is repeated.</summary>
[Trait("Turn", "3")]
public sealed class SnapshotFaultTests
{
    private const int Some = 150;
    private const int DiskMebibytes = 64;
    private const int ValueBytes = 256 << 10;

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
        cluster.Network.Heal();
        await Eventually.TrueAsync(async () => await ReplicaOnAsync(cluster, leader) != bad, "the sender's replica is replaced");
        await histories.MoreChangesAsync(Some);
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
        Assert.Equal(behind, await ReplicaOnAsync(cluster, Follower));
    }

    // Waits until its leader's journal no longer reaches back to it. It is still cut off then.
    private static async Task FallBehindAsync(FaultCluster cluster)
    {
        foreach (var other in cluster.Nodes.Where(static node => node.Node != Follower))
            cluster.Network.Cut(other.Node, Follower);
        await using var client = new KvClient(new KvClientOptions { Endpoints = cluster.Endpoints, Timeout = Eventually.Limit });
        var value = new byte[ValueBytes];
        Random.Shared.NextBytes(value);
        for (var number = 0; number < 64; number++)
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
