using System.Diagnostics;
using KvCluster.Benchmarks.Engine.Peers;

namespace KvCluster.Benchmarks.Engine;

/// <summary>Random point reads and forward scans of a store that fits into memory.</summary>
internal static class ReadRows
{
    public const string ReadsPerSecond = "reads/s";
    public const string Scan = "forward scan";
    public const string ItemsPerSecond = "items/s";
    private const int ReadsPerCheck = 256;
    private static readonly int[] Threads = [1, 2];

    /// <summary>The name of a row.</summary>
    public static string ReadsOf(int threads, bool alone) =>
        $"point read, {threads} thread{(threads == 1 ? "" : "s")}, {(alone ? "a snapshot each" : "one snapshot")}";

    /// <summary>Reads, each in a snapshot of its own and all in one, and scans.</summary>
    public static async Task ReadsAsync(EngineRun run)
    {
        using var stores = run.NewStores();
        foreach (var store in stores.All)
        {
            await LoadRows.LoadAsync(store.Engine, run.Plan.Keys);
            await store.Engine.SettleAsync();
            // Fills the caches.
            ScanRate(store.Engine, run.Plan.Keys, TimeSpan.Zero);
        }
        foreach (var threads in Threads)
        {
            foreach (var alone in (bool[])[true, false])
                await run.AlternateAsync(ReadsOf(threads, alone), [ReadsPerSecond], stores, store => MeasureAsync(run, store, run.Plan.Keys, threads, alone));
        }
        await run.AlternateAsync(Scan, [ItemsPerSecond], stores, store => Task.FromResult<double[]>([ScanRate(store.Engine, run.Plan.Keys, run.Plan.Time)]));
    }

    /// <summary>Reads random keys for the planned time, all threads together. Returns the reads per second.</summary>
    public static async Task<double[]> MeasureAsync(EngineRun run, EngineStore store, long keys, int threads, bool alone)
    {
        var started = Stopwatch.GetTimestamp();
        var counts = await Task.WhenAll(Enumerable.Range(0, threads).Select(_ =>
        {
            var data = new EngineData(run.NextSeed());
            return Task.Factory.StartNew(
                () => Read(store.Engine, data, keys, alone, started, run.Plan.Time),
                CancellationToken.None, TaskCreationOptions.LongRunning, TaskScheduler.Default);
        }));
        return [counts.Sum() / Stopwatch.GetElapsedTime(started).TotalSeconds];
    }

    private static long Read(IEngine engine, EngineData data, long keys, bool alone, long started, TimeSpan time)
    {
        using var reader = engine.OpenReader();
        var count = 0L;
        if (!alone)
            reader.Begin();
        for (; Stopwatch.GetElapsedTime(started) < time; count += ReadsPerCheck)
        {
            for (var index = 0; index < ReadsPerCheck; index++)
            {
                var key = data.RandomKey((ulong)keys);
                if ((alone ? reader.GetAlone(key) : reader.Get(key)) < 0)
                    throw new InvalidOperationException("A loaded key is missing.");
            }
        }
        if (!alone)
            reader.End();
        return count;
    }

    // Whole scans, at least one.
    private static double ScanRate(IEngine engine, long keys, TimeSpan time)
    {
        using var reader = engine.OpenReader();
        var started = Stopwatch.GetTimestamp();
        var count = 0L;
        do
        {
            reader.Begin();
            var found = reader.Scan(long.MaxValue, out var bytes);
            reader.End();
            if (found != keys || bytes == 0)
                throw new InvalidOperationException($"A scan found {found} of {keys} keys.");
            count += found;
        }
        while (Stopwatch.GetElapsedTime(started) < time);
        return count / Stopwatch.GetElapsedTime(started).TotalSeconds;
    }
}
