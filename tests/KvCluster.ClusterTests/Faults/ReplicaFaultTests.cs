using KvCluster.Processes;
using KvCluster.V1;

namespace KvCluster.ClusterTests.Faults;

/// <summary>A follower that comes back without its files, or with bytes of them changed, under five client processes whose histories must be linearizable.</summary>
public sealed class ReplicaFaultTests(SharedCluster shared) : IClassFixture<SharedCluster>
{
    private const int Some = 100;
    private const int Page = 4096;
    private const int MetaPages = 2;

    // Leads nothing unless both others fail: the only shard belongs to node 1.
    private const int Follower = 3;

    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F29_WipedDisk_IsReplacedUnderANewIdAndCatchesUp()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        var before = await ReplicaAsync(cluster);
        await cluster.Node(Follower).KillAsync();
        Directory.Delete(cluster.Node(Follower).Data, recursive: true);
        cluster.Node(Follower).Start();
        await histories.MoreChangesAsync(Some);
        await shared.EndAsync();
        // What it promised and acknowledged is gone: it must not vote under the same id.
        Assert.NotEqual(before, await ReplicaAsync(cluster));
    }

    /// <summary>Every page of the trees, while its meta pages are whole: whichever is read first tells.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F16_FlippedBitsInTheTree_AreFoundAndRepairedFromAPeer()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        await cluster.CheckpointAsync();
        await histories.MoreChangesAsync(Some);
        var before = await ReplicaAsync(cluster);
        await cluster.Node(Follower).KillAsync();
        Damage(Directory.GetFiles(State(cluster), "data").Single(), firstPage: MetaPages);
        cluster.Node(Follower).Start();
        await histories.MoreChangesAsync(Some);
        await shared.EndAsync();
        Assert.NotEqual(before, await ReplicaAsync(cluster));
    }

    /// <summary>Every block of its segments but their headers: more than what it had not synced, so it must not go on from what is left as if that were all.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F16_FlippedBitsInTheJournal_AreFoundAndRepairedFromAPeer()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        await cluster.Node(Follower).KillAsync();
        var since = cluster.Node(Follower).Log.Count;
        foreach (var segment in Directory.GetFiles(Path.Combine(State(cluster), "journal")))
            Damage(segment, firstPage: 1);
        cluster.Node(Follower).Start();
        await histories.MoreChangesAsync(Some);
        await shared.EndAsync();
        Assert.Contains(cluster.Node(Follower).Log.Skip(since), static line => line.Contains("Opening '", StringComparison.Ordinal) && !line.Contains(": sound:", StringComparison.Ordinal));
    }

    private static string State(FaultCluster cluster) => Directory.GetDirectories(Path.Combine(cluster.Node(Follower).Data, "shards", "0"), "state-*").Max()!;

    // One bit of every page or block that holds anything.
    private static void Damage(string file, int firstPage)
    {
        var bytes = File.ReadAllBytes(file);
        for (var start = firstPage * Page; start + Page <= bytes.Length; start += Page)
            if (bytes.AsSpan(start, Page).ContainsAnyExcept((byte)0))
                bytes[start + 20] ^= 0x10;
        using var output = new FileStream(file, FileMode.Open, FileAccess.Write);
        output.Write(bytes);
    }

    private static async Task<ulong> ReplicaAsync(FaultCluster cluster)
    {
        ReplicaStatus? replica = null;
        await Until.TrueAsync(async () => (replica = (await cluster.StatusOfAsync(Follower))?.Replicas.FirstOrDefault()) is not null, "the replica's status");
        return replica!.Replica;
    }
}
