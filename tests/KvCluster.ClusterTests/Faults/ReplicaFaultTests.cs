using System.Globalization;
using System.Runtime.CompilerServices;
using KvCluster.Processes;
using KvCluster.V1;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.ClusterTests.Faults;

/// <summary>A replica that restarts without its files, or with changed ones, under five client processes whose histories must be linearizable.</summary>
public sealed class ReplicaFaultTests(SharedCluster shared) : IClassFixture<SharedCluster>
{
    private const int Some = 100;
    private const int PageBytes = 8192;
    private const int MetaBytes = 2 * PageBytes;
    private const int JournalBlockBytes = 4096;

    // The preferred node of the only shard, and a node that leads nothing unless both others fail.
    private const int Leader = 1;
    private const int Follower = 3;

    [ToolFact("etcd", "etcdctl", "lincheck")]
    [Trait("Turn", "7")]
    public async Task F29_WipedDisk_IsReplacedUnderANewIdAndCatchesUp()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        var before = await ReplicaAsync(cluster, Follower);
        await cluster.Node(Follower).KillAsync();
        await cluster.TransferAsync();
        Directory.Delete(cluster.Node(Follower).Data, recursive: true);
        await UnregisterAsync(cluster, Follower);
        cluster.Node(Follower).Start();
        await histories.MoreChangesAsync(Some);
        await shared.EndAsync();
        // Its promises and acknowledgements are lost, so it must not vote under the same id.
        Assert.NotEqual(before, await ReplicaAsync(cluster, Follower));
    }

    /// <summary>With an old copy of its data, the node would vote and acknowledge as if it had never had the later records.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    [Trait("Turn", "7")]
    public async Task F29_OldCopyOfTheData_IsSetAsideAndReplacedThroughALearner()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        var node = cluster.Node(Follower);
        await node.KillAsync();
        var copy = Path.Combine(cluster.Folder, "copy");
        EtcdProcesses.CopyFolder(node.Data, copy);
        node.Start();
        await cluster.UntilFollowsAsync(Follower);
        await histories.MoreChangesAsync(Some);
        var before = await ReplicaAsync(cluster, Follower);
        await node.KillAsync();
        Directory.Delete(node.Data, recursive: true);
        Directory.Move(copy, node.Data);
        await cluster.LeaderAsync(except: Follower);
        var acknowledged = await AcknowledgedInAllAsync(cluster, before);
        var since = node.Log.Count;
        await UnregisterAsync(cluster, Follower);
        node.Start();
        await cluster.UntilSaidAsync(Follower, "is an old copy", since);
        await UntilReplacedAsync(cluster, Follower, before, acknowledged);
        Assert.True(Directory.Exists(Path.Combine(node.Data, "aside", "0")), "what it held is kept");
        await cluster.TransferAsync();
        await histories.MoreChangesAsync(Some);
        await shared.EndAsync();
        var record = await cluster.RecordAsync();
        Assert.Equal(3, record.Replicas.Count(static replica => replica is { Learner: false, Created: true }));
        Assert.Contains(before, record.Removed);
    }

    /// <summary>Every page of the trees is damaged and the meta pages are sound. The first page read reveals it.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    [Trait("Turn", "6")]
    public Task F16_FlippedBitsInTheTree_AreFoundAndRepairedFromAPeer() =>
        DamageAsync(Follower, static state => FlipBits(DataOf(state), PageBytes, from: MetaBytes));

    /// <summary>Neither meta page leads to the trees any more.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    [Trait("Turn", "6")]
    public Task F16_FlippedBitsInBothMetaPages_AreFoundAndRepairedFromAPeer() =>
        DamageAsync(Follower, static state => FlipBits(DataOf(state), PageBytes, from: 0, end: MetaBytes));

    /// <summary>Each page of the trees is sound but in the place of another one, as after misplaced writes.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    [Trait("Turn", "6")]
    public Task F16_SwappedPages_AreFoundAndRepairedFromAPeer() => DamageAsync(Follower, static state => SwapPages(DataOf(state)));

    /// <summary>The preferred node of the shard, which would lead again as soon as it may. All its files are damaged.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    [Trait("Turn", "6")]
    public Task F16_FlippedBitsInAllOfTheLeadersFiles_AreFoundAndRepairedFromAPeer() => DamageAsync(Leader, static state =>
    {
        FlipBits(DataOf(state), PageBytes, from: 0);
        foreach (var segment in SegmentsOf(state))
            FlipBits(segment, JournalBlockBytes, from: 0);
    });

    /// <summary>
    /// Every block of its segments except their headers is damaged. That is more than unsynced data, so the replica must not continue with the rest
    /// as if that were everything.
    /// </summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    [Trait("Turn", "6")]
    public async Task F16_FlippedBitsInTheJournal_AreFoundAndRepairedFromAPeer()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        await cluster.Node(Follower).KillAsync();
        var since = cluster.Node(Follower).Log.Count;
        foreach (var segment in SegmentsOf(State(cluster, Follower)))
            FlipBits(segment, JournalBlockBytes, from: JournalBlockBytes);
        cluster.Node(Follower).Start();
        await cluster.TransferAsync();
        await histories.MoreChangesAsync(Some);
        await shared.EndAsync();
        await Eventually.TrueAsync(
            () => cluster.Node(Follower).Log.Skip(since).Any(static line => line.Contains("Opening '", StringComparison.Ordinal)
                && !line.Contains(": sound:", StringComparison.Ordinal)),
            "the node says that it has found damage");
    }

    // A node dies, and its files have changed when it restarts.
    private async Task DamageAsync(int node, Action<string> damage, [CallerMemberName] string test = "")
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        await cluster.CheckpointAsync();
        await histories.MoreChangesAsync(Some);
        var before = await ReplicaAsync(cluster, node);
        await cluster.Node(node).KillAsync();
        damage(State(cluster, node));
        await cluster.LeaderAsync(except: node);
        var acknowledged = await AcknowledgedInAllAsync(cluster, before);
        cluster.Node(node).Start();
        await UntilReplacedAsync(cluster, node, before, acknowledged);
        await cluster.TransferAsync();
        await histories.MoreChangesAsync(Some);
        await shared.EndAsync(test);
    }

    // Its promises and acknowledgements may be lost. It must not lead or acknowledge under its id, so it gets another one.
    private static Task UntilReplacedAsync(FaultCluster cluster, int node, ulong before, KvCluster.Etag acknowledged) => Eventually.TrueAsync(async () =>
    {
        Assert.True(await AcknowledgedAsync(cluster, before) is not { } now || now <= acknowledged, "a damaged replica acknowledged");
        var replica = (await cluster.StatusOfAsync(node))?.Replicas.FirstOrDefault();
        Assert.False(replica?.Replica == before && replica.Role == Role.Leader, "a damaged replica leads");
        return replica is { Role: Role.Follower or Role.Leader } && replica.Replica != before;
    }, $"the damaged replica {before} is replaced");

    // The same after a node has died, when its leader has read the last that was on the way.
    private static async Task<KvCluster.Etag> AcknowledgedInAllAsync(FaultCluster cluster, ulong replica)
    {
        KvCluster.Etag? last = null;
        await Eventually.TrueAsync(
            async () =>
            {
                var before = last;
                await Task.Delay(TimeSpan.FromMilliseconds(250));
                last = await AcknowledgedAsync(cluster, replica);
                return last is not null && last == before;
            },
            "a leader counts what the replica has acknowledged");
        return last!.Value;
    }

    // The acknowledged end of a replica's journal, as the leader counts it; null if no leader says so.
    private static async Task<KvCluster.Etag?> AcknowledgedAsync(FaultCluster cluster, ulong replica)
    {
        var statuses = await Task.WhenAll(cluster.Nodes.Where(static node => node.IsRunning).Select(node => cluster.StatusOfAsync(node.Node, detailOf: 0)));
        return statuses.SelectMany(static status => status?.Replicas ?? []).SelectMany(static own => own.Detail?.Followers ?? [])
            .Where(follower => follower.Replica == replica)
            .Select(static follower => (KvCluster.Etag?)new KvCluster.Etag(follower.Acknowledged?.Epoch ?? 0, follower.Acknowledged?.Change ?? 0)).Max();
    }

    // Has the effect of the end of its lease, which takes up to ten seconds and for which a node without its newest data waits.
    private static Task UnregisterAsync(FaultCluster cluster, int node) =>
        cluster.Etcd.ControlAsync("del", string.Create(CultureInfo.InvariantCulture, $"/kvcluster/local/nodes/{node}"));

    private static string State(FaultCluster cluster, int node) =>
        Directory.GetDirectories(Path.Combine(cluster.Node(node).Data, "shards", "0"), "state-*").Max()!;

    private static string DataOf(string state) => Directory.GetFiles(state, "data").Single();

    private static string[] SegmentsOf(string state) => Directory.GetFiles(Path.Combine(state, "journal"));

    // Flips one bit in every page or block that is in use.
    private static void FlipBits(string file, int pageBytes, int from, int end = int.MaxValue) => Rewrite(file, bytes =>
    {
        foreach (var start in UsedPages(bytes, pageBytes, from).TakeWhile(start => start < end))
            bytes[start + 20] ^= 0x10;
    });

    private static void SwapPages(string file) => Rewrite(file, static bytes =>
    {
        foreach (var pair in UsedPages(bytes, PageBytes, MetaBytes).Chunk(2).Where(static pair => pair.Length == 2))
        {
            var first = bytes.AsSpan(pair[0], PageBytes).ToArray();
            bytes.AsSpan(pair[1], PageBytes).CopyTo(bytes.AsSpan(pair[0]));
            first.CopyTo(bytes.AsSpan(pair[1]));
        }
    });

    private static IEnumerable<int> UsedPages(byte[] bytes, int pageBytes, int from)
    {
        for (var start = from; start + pageBytes <= bytes.Length; start += pageBytes)
            if (bytes.AsSpan(start, pageBytes).ContainsAnyExcept((byte)0))
                yield return start;
    }

    private static void Rewrite(string file, Action<byte[]> change)
    {
        var bytes = File.ReadAllBytes(file);
        change(bytes);
        using var output = new FileStream(file, FileMode.Open, FileAccess.Write);
        output.Write(bytes);
    }

    private static async Task<ulong> ReplicaAsync(FaultCluster cluster, int node)
    {
        ReplicaStatus? replica = null;
        await Eventually.TrueAsync(async () => (replica = (await cluster.StatusOfAsync(node))?.Replicas.FirstOrDefault()) is not null, "the replica's status");
        return replica!.Replica;
    }
}
