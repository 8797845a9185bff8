using System.Diagnostics;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>Operations at a steady rate, whether those before are answered or not, as users of a service come.</summary>
internal static class OpenLoop
{
    private const int IntervalMs = 1;

    /// <summary>
    /// Returns the latency of each operation in milliseconds, counted from the moment when it was due, so that a pause of the servers, or of this program, is
    /// counted by all operations that it delayed.
    /// </summary>
    /// <param name="perSecond">The rate.</param>
    /// <param name="count">The number of operations.</param>
    /// <param name="operation">One operation, given its number. An exception ends the run.</param>
    /// <param name="cancellation">Ends the run with an exception.</param>
    public static async Task<double[]> RunAsync(int perSecond, int count, Func<int, Task> operation, CancellationToken cancellation)
    {
        // A thread of its own: the delays of tasks are twice as long as asked for, and then wait for a thread of the pool.
        var latencies = await Task.Factory.StartNew(Start, cancellation, TaskCreationOptions.LongRunning, TaskScheduler.Default);
        return await Task.WhenAll(latencies);

        Task<double>[] Start()
        {
            var latencies = new Task<double>[count];
            var started = Stopwatch.GetTimestamp();
            for (var number = 0; number < count;)
            {
                cancellation.ThrowIfCancellationRequested();
                var due = (int)Math.Min(count, Stopwatch.GetElapsedTime(started).TotalSeconds * perSecond);
                for (; number < due; number++)
                    latencies[number] = OneAsync(started + (long)((double)number / perSecond * Stopwatch.Frequency), operation(number));
                Thread.Sleep(IntervalMs);
            }
            return latencies;
        }
    }

    private static async Task<double> OneAsync(long due, Task operation)
    {
        await operation;
        return Stopwatch.GetElapsedTime(due).TotalMilliseconds;
    }
}
