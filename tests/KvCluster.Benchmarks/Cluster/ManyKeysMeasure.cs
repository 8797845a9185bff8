using System.Diagnostics;
using KvCluster.Client;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>
/// A cluster of three with more data than its memory for changed pages: 10 million records of 100 bytes are loaded, then read and overwritten in
/// random order. Shows the cost of cold pages, and whether leaders stay: leaderships that move are counted in a separate row.
/// </summary>
internal static class ManyKeysMeasure
{
    private const string Workload = "10 M keys";
    private const int KeyCount = 10_000_000;
    private const int ValueBytes = 100;
    private const int BatchKeys = 500;
    private const int LoadersMax = 16;
    private const int Runs = 3;
    private static readonly TimeSpan Duration = TimeSpan.FromSeconds(20);

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(string suite, string system, Action<string> progress, CancellationToken cancellation)
    {
        await using var servers = await KvServers.StartAsync(cancellation);
        await using var client = new KvClient(servers.RouterAddress);
        var values = ManyKeys.Values(ValueBytes);
        var rows = new List<BenchmarkRow> { BenchmarkRow.Of(
            suite, $"{Workload}: load in batches of {BatchKeys}", system, "op/s", [await LoadAsync(client, values, progress, cancellation)]) };
        var epoch = await EpochAsync(client, cancellation);
        (string Name, int Callers, Func<int, int, Task> Operation)[] workloads =
        [
            ("get", 64, (caller, number) => GetAsync(caller, number)),
            ("get", 256, (caller, number) => GetAsync(caller, number)),
            ("get and put in turn", 256, (caller, number) => number % 2 == 0 ? GetAsync(caller, number) : PutAsync(caller, number)),
            ("put", 256, (caller, number) => PutAsync(caller, number)),
        ];
        foreach (var (name, callers, operation) in workloads)
        {
            var outcomes = new List<ClosedLoop.Outcome>();
            for (var run = 0; run < Runs; run++)
            {
                outcomes.Add(await ClosedLoop.RunAsync(callers, Duration, servers.Processes, operation, cancellation));
                progress($"{Workload}: {name}, {callers} callers: {outcomes[^1].OperationsPerSecond:F0}/s, p50 {outcomes[^1].P50Milliseconds:F2} ms, p99 "
                    + $"{outcomes[^1].P99Milliseconds:F2} ms");
            }
            var workload = $"{Workload}: {name}, {callers} callers";
            rows.Add(BenchmarkRow.Of(suite, workload, system, "op/s", outcomes.ConvertAll(outcome => outcome.OperationsPerSecond)));
            rows.Add(BenchmarkRow.Of(suite, workload, system, "p50 ms", outcomes.ConvertAll(outcome => outcome.P50Milliseconds)));
            rows.Add(BenchmarkRow.Of(suite, workload, system, "p99 ms", outcomes.ConvertAll(outcome => outcome.P99Milliseconds)));
        }
        rows.Add(BenchmarkRow.Of(suite, $"{Workload}: epochs won meanwhile", system, "elections", [await EpochAsync(client, cancellation) - epoch]));
        return rows;

        async Task GetAsync(int caller, int number)
        {
            if (!(await client.GetAsync(ManyKeys.Key(ManyKeys.Spread(caller, number, KeyCount)))).Found)
                throw new InvalidOperationException("A key that was loaded is not found: the numbers would be of something else.");
        }

        async Task PutAsync(int caller, int number) =>
            await client.PutAsync(ManyKeys.Key(ManyKeys.Spread(caller, number, KeyCount)), values[number & (values.Length - 1)]);
    }

    private static async Task<double> LoadAsync(KvClient client, byte[][] values, Action<string> progress, CancellationToken cancellation)
    {
        var started = Stopwatch.GetTimestamp();
        var options = new ParallelOptions { MaxDegreeOfParallelism = LoadersMax, CancellationToken = cancellation };
        await Parallel.ForEachAsync(Enumerable.Range(0, KeyCount / BatchKeys), options, async (batch, stopped) =>
        {
            var write = new KvWrite();
            for (var key = batch * BatchKeys; key < (batch + 1) * BatchKeys; key++)
                write.Put(ManyKeys.Key(key), values[key & (values.Length - 1)]);
            await client.WriteAsync(write, cancellationToken: stopped);
        });
        var rate = KeyCount / Stopwatch.GetElapsedTime(started).TotalSeconds;
        progress($"{Workload}: loaded, {rate:F0}/s");
        return rate;
    }

    private static async Task<double> EpochAsync(KvClient client, CancellationToken cancellation)
    {
        var status = await client.Admin.GetStatusAsync(cancellationToken: cancellation);
        return status.Nodes.SelectMany(node => node.Replicas).Max(replica => (double)replica.Epoch);
    }
}
