using KvCluster.Admin.V1;
using KvCluster.Client;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>
/// How late answers are while reads and overwrites in random order, half of each, come at a steady rate to three nodes with 10 million values of 100 bytes and
/// a million of 1 KiB: undisturbed, while every node writes checkpoints one after the other, without a follower, and while that follower catches up with what
/// it missed.
/// </summary>
internal static class MixedLoadMeasure
{
    private const int SmallCount = 10_000_000;
    private const int LargeCount = 1_000_000;
    private const int KeyCount = SmallCount + LargeCount;
    private const int SmallBytes = 100;
    private const int LargeBytes = 1 << 10;
    private const int PerSecond = 20_000;
    private const int Seconds = 20;
    private const int Runs = 3;

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(string suite, string system, Action<string> progress, CancellationToken cancellation)
    {
        await using var servers = await NodeServers.StartAsync(FaultSuite.Nodes, shards: 1, cancellation);
        await using var client = new KvClient(new KvClientOptions { Endpoints = servers.Endpoints });
        var (small, large) = (ManyKeys.Values(SmallBytes), ManyKeys.Values(LargeBytes));
        await LoadAsync();
        progress($"mixed load: {KeyCount:N0} keys loaded");
        // Warms up connections and compiled code.
        await LoadOnceAsync(caller: 0);
        var latencies = new Dictionary<string, List<double[]>>();
        for (var run = 1; run <= Runs; run++)
        {
            await MeasureAsync("undisturbed", run);
            using (var enough = CancellationTokenSource.CreateLinkedTokenSource(cancellation))
            {
                var checkpoints = CheckpointsAsync(enough.Token);
                await MeasureAsync("while checkpoints are written", run);
                await enough.CancelAsync();
                progress($"mixed load: {await checkpoints} checkpoints of all nodes");
            }
            var led = await servers.AllLedAsync(except: 0, cancellation);
            var (leader, follower) = (led.First(node => node.Value == 1).Key, led.First(node => node.Value == 0).Key);
            await servers.KillAsync(follower);
            await MeasureAsync("without a follower", run);
            servers.Start(follower);
            await MeasureAsync("while the follower catches up", run);
            var goal = (await servers.ReplicaAsync(leader, cancellation))!.Committed.Change;
            while ((await servers.ReplicaAsync(follower, cancellation))?.Durable is not { } durable || durable.Change < goal)
                await Task.Delay(20, cancellation);
        }
        return
        [
            .. latencies.SelectMany(phase => (BenchmarkRow[])
            [
                Row(phase.Key, "p50 ms", phase.Value, 0.5),
                Row(phase.Key, "p99 ms", phase.Value, 0.99),
                Row(phase.Key, "p99.9 ms", phase.Value, 0.999),
            ]),
        ];

        BenchmarkRow Row(string phase, string unit, List<double[]> runs, double part) =>
            BenchmarkRow.Of(
                suite, $"{KeyCount / 1_000_000} M keys: get and put, {PerSecond:N0} a second, {phase}", system, unit, runs.ConvertAll(run => At(run, part)));

        async Task MeasureAsync(string phase, int run)
        {
            var sorted = await LoadOnceAsync(run);
            Array.Sort(sorted);
            if (!latencies.TryGetValue(phase, out var runs))
                latencies.Add(phase, runs = []);
            runs.Add(sorted);
            progress($"mixed load, run {run} of {Runs}, {phase}: p50 {At(sorted, 0.5):F2} ms, p99 {At(sorted, 0.99):F2} ms, p99.9 {At(sorted, 0.999):F2} ms, "
                + $"longest {sorted[^1]:F0} ms");
        }

        Task<double[]> LoadOnceAsync(int caller) =>
            OpenLoop.RunAsync(PerSecond, PerSecond * Seconds, number => OperateAsync(ManyKeys.Spread(caller, number, KeyCount), number), cancellation);

        async Task OperateAsync(int key, int number)
        {
            if (number % 2 == 0)
                await client.PutAsync(ManyKeys.Key(key), Value(key), cancellationToken: cancellation);
            else if (!(await client.GetAsync(ManyKeys.Key(key), cancellationToken: cancellation)).Found)
                throw new InvalidOperationException("A key that was loaded is not found: the numbers would be of something else.");
        }

        // Of eleven neighbours one is large.
        ReadOnlyMemory<byte> Value(int key) => (key % (KeyCount / LargeCount) == 0 ? large : small)[key & (small.Length - 1)];

        async Task LoadAsync()
        {
            await using var load = client.BulkLoad();
            for (var key = 0; key < KeyCount; key++)
                await load.AddAsync(ManyKeys.Key(key), Value(key), cancellation);
            await load.FlushAsync(cancellation);
        }

        async Task<int> CheckpointsAsync(CancellationToken enough)
        {
            var done = 0;
            while (!enough.IsCancellationRequested)
            {
                await Task.WhenAll(Enumerable.Range(1, FaultSuite.Nodes)
                    .Select(async node => await servers.AdminOf(node).CheckpointAsync(new CheckpointRequest(), cancellationToken: cancellation)));
                done++;
            }
            return done;
        }
    }

    private static double At(double[] sorted, double part) => sorted[(int)(sorted.Length * part)];
}
