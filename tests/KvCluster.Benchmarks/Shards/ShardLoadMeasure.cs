using KvCluster.Benchmarks.Cluster;
using KvCluster.Benchmarks.Engine;
using KvCluster.Client;

namespace KvCluster.Benchmarks.Shards;

/// <summary>
/// Puts of 100 bytes into one shard and into 64: by many callers, at a steady rate, by one caller in each shard, and beside another shard's large values. The
/// two clusters take turns; while one is measured, the other one is idle and has written its checkpoints.
/// </summary>
/// <remarks>
/// Checkpoints are written between the measurements, so no row has their cost. Writes of the device are those of all programs, so these rows mean something
/// only while no other program writes.
/// </remarks>
internal sealed class ShardLoadMeasure
{
    private const int PerSecond = 5_000;
    private const int LargeCallers = 2;
    private const int LargeKeys = 4;
    private const int WarmUpPartsMax = 6;
    private const double SettledPart = 0.95;

    private static readonly int[] CallerCounts = [256, 1_024];

    private readonly ShardedCluster _one;
    private readonly ShardedCluster _many;
    private readonly ShardsPlan _plan;
    private readonly Action<string> _progress;
    private readonly CancellationToken _cancellation;

    private ShardLoadMeasure(ShardedCluster one, ShardedCluster many, ShardsPlan plan, Action<string> progress, CancellationToken cancellation) =>
        (_one, _many, _plan, _progress, _cancellation) = (one, many, plan, progress, cancellation);

    /// <param name="one">A cluster of one shard.</param>
    /// <param name="many">A cluster of <see cref="ShardsSuite.Many"/> shards.</param>
    /// <param name="plan">The lengths.</param>
    /// <param name="progress">Gets a line for each measurement.</param>
    /// <param name="cancellation">Ends the run with an exception.</param>
    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(
        ShardedCluster one, ShardedCluster many, ShardsPlan plan, Action<string> progress, CancellationToken cancellation)
    {
        var measure = new ShardLoadMeasure(one, many, plan, progress, cancellation);
        foreach (var cluster in (ShardedCluster[])[one, many])
            await measure.WarmUpAsync(cluster);
        var rows = new List<BenchmarkRow>();
        foreach (var callers in CallerCounts)
            rows.AddRange(await measure.ManyCallersAsync(callers));
        rows.AddRange(await measure.SteadyAsync());
        rows.AddRange(await measure.OneCallerOfEachAsync());
        rows.AddRange(await measure.BesideLargeValuesAsync());
        return rows;
    }

    // And on until the CPU of a put falls no more: beside other work the runtime needs longer to recompile.
    private async Task WarmUpAsync(ShardedCluster cluster)
    {
        var before = double.PositiveInfinity;
        for (var part = 0; part < WarmUpPartsMax; part++)
        {
            var load = await CallAsync(cluster, CallerCounts[0], _plan.WarmUp, (_, number) => cluster.PutAsync(number));
            _progress($"warm-up, {ShardsOf(cluster)}: {Text(load)}");
            if (load.CpuMicroseconds > before * SettledPart)
                return;
            before = load.CpuMicroseconds;
        }
    }

    private async Task<IEnumerable<BenchmarkRow>> ManyCallersAsync(int callers)
    {
        var workload = $"put, {callers:N0} callers";
        var (ones, manies) = await AlternateAsync(MeasureAsync);
        return
        [
            .. Compared(workload, "op/s", static outcome => outcome.Load.OperationsPerSecond),
            .. Compared(workload, "p99 ms", static outcome => outcome.Load.P99Milliseconds),
            .. Compared(workload, "server CPU us/op", static outcome => outcome.Load.CpuMicroseconds),
            .. ones[0].Writes is null ? [] : Compared(workload, "device writes/op", static outcome => outcome.Writes!.Value),
        ];

        IEnumerable<BenchmarkRow> Compared(string workload, string unit, Func<(ClosedLoop.Outcome Load, double? Writes), double> value) =>
            ComparedRows(workload, unit, [.. ones.Select(value)], [.. manies.Select(value)]);

        async Task<(ClosedLoop.Outcome Load, double? Writes)> MeasureAsync(ShardedCluster cluster)
        {
            var directory = cluster.Servers.DataOf(node: 1);
            var before = DeviceCounters.WritesCompleted(directory);
            var load = await CallAsync(cluster, callers, _plan.Time, (_, number) => cluster.PutAsync(number));
            var writes = (double?)(DeviceCounters.WritesCompleted(directory) - before) / load.Operations;
            _progress($"{workload}, {ShardsOf(cluster)}: {Text(load)}, {writes:F3} writes of the device an operation");
            return (load, writes);
        }
    }

    // At full load, the more puts wait, the more of them share a sync and a message. At the same rate both clusters have the same work.
    private async Task<IEnumerable<BenchmarkRow>> SteadyAsync()
    {
        var workload = $"put, {PerSecond:N0} a second";
        var (ones, manies) = await AlternateAsync(MeasureAsync);
        return ComparedRows(workload, "server CPU us/op", ones, manies);

        async Task<double> MeasureAsync(ShardedCluster cluster)
        {
            var before = ServerCpu.MicrosecondsOf(cluster.Servers.Processes);
            var latencies = await OpenLoop.RunAsync(PerSecond, (int)(PerSecond * _plan.Time.TotalSeconds), cluster.PutAsync, _cancellation);
            var cpu = (ServerCpu.MicrosecondsOf(cluster.Servers.Processes) - before) / latencies.Length;
            await cluster.CheckpointAsync(_cancellation);
            Array.Sort(latencies);
            _progress($"{workload}, {ShardsOf(cluster)}: {cpu:F1} us CPU an operation, p99 {latencies[(int)(latencies.Length * 0.99)]:F2} ms");
            return cpu;
        }
    }

    // As many callers of one shard, whose puts share records, on the other side.
    private async Task<IEnumerable<BenchmarkRow>> OneCallerOfEachAsync()
    {
        var workload = $"put, {ShardsSuite.Many} callers evenly";
        var (ones, manies) = await AlternateAsync(MeasureAsync);
        return ComparedRows(workload, "p99 ms", ones, manies);

        async Task<double> MeasureAsync(ShardedCluster cluster)
        {
            var load = await CallAsync(cluster, ShardsSuite.Many, _plan.Time, cluster.PutAsync);
            _progress($"{workload}, {ShardsOf(cluster)}: {Text(load)}");
            return load.P99Milliseconds;
        }
    }

    // The large values have a client of their own: what is compared is what the nodes make of them, not how a client's connection shares its bytes.
    private async Task<IEnumerable<BenchmarkRow>> BesideLargeValuesAsync()
    {
        var workload = $"put, a caller in {ShardsSuite.Many - 1} shards";
        await using var large = new KvClient(new KvClientOptions { Endpoints = _many.Servers.Endpoints });
        var value = new byte[KvLimits.ValueBytesMax];
        new Random(7).NextBytes(value);
        var (calm, beside) = (new List<double>(), new List<double>());
        for (var round = 0; round < _plan.Rounds; round++)
        {
            calm.Add(await MeasureAsync("alone"));
            using var enough = CancellationTokenSource.CreateLinkedTokenSource(_cancellation);
            var writers = Task.WhenAll(Enumerable.Range(0, LargeCallers).Select(caller => WriteLargeAsync(caller, enough)));
            beside.Add(await MeasureAsync("beside puts of 8 MiB"));
            await enough.CancelAsync();
            _progress($"{(await writers).Sum()} values of {value.Length:N0} bytes meanwhile");
            await _many.CheckpointAsync(_cancellation);
        }
        return
        [
            BenchmarkRow.Of(ShardsSuite.Name, workload, ShardsSuite.Ours, "p99 ms", calm),
            BenchmarkRow.Of(ShardsSuite.Name, $"{workload}, 8 MiB puts in one", ShardsSuite.Ours, "p99 ms", beside),
            BenchmarkRow.Of(ShardsSuite.Name, $"{workload}, with to without", ShardsSuite.Ours, "p99 ms ratio", ShardsSuite.Ratios(calm, beside)),
        ];

        async Task<double> MeasureAsync(string phase)
        {
            var load = await CallAsync(_many, ShardsSuite.Many - 1, _plan.Time, (caller, number) => _many.PutAsync(caller + 1, number));
            _progress($"{workload}, {phase}: {Text(load)}");
            return load.P99Milliseconds;
        }

        async Task<int> WriteLargeAsync(int caller, CancellationTokenSource enough)
        {
            var count = 0;
            for (; !enough.IsCancellationRequested; count++)
                await large.PutAsync(ShardedCluster.Key(shard: 0, $"large-{caller}-{count % LargeKeys}"), value, cancellationToken: _cancellation);
            return count;
        }
    }

    private async Task<(List<T> Ones, List<T> Manies)> AlternateAsync<T>(Func<ShardedCluster, Task<T>> measure)
    {
        var (ones, manies) = (new List<T>(), new List<T>());
        for (var round = 0; round < _plan.Rounds; round++)
        {
            ones.Add(await measure(_one));
            manies.Add(await measure(_many));
        }
        return (ones, manies);
    }

    private async Task<ClosedLoop.Outcome> CallAsync(ShardedCluster cluster, int callers, TimeSpan time, Func<int, int, Task> operation)
    {
        var load = await ClosedLoop.RunAsync(callers, time, cluster.Servers.Processes, operation, _cancellation);
        await cluster.CheckpointAsync(_cancellation);
        return load;
    }

    private static IEnumerable<BenchmarkRow> ComparedRows(string workload, string unit, IReadOnlyList<double> ones, IReadOnlyList<double> manies) =>
    [
        BenchmarkRow.Of(ShardsSuite.Name, $"{workload}, 1 shard", ShardsSuite.Ours, unit, ones),
        BenchmarkRow.Of(ShardsSuite.Name, $"{workload}, {ShardsSuite.Many} shards", ShardsSuite.Ours, unit, manies),
        BenchmarkRow.Of(ShardsSuite.Name, $"{workload}, {ShardsSuite.Many} shards to 1", ShardsSuite.Ours, $"{unit} ratio", ShardsSuite.Ratios(ones, manies)),
    ];

    private static string ShardsOf(ShardedCluster cluster) => cluster.Servers.Shards == 1 ? "1 shard" : $"{cluster.Servers.Shards} shards";

    private static string Text(ClosedLoop.Outcome load) =>
        $"{load.OperationsPerSecond:F0}/s, p50 {load.P50Milliseconds:F2} ms, p99 {load.P99Milliseconds:F2} ms, {load.CpuMicroseconds:F1} us CPU an operation";
}
