using KvCluster.Client;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>
/// The cost of telemetry at full load: the same puts by the library, alternating between a cluster that exports traces, metrics and logs by OTLP and
/// one that does not.
/// </summary>
internal static class TelemetrySuite
{
    private const string Name = "telemetry";
    private const int Callers = 256;

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(bool quick, Action<string> progress, CancellationToken cancellation)
    {
        var keys = new KeySpace(seed: 7);
        await using var sink = await OtlpSink.StartAsync(cancellation);
        await using var plain = await KvServers.StartAsync(cancellation);
        await using var exporting = await KvServers.StartAsync(sink.Environment, cancellation);
        await using var plainClient = new KvClient(plain.RouterAddress);
        await using var exportingClient = new KvClient(exporting.RouterAddress);
        (string System, KvServers Servers, KvClient Client, List<ClosedLoop.Outcome> Outcomes)[] systems =
            [("without telemetry", plain, plainClient, []), ("OTLP: traces, metrics, logs", exporting, exportingClient, [])];

        var (runs, duration) = quick ? (3, TimeSpan.FromSeconds(3)) : (7, TimeSpan.FromSeconds(5));
        foreach (var system in systems)
            await RunAsync(system.Servers, system.Client, keys, duration, cancellation);
        for (var run = 0; run < runs; run++)
        {
            foreach (var system in systems)
            {
                var outcome = await RunAsync(system.Servers, system.Client, keys, duration, cancellation);
                system.Outcomes.Add(outcome);
                progress($"run {run + 1} of {runs}, {system.System}: {outcome.OperationsPerSecond:F0}/s, p99 {outcome.P99Milliseconds:F2} ms, "
                    + $"{outcome.CpuMicroseconds:F2} us CPU a put");
            }
        }
        if (sink.Requests == 0)
            throw new InvalidOperationException("Nothing was exported: the numbers would be of something else.");
        var shares = systems[1].Outcomes.Zip(systems[0].Outcomes, static (with, without) => with.CpuMicroseconds / without.CpuMicroseconds).ToList();
        var workload = $"put, {Callers} callers";
        return
        [
            .. systems.SelectMany(system => new[]
            {
                BenchmarkRow.Of(Name, workload, system.System, "op/s", system.Outcomes.ConvertAll(static outcome => outcome.OperationsPerSecond)),
                BenchmarkRow.Of(Name, workload, system.System, "server CPU us/op", system.Outcomes.ConvertAll(static outcome => outcome.CpuMicroseconds)),
            }),
            BenchmarkRow.Of(Name, workload, "with / without", "ratio", shares),
        ];
    }

    private static Task<ClosedLoop.Outcome> RunAsync(KvServers servers, KvClient client, KeySpace keys, TimeSpan duration, CancellationToken cancellation) =>
        ClosedLoop.RunAsync(
            Callers, duration, servers.Processes,
            async (_, number) => await client.PutAsync(keys.Key(number).Memory, keys.Value(number).Memory, cancellationToken: cancellation), cancellation);
}
