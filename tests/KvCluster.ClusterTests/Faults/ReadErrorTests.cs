using System.Globalization;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.V1;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.ClusterTests.Faults;

/// <summary>
/// F46: a bad sector under one node. It ended the process by SIGBUS at every touch and was not found at any start. Nobody repaired it, and all other
/// shards of the node went down as well.
/// </summary>
[Trait("Turn", "6")]
public sealed class ReadErrorTests
{
    // A node that leads nothing unless both others fail.
    private const int Node = 3;
    private const int Values = 320;
    private const int ValueBytes = 16 << 10;

    // Inlined values, so that there are leaves as well as large values. Enough of both are beyond the file's first MiB.
    private const int SmallValues = 4_000;
    private const string DataFile = "shards/0/state-00000001/data";

    // Only pages of the trees, so that the replica can be opened.
    private static readonly string BadSectors =
        $"read-error {BadDisk.InRules(DataFile)} {(1 << 20).ToString(CultureInfo.InvariantCulture)} {(1 << 20).ToString(CultureInfo.InvariantCulture)}";

    [BadDiskFact]
    public async Task F46_BadPageNeverTouched_IsRepairedFromAPeerAndTheProcessLives()
    {
        await using var disk = await BadDisk.CreateAsync();
        await using var cluster = await FaultCluster.StartAsync(dataOf: node => node == Node ? disk.Data : null);
        await LoadAsync(cluster);
        var before = await ReplicaAsync(cluster);
        var process = cluster.Node(Node).Id;
        await disk.ForgetAsync(DataFile);
        disk.Rule(BadSectors);
        await Eventually.TrueAsync(async () =>
        {
            await ScanAsync(cluster);
            return cluster.Node(Node).Log.Any(static line => line.Contains("cannot be read", StringComparison.Ordinal)) || !cluster.Node(Node).IsRunning;
        }, "the page is touched");
        // A disk remaps a bad sector when it is rewritten.
        disk.Rule();
        await UntilReplacedAsync(cluster, before);
        Assert.True(cluster.Node(Node).IsRunning && cluster.Node(Node).Id == process, "The process ended.");
    }

    [BadDiskFact]
    public async Task F46_PageGoneBadAfterItsFirstTouch_EndsTheProcessOnceAndIsRepaired()
    {
        await using var disk = await BadDisk.CreateAsync();
        await using var cluster = await FaultCluster.StartAsync(dataOf: node => node == Node ? disk.Data : null);
        await LoadAsync(cluster);
        await ScanAsync(cluster);
        var before = await ReplicaAsync(cluster);
        disk.Rule(BadSectors);
        await disk.ForgetMappedAsync(DataFile);
        await Eventually.TrueAsync(async () =>
        {
            await ScanAsync(cluster);
            return !cluster.Node(Node).IsRunning || cluster.Node(Node).Log.Any(static line => line.Contains("cannot be read", StringComparison.Ordinal));
        }, "the page is touched");
        if (!cluster.Node(Node).IsRunning)
        {
            // Nobody reads from it now, so the node must find the bad page by itself.
            var since = cluster.Node(Node).Log.Count;
            cluster.Node(Node).Start();
            await cluster.UntilSaidAsync(Node, "cannot be read", since);
        }
        disk.Rule();
        var process = cluster.Node(Node).Id;
        await UntilReplacedAsync(cluster, before);
        Assert.True(cluster.Node(Node).IsRunning && cluster.Node(Node).Id == process, "The process ended a second time.");
    }

    private static async Task LoadAsync(FaultCluster cluster)
    {
        await using var client = new KvClient(new KvClientOptions { Endpoints = cluster.Endpoints, Timeout = Eventually.Limit });
        var value = new byte[ValueBytes];
        for (var number = 0; number < Values; number++)
            await client.PutAsync(Key("large", number), value);
        for (var first = 0; first < SmallValues; first += 500)
            await Task.WhenAll(Enumerable.Range(first, 500).Select(number => client.PutAsync(Key("small", number), new byte[400]).AsTask()));
        await cluster.UntilEqualAsync();
        await cluster.CheckpointAsync();
    }

    private static byte[] Key(string kind, int number) =>
        System.Text.Encoding.UTF8.GetBytes(string.Create(CultureInfo.InvariantCulture, $"{kind}/{number:00000}"));

    private static async Task ScanAsync(FaultCluster cluster)
    {
        var request = new ScanRequest { Read = new ReadOptions { Mode = ReadMode.Replica } };
        try
        {
            using var call = cluster.KvOf(Node).Scan(request, deadline: DateTime.UtcNow.AddSeconds(20));
            while (await call.ResponseStream.MoveNext(default))
            {
            }
        }
        catch (RpcException)
        {
            // The page was read, or nobody answers. The caller decides.
        }
    }

    private static Task UntilReplacedAsync(FaultCluster cluster, ulong before) => Eventually.TrueAsync(
        async () => (await cluster.StatusOfAsync(Node))?.Replicas.FirstOrDefault() is { Role: Role.Follower or Role.Leader } replica
            && replica.Replica != before,
        $"the damaged replica {before} is replaced");

    private static async Task<ulong> ReplicaAsync(FaultCluster cluster)
    {
        ulong id = 0;
        await Eventually.TrueAsync(
            async () => (id = (await cluster.StatusOfAsync(Node))?.Replicas.FirstOrDefault()?.Replica ?? 0) != 0, "the replica's status");
        return id;
    }
}
