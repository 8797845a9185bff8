using KvCluster.Benchmarks.Cluster;
using KvCluster.Benchmarks.Engine;
using KvCluster.Processes;

namespace KvCluster.Benchmarks.Shards;

/// <summary>
/// What many shards cost: puts into 64 shards beside the same puts into one, what idle replicas take of disk and processors, how long a dead node's leaderships
/// are without a leader, and how long a killed node needs to open its replicas. All processes share the machine.
/// </summary>
internal static class ShardsSuite
{
    /// <summary>The suite's name in its rows.</summary>
    public const string Name = "shards";

    /// <summary>This system in its rows.</summary>
    public const string Ours = "kvcluster, KvClient";

    /// <summary>The shards of the larger of two clusters that are compared.</summary>
    public const int Many = 64;

    // The space that a replica keeps for when the disk is full. A setting of the store, not a cost of a shard.
    private const string ReserveFile = "reserve";

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(ShardsPlan plan, Action<string> progress, CancellationToken cancellation)
    {
        if (!EtcdProcesses.AreAvailable)
        {
            progress("etcd, the coordinator of these clusters: not on PATH and not beside the repository; all left out");
            return [];
        }

        var rows = new List<BenchmarkRow>();
        await using (var many = await ShardedCluster.StartAsync(Many, cancellation))
        await using (var one = await ShardedCluster.StartAsync(shards: 1, cancellation))
        {
            rows.Add(await DiskRowAsync(many.Servers, plan.Settle, progress, cancellation));
            rows.AddRange(await ShardLoadMeasure.RunAsync(one, many, plan, progress, cancellation));
        }
        rows.AddRange(await IdleShardsMeasure.RunAsync(plan, progress, cancellation));
        rows.AddRange(await OpenMeasure.RunAsync(plan, progress, cancellation));
        return rows;
    }

    /// <summary>How many times the one is the other, in each round.</summary>
    public static double[] Ratios(IReadOnlyList<double> from, IReadOnlyList<double> to) => [.. to.Zip(from, static (to, from) => to / from)];

    // The median is over replicas.
    private static async Task<BenchmarkRow> DiskRowAsync(NodeServers servers, TimeSpan settle, Action<string> progress, CancellationToken cancellation)
    {
        await Task.Delay(settle, cancellation);
        var bytes = Enumerable.Range(1, FaultSuite.Nodes)
            .SelectMany(node => Directory.EnumerateDirectories(Path.Combine(servers.DataOf(node), "shards")))
            .Select(static replica => (double)DeviceCounters.BytesAllocated(replica, except: ReserveFile)).ToList();
        progress($"disk: {bytes.Count} replicas, {bytes.Min():F0} to {bytes.Max():F0} bytes each");
        return BenchmarkRow.Of(Name, $"disk of an empty replica, {servers.Shards} shards", Ours, "bytes", bytes);
    }
}
