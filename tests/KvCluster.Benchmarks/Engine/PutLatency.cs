using System.Diagnostics;
using KvCluster.Benchmarks.Engine.Peers;

namespace KvCluster.Benchmarks.Engine;

/// <summary>How long single durable puts take that one caller makes, each when the one before it is answered.</summary>
internal static class PutLatency
{
    public const string P50 = "p50 ms";
    public const string P99 = "p99 ms";
    public const string P999 = "p99.9 ms";
    public const string P9999 = "p99.99 ms";
    private const int CountExpected = 1 << 20;

    /// <summary>Makes random puts over so many keys until told to end, but at least one.</summary>
    /// <returns>The times in ticks of the stopwatch, the shortest first.</returns>
    public static Task<List<long>> MeasureAsync(IEngine engine, EngineData data, long keys, Func<bool> isOver)
    {
        return engine.Blocks
            ? Task.Factory.StartNew(() => PutAsync().GetAwaiter().GetResult(), CancellationToken.None, TaskCreationOptions.LongRunning, TaskScheduler.Default)
            : Task.Run(PutAsync);

        async Task<List<long>> PutAsync()
        {
            using var writer = engine.OpenWriter();
            var latencies = new List<long>(CountExpected);
            do
            {
                var started = Stopwatch.GetTimestamp();
                writer.Put(data.RandomKey((ulong)keys), data.Value());
                await writer.CommitAsync();
                latencies.Add(Stopwatch.GetTimestamp() - started);
            }
            while (!isOver());
            latencies.Sort();
            return latencies;
        }
    }

    /// <summary>The same for so long: puts per second, and the times of <see cref="P999"/> and <see cref="P9999"/>.</summary>
    public static async Task<double[]> MeasureAsync(IEngine engine, EngineData data, long keys, TimeSpan time)
    {
        var started = Stopwatch.GetTimestamp();
        var latencies = await MeasureAsync(engine, data, keys, () => Stopwatch.GetElapsedTime(started) >= time);
        return [latencies.Count / Stopwatch.GetElapsedTime(started).TotalSeconds, MillisecondsOf(latencies, 0.999), MillisecondsOf(latencies, 0.9999)];
    }

    /// <summary>The time that this part of the sorted times is below, in ms; 1: the longest.</summary>
    public static double MillisecondsOf(List<long> latencies, double part) =>
        latencies[Math.Min(latencies.Count - 1, (int)(latencies.Count * part))] * 1000.0 / Stopwatch.Frequency;
}
