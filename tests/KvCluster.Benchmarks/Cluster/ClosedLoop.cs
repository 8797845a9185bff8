using System.Diagnostics;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>A number of callers, each with one operation in progress at any time, for a while.</summary>
internal static class ClosedLoop
{
    /// <summary>The result of a run.</summary>
    /// <param name="Operations">Completed operations.</param>
    /// <param name="OperationsPerSecond">Completed operations, over the time they took.</param>
    /// <param name="P50Milliseconds">The median latency.</param>
    /// <param name="P99Milliseconds">The 99th percentile of the latency.</param>
    /// <param name="CpuMicroseconds">CPU time of all server processes per operation.</param>
    internal readonly record struct Outcome(
        int Operations, double OperationsPerSecond, double P50Milliseconds, double P99Milliseconds, double CpuMicroseconds);

    /// <param name="callers">The number of callers.</param>
    /// <param name="duration">How long new operations are started.</param>
    /// <param name="servers">Processes whose CPU time counts.</param>
    /// <param name="operation">One operation, with the caller's number and a number that differs between operations. An exception ends the
    /// run.</param>
    /// <param name="cancellation">Ends the run with an exception.</param>
    public static async Task<Outcome> RunAsync(
        int callers, TimeSpan duration, IReadOnlyList<int> servers, Func<int, int, Task> operation, CancellationToken cancellation)
    {
        var cpuBefore = ServerCpu.MicrosecondsOf(servers);
        var started = Stopwatch.GetTimestamp();
        var last = started + (long)(duration.TotalSeconds * Stopwatch.Frequency);
        var latencies = await Task.WhenAll(
            Enumerable.Range(0, callers).Select(caller => Task.Run(() => CallAsync(caller, last, operation, cancellation), cancellation)));
        var seconds = Stopwatch.GetElapsedTime(started).TotalSeconds;
        var cpu = ServerCpu.MicrosecondsOf(servers) - cpuBefore;
        var all = latencies.SelectMany(one => one).ToArray();
        Array.Sort(all);
        return new Outcome(
            all.Length, all.Length / seconds, Milliseconds(all[all.Length / 2]), Milliseconds(all[(int)(all.Length * 0.99)]), cpu / all.Length);
    }

    /// <summary>The rows of one or more runs.</summary>
    public static IEnumerable<BenchmarkRow> RowsOf(string suite, string workload, string system, List<Outcome> outcomes) =>
    [
        BenchmarkRow.Of(suite, workload, system, "op/s", outcomes.ConvertAll(static outcome => outcome.OperationsPerSecond)),
        BenchmarkRow.Of(suite, workload, system, "p50 ms", outcomes.ConvertAll(static outcome => outcome.P50Milliseconds)),
        BenchmarkRow.Of(suite, workload, system, "p99 ms", outcomes.ConvertAll(static outcome => outcome.P99Milliseconds)),
        BenchmarkRow.Of(suite, workload, system, "server CPU us/op", outcomes.ConvertAll(static outcome => outcome.CpuMicroseconds)),
    ];

    private static async Task<List<long>> CallAsync(int caller, long last, Func<int, int, Task> operation, CancellationToken cancellation)
    {
        // A prime apart, so that each caller goes through the keys in a different order.
        var number = caller * 7919;
        var latencies = new List<long>(65_536);
        for (var begun = Stopwatch.GetTimestamp(); begun < last; number++)
        {
            cancellation.ThrowIfCancellationRequested();
            await operation(caller, number);
            var ended = Stopwatch.GetTimestamp();
            latencies.Add(ended - begun);
            begun = ended;
        }

        return latencies;
    }

    private static double Milliseconds(long ticks) => ticks * 1000.0 / Stopwatch.Frequency;
}
