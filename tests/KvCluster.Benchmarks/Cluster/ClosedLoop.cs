using System.Diagnostics;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>So many callers, each with one operation under way at any time, for a while.</summary>
internal static class ClosedLoop
{
    /// <summary>What a run gave.</summary>
    /// <param name="OperationsPerSecond">Operations that ended, over the time they took.</param>
    /// <param name="P50Milliseconds">Half of the operations took no longer.</param>
    /// <param name="P99Milliseconds">All but one in a hundred took no longer.</param>
    /// <param name="CpuMicroseconds">CPU of all server processes for one operation.</param>
    internal readonly record struct Outcome(double OperationsPerSecond, double P50Milliseconds, double P99Milliseconds, double CpuMicroseconds);

    /// <param name="callers">How many.</param>
    /// <param name="duration">How long new operations are begun.</param>
    /// <param name="servers">Processes whose CPU counts.</param>
    /// <param name="operation">One operation: the caller's number and a number that differs from operation to operation. An exception ends the run.</param>
    /// <param name="cancellation">Ends the run with an exception.</param>
    public static async Task<Outcome> RunAsync(int callers, TimeSpan duration, IReadOnlyList<int> servers, Func<int, int, Task> operation, CancellationToken cancellation)
    {
        var cpuBefore = ServerCpu.MicrosecondsOf(servers);
        var started = Stopwatch.GetTimestamp();
        var last = started + (long)(duration.TotalSeconds * Stopwatch.Frequency);
        var latencies = await Task.WhenAll(Enumerable.Range(0, callers).Select(caller => Task.Run(() => CallAsync(caller, last, operation, cancellation), cancellation)));
        var seconds = Stopwatch.GetElapsedTime(started).TotalSeconds;
        var cpu = ServerCpu.MicrosecondsOf(servers) - cpuBefore;
        var all = latencies.SelectMany(one => one).ToArray();
        Array.Sort(all);
        return new Outcome(all.Length / seconds, Milliseconds(all[all.Length / 2]), Milliseconds(all[(int)(all.Length * 0.99)]), cpu / all.Length);
    }

    private static async Task<List<long>> CallAsync(int caller, long last, Func<int, int, Task> operation, CancellationToken cancellation)
    {
        // A prime apart, so that callers walk through the keys in orders of their own.
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
