// Suite "routing": the cost of finding the shard of a key among 100,000, on one thread, without other load. The budget is 60 ns for keys in file
// order and 200 ns for shuffled ones.
using System.Diagnostics;
using System.Globalization;
using System.Text;
using Google.Protobuf;
using KvCluster.Client.Routing;
using KvCluster.Client.Runtime;
using KvCluster.V1;

namespace KvCluster.Benchmarks.Routing;

/// <summary>Routes paths like those of a file system through the client library's map and prefix cache.</summary>
internal static class RoutingSuite
{
    private const string Suite = "routing";
    private const int Shards = 100_000;
    private const int KeysPerShard = 10;

    public static Task<IReadOnlyList<BenchmarkRow>> Run(bool quick, Action<string> progress, CancellationToken cancellation)
    {
        var random = new Random(1);
        var keys = Paths(random, Shards * KeysPerShard);
        var routes = Enumerable.Range(0, Shards).Select(shard => new ShardRoute
        {
            Shard = (uint)shard + 1,
            Start = shard == 0 ? ByteString.Empty : ByteString.CopyFrom(keys[shard * KeysPerShard]),
            End = shard == Shards - 1 ? ByteString.Empty : ByteString.CopyFrom(keys[(shard + 1) * KeysPerShard]),
            Leader = 1,
        });
        using var table = new RouteTable(ClientRuntime.Machine);
        table.TryFold(new V1.ShardMap { Cluster = "benchmark", Complete = true, Shards = { routes } }, out _);
        var shuffled = keys.ToArray();
        random.Shuffle(shuffled);
        var rows = new List<BenchmarkRow>();
        foreach (var (order, list) in new[] { ("file order", keys), ("shuffled", shuffled) })
        {
            progress($"{list.Length:N0} keys, {order}");
            Measure(table, list);
            double[] nanoseconds = [.. Enumerable.Range(0, quick ? 5 : 15).Select(_ => Measure(table, list)).TakeWhile(_ => !cancellation.IsCancellationRequested)];
            cancellation.ThrowIfCancellationRequested();
            rows.Add(BenchmarkRow.Of(Suite, $"route a key, {Shards:N0} shards, {order}", "kvcluster", "ns", nanoseconds));
        }
        return Task.FromResult<IReadOnlyList<BenchmarkRow>>(rows);
    }

    private static double Measure(RouteTable table, byte[][] keys)
    {
        var sum = 0L;
        var started = Stopwatch.GetTimestamp();
        foreach (var key in keys)
            sum += table.Find(key)!.Shard;
        var nanoseconds = Stopwatch.GetElapsedTime(started).TotalNanoseconds / keys.Length;
        return sum > 0 ? nanoseconds : throw new InvalidOperationException("Nothing was routed.");
    }

    // Sorted paths, some 50 bytes long, with directories of very different sizes. Consecutive in memory, as a loader's would be.
    private static byte[][] Paths(Random random, int count)
    {
        string[] tops = ["files/usr/share/doc/", "files/usr/lib/x86_64-linux-gnu/", "files/usr/include/", "packages/main/"];
        var paths = new SortedSet<string>(StringComparer.Ordinal);
        while (paths.Count < count)
        {
            var directory = string.Create(CultureInfo.InvariantCulture, $"{tops[random.Next(tops.Length)]}lib{random.Next(3_000):x}/part{random.Next(8)}/");
            for (var files = random.Next(1, 40); files > 0 && paths.Count < count; files--)
                paths.Add(string.Create(CultureInfo.InvariantCulture, $"{directory}file{random.Next(1_000_000)}.h"));
        }
        return [.. paths.Select(Encoding.UTF8.GetBytes)];
    }
}
