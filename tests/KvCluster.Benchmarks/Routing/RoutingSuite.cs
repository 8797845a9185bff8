// Suite "routing": the cost of finding the shard of a key, and of learning about 100,000 of them, on one thread, without other load. RoutingTargets has the
// budget. Rows that only touch keys or routes show how much of it the memory takes, whatever the search does.
using System.Diagnostics;
using System.Globalization;
using System.Text;
using Google.Protobuf;
using KvCluster.Client.Routing;
using KvCluster.Client.Runtime;
using KvCluster.V1;

namespace KvCluster.Benchmarks.Routing;

/// <summary>Routes the paths of a Linux distribution, or without its list made-up ones, through the client library's map and its last hit.</summary>
internal static class RoutingSuite
{
    public const string Suite = "routing";
    public const string Bytes = "bytes/op";
    private const string System = "kvcluster";
    private const int Shards = 100_000;
    private const int MadeUpKeys = 1_000_000;
    private const int Changes = 1_000;

    public static string LearnFirst { get; } = $"learn a map of {Shards:N0} shards, the process's first";

    public static string FileOrder { get; } = $"route a key, {Shards:N0} shards, file order";

    public static string Shuffled { get; } = $"route a key, {Shards:N0} shards, shuffled";

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(bool quick, Action<string> progress, CancellationToken cancellation)
    {
        var random = new Random(1);
        var keys = await PackageFiles.ReadAsync(progress) is { } lines ? Sorted(lines) : MadeUp(random, MadeUpKeys);
        var whole = MapOf(keys, Shards);
        progress($"{keys.Length:N0} keys, {Shards:N0} shards");
        var rows = new List<BenchmarkRow>();
        using var table = new RouteTable(ClientRuntime.Machine);
        rows.Add(BenchmarkRow.Of(Suite, LearnFirst, System, "ms", [Milliseconds(() => table.TryFold(whole, out _))]));
        rows.Add(Row($"learn a map of {Shards:N0} shards", "ms", quick ? 3 : 9, () =>
        {
            using var another = new RouteTable(ClientRuntime.Machine);
            return Milliseconds(() => another.TryFold(whole, out _));
        }));
        // On tables of their own, because the routes of these end up newer than the map.
        rows.Add(
            Row("learn a shard's new leader", "us", quick ? 3 : 9, () => OfChanges(whole, random, Changes, static (route, change) => [Newer(route, change)])));
        rows.Add(Row(
            "learn that a shard was split", "ms", quick ? 3 : 9, () => OfChanges(whole, random, 1, static (route, change) => Split(route, change)) / 1_000));

        var shuffled = keys.ToArray();
        random.Shuffle(shuffled);
        var (inOrder, inNoOrder) = (new RoutedKeys(keys), new RoutedKeys(shuffled));
        rows.Add(Row("only read a key, file order or shuffled", "ns", quick ? 5 : 15, () => OfReading(inNoOrder)));
        foreach (var shards in (int[])[1_000, 10_000])
        {
            using var fewer = new RouteTable(ClientRuntime.Machine);
            fewer.TryFold(MapOf(keys, shards), out _);
            Route(fewer, $"route a key, {shards:N0} shards, file order", inOrder);
            Route(fewer, $"route a key, {shards:N0} shards, shuffled", inNoOrder);
        }
        Route(table, FileOrder, inOrder);
        Route(table, Shuffled, inNoOrder);
        var slots = shuffled.Select(key => table.Map.FindSlot(key.Span)).ToArray();
        rows.Add(Row($"find only the shard's id, {Shards:N0} shards, file order", "ns", quick ? 5 : 15, () => OfIds(table, inOrder)));
        rows.Add(Row($"find only the shard's id, {Shards:N0} shards, shuffled", "ns", quick ? 5 : 15, () => OfIds(table, inNoOrder)));
        rows.Add(Row($"only search for a key, {Shards:N0} shards, shuffled", "ns", quick ? 5 : 15, () => OfSearches(table, inNoOrder)));
        rows.Add(Row($"only fetch a route, {Shards:N0} shards, shuffled", "ns", quick ? 5 : 15, () => OfRoutes(table, slots)));
        // The processor has to fetch each key from memory, too.
        rows.Add(Row("only read a key, shuffled and scattered", "ns", quick ? 5 : 15, () => OfReadingScattered(shuffled)));
        rows.Add(Row($"{Shuffled} and scattered", "ns", quick ? 5 : 15, () => OfScatteredKeys(table, shuffled)));
        return rows;

        BenchmarkRow Row(string workload, string unit, int rounds, Func<double> measure)
        {
            progress(workload);
            var values = new List<double>();
            for (var round = 0; round < rounds; round++)
            {
                cancellation.ThrowIfCancellationRequested();
                values.Add(measure());
            }
            return BenchmarkRow.Of(Suite, workload, System, unit, values);
        }

        void Route(RouteTable table, string workload, RoutedKeys list)
        {
            // The first passes run code that is not optimized yet.
            for (var pass = 0; pass < 3; pass++)
                OfKeys(table, list);
            var (hits, misses) = (table.Counts.Hits, table.Counts.Misses);
            var allocated = GC.GetAllocatedBytesForCurrentThread();
            OfKeys(table, list);
            allocated = GC.GetAllocatedBytesForCurrentThread() - allocated;
            (hits, misses) = (table.Counts.Hits - hits, table.Counts.Misses - misses);
            rows.Add(Row(workload, "ns", quick ? 5 : 15, () => OfKeys(table, list)));
            rows.Add(BenchmarkRow.Of(Suite, workload, System, Bytes, [(double)allocated / list.Count]));
            rows.Add(BenchmarkRow.Of(Suite, workload, System, "% hits", [100.0 * hits / (hits + misses)]));
        }
    }

    // Nanoseconds a key.
    private static double OfKeys(RouteTable table, RoutedKeys keys)
    {
        var sum = 0L;
        var started = Stopwatch.GetTimestamp();
        for (var index = 0; index < keys.Count; index++)
            sum += table.Find(keys[index])!.Shard;
        return Each(started, keys.Count, sum);
    }

    private static double OfScatteredKeys(RouteTable table, ReadOnlyMemory<byte>[] keys)
    {
        var sum = 0L;
        var started = Stopwatch.GetTimestamp();
        foreach (var key in keys)
            sum += table.Find(key.Span)!.Shard;
        return Each(started, keys.Length, sum);
    }

    // Does not touch the route.
    private static double OfIds(RouteTable table, RoutedKeys keys)
    {
        var sum = 0L;
        var started = Stopwatch.GetTimestamp();
        for (var index = 0; index < keys.Count; index++)
            sum += table.ShardOf(keys[index]).Value;
        return Each(started, keys.Count, sum);
    }

    private static double OfReading(RoutedKeys keys)
    {
        var sum = 0L;
        var started = Stopwatch.GetTimestamp();
        for (var index = 0; index < keys.Count; index++)
            sum += Touch(keys[index]);
        return Each(started, keys.Count, sum);
    }

    private static double OfReadingScattered(ReadOnlyMemory<byte>[] keys)
    {
        var sum = 0L;
        var started = Stopwatch.GetTimestamp();
        foreach (var key in keys)
            sum += Touch(key.Span);
        return Each(started, keys.Length, sum);
    }

    private static double OfSearches(RouteTable table, RoutedKeys keys)
    {
        var (sum, map) = (0L, table.Map);
        var started = Stopwatch.GetTimestamp();
        for (var index = 0; index < keys.Count; index++)
            sum += map.FindSlot(keys[index]);
        return Each(started, keys.Count, sum);
    }

    private static double OfRoutes(RouteTable table, int[] slots)
    {
        var (sum, map) = (0L, table.Map);
        var started = Stopwatch.GetTimestamp();
        foreach (var slot in slots)
            sum += map.RouteOf(slot)!.Shard;
        return Each(started, slots.Length, sum);
    }

    private static double Each(long started, int count, long sum)
    {
        var nanoseconds = Stopwatch.GetElapsedTime(started).TotalNanoseconds / count;
        return sum > 0 ? nanoseconds : throw new InvalidOperationException("Nothing was routed.");
    }

    // Every cache line of a key, and its last byte.
    private static long Touch(ReadOnlySpan<byte> key)
    {
        long sum = key[^1];
        for (var at = 0; at < key.Length; at += 64)
            sum += key[at];
        return sum;
    }

    // Microseconds a change.
    private static double OfChanges(V1.ShardMap whole, Random random, int count, Func<ShardRoute, int, ShardRoute[]> change)
    {
        using var table = new RouteTable(ClientRuntime.Machine);
        table.TryFold(whole, out _);
        RouteHint[] hints = [.. Enumerable.Range(0, count).Select(number => new RouteHint { Routes = { change(whole.Shards[random.Next(Shards)], number) } })];
        return Milliseconds(() => hints.All(table.Fold)) * 1_000 / count;
    }

    private static double Milliseconds(Func<bool> action)
    {
        var started = Stopwatch.GetTimestamp();
        return action() ? Stopwatch.GetElapsedTime(started).TotalMilliseconds : throw new InvalidOperationException("Nothing was learned.");
    }

    private static ShardRoute Newer(ShardRoute route, int change) => new(route) { Epoch = route.Epoch + (ulong)change + 1, Leader = 2 };

    // Between its first key and the least one after that.
    private static ShardRoute[] Split(ShardRoute route, int change)
    {
        var middle = ByteString.CopyFrom([.. route.Start.Span, 0]);
        return
        [
            new(route) { End = middle, Generation = route.Generation + 1 },
            new(route) { Shard = (uint)(Shards + 1 + change), Start = middle },
        ];
    }

    // As many keys in each shard.
    private static V1.ShardMap MapOf(ReadOnlyMemory<byte>[] keys, int shards)
    {
        var routes = Enumerable.Range(0, shards)
            .Select(shard => new ShardRoute { Shard = (uint)shard + 1, Start = Bound(shard), End = Bound(shard + 1), Epoch = 1, Leader = 1 });
        return new V1.ShardMap { Cluster = "benchmark", Complete = true, Shards = { routes } };

        ByteString Bound(int shard) =>
            shard == 0 || shard == shards ? ByteString.Empty : ByteString.CopyFrom(keys[(int)((long)shard * keys.Length / shards)].Span);
    }

    private static ReadOnlyMemory<byte>[] Sorted(ReadOnlyMemory<byte> lines)
    {
        var keys = new List<ReadOnlyMemory<byte>>();
        while (!lines.IsEmpty)
        {
            keys.Add(lines[..lines.Span.IndexOf((byte)'\t')]);
            lines = lines[(lines.Span.IndexOf((byte)'\n') is >= 0 and var end ? end + 1 : lines.Length)..];
        }
        keys.Sort(static (left, right) => left.Span.SequenceCompareTo(right.Span));
        return [.. keys];
    }

    // Sorted paths, some 50 bytes long, with directories of very different sizes.
    private static ReadOnlyMemory<byte>[] MadeUp(Random random, int count)
    {
        string[] tops = ["files/usr/share/doc/", "files/usr/lib/x86_64-linux-gnu/", "files/usr/include/", "packages/main/"];
        var paths = new SortedSet<string>(StringComparer.Ordinal);
        while (paths.Count < count)
        {
            var directory = string.Create(CultureInfo.InvariantCulture, $"{tops[random.Next(tops.Length)]}lib{random.Next(3_000):x}/part{random.Next(8)}/");
            for (var files = random.Next(1, 40); files > 0 && paths.Count < count; files--)
                paths.Add(string.Create(CultureInfo.InvariantCulture, $"{directory}file{random.Next(1_000_000)}.h"));
        }
        return [.. paths.Select(static path => (ReadOnlyMemory<byte>)Encoding.UTF8.GetBytes(path))];
    }
}
