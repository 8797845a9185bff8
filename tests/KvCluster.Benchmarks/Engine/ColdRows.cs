using System.Diagnostics;
using System.Globalization;
using KvCluster.Benchmarks.Engine.Peers;
using KvCluster.Processes;
using KvCluster.Storage.Context;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// Reads of a store four times the memory, and puts into it. The stores are loaded here. Each measurement is a process of its own, this program again, in a
/// group with limited memory, after the files were dropped from the page cache.
/// </summary>
internal static class ColdRows
{
    /// <summary>The first argument of the process that measures.</summary>
    public const string Command = "engine-cold";

    public const string Reads = "point read, data 4x memory";
    public const string Scan = "forward scan, data 4x memory";
    public static readonly string Puts = $"durable put, {WriteRows.ManyCallers} callers, data 4x memory";
    public const string Transactions = "100-put transactions, data 4x memory";
    public const string SinglePuts = "single put, data 4x memory";
    private static readonly (string Workload, string[] Units)[] Workloads =
    [
        (Reads, [ReadRows.ReadsPerSecond]), (Scan, [ReadRows.ItemsPerSecond]), (SinglePuts, [WriteRows.PutsPerSecond, PutLatency.P999, PutLatency.P9999]),
        (Puts, [WriteRows.PutsPerSecond]), (Transactions, [WriteRows.PutsPerSecond]),
    ];
    private const int MemoryPart = 4;
    // With much less, the runtime's own memory decides: at 116 MB the kernel ended the measuring process.
    private const long KeysMin = 10_000_000;
    private const int CachePart = 4;
    private const int ReadsPerCheck = 16;
    private const long WarmKeys = 20_000;
    private const int WarmParts = 8;
    private const int WarmPart = 5;

    /// <summary>The rows of the group.</summary>
    public static async Task RunAsync(EngineRun run)
    {
        var keys = Math.Max(run.Plan.Keys, KeysMin);
        var memory = keys * (EngineData.KeyBytes + EngineData.ValueBytes) / MemoryPart;
        using var limit = MemoryLimit.TryCreate(memory, out var reason);
        if (limit is null)
        {
            run.Progress($"SKIPPED {string.Join(", ", Workloads.Select(row => row.Workload))}: no memory limit can be set here: {reason}");
            return;
        }
        using var stores = run.NewStores();
        foreach (var store in stores.All)
        {
            await LoadRows.LoadAsync(store.Engine, keys);
            await store.Engine.SettleAsync();
            store.Close();
        }
        foreach (var (workload, units) in Workloads)
            await run.AlternateAsync(workload, units, stores, store => MeasureAsync(run, store, limit, keys, memory, workload));
    }

    /// <summary>The process that measures: prints a rate, or several numbers. The arguments are those of <see cref="MeasureAsync"/>.</summary>
    public static int RunLimited(string[] arguments)
    {
        File.WriteAllText(arguments[1], Environment.ProcessId.ToString(CultureInfo.InvariantCulture));
        var (system, directory, keys, workload) = (arguments[2], arguments[3], long.Parse(arguments[4], CultureInfo.InvariantCulture), arguments[5]);
        var (memory, seconds) = (long.Parse(arguments[6], CultureInfo.InvariantCulture), double.Parse(arguments[7], CultureInfo.InvariantCulture));
        var seed = int.Parse(arguments[8], CultureInfo.InvariantCulture);
        // A scan takes a second, and would otherwise measure code that is not compiled for good yet.
        var warm = directory + ".warm";
        using (var engine = Open(warm))
        {
            LoadRows.LoadAsync(engine, WarmKeys).GetAwaiter().GetResult();
            var warmSeconds = seconds / WarmPart;
            for (var started = Stopwatch.GetTimestamp(); Stopwatch.GetElapsedTime(started).TotalSeconds < warmSeconds;)
                _ = Measure(engine, WarmKeys, warmSeconds / WarmParts);
        }
        Directory.Delete(warm, recursive: true);
        using (var engine = Open(directory))
            Console.WriteLine(string.Join(' ', Measure(engine, keys, seconds).Select(number => number.ToString(CultureInfo.InvariantCulture))));
        return 0;

        IEngine Open(string path) => system switch
        {
            EngineSystem.Lmdb => new LmdbEngine(path, readAhead: workload == Scan),
            EngineSystem.RocksDb => new RocksDbEngine(path, memory / CachePart, memory / CachePart),
            _ => new KvClusterEngine(path, new StoreOptions(), memory / CachePart),
        };

        double[] Measure(IEngine engine, long keys, double seconds) => workload switch
        {
            Reads => [ReadRate(engine, keys, seconds, seed)],
            Scan => [ScanRate(engine)],
            SinglePuts => PutLatency.MeasureAsync(engine, new EngineData(seed), keys, TimeSpan.FromSeconds(seconds)).GetAwaiter().GetResult(),
            _ => [PutRate(engine, keys, seconds, seed, workload == Puts ? (WriteRows.ManyCallers, 1) : (1, WriteRows.TransactionKeys))],
        };
    }

    private static double ReadRate(IEngine engine, long keys, double seconds, int seed)
    {
        using var reader = engine.OpenReader();
        var data = new EngineData(seed);
        var started = Stopwatch.GetTimestamp();
        var count = 0L;
        reader.Begin();
        for (; Stopwatch.GetElapsedTime(started).TotalSeconds < seconds; count += ReadsPerCheck)
        {
            for (var index = 0; index < ReadsPerCheck; index++)
            {
                if (reader.Get(data.RandomKey((ulong)keys)) < 0)
                    throw new InvalidOperationException("A loaded key is missing.");
            }
        }
        var rate = count / Stopwatch.GetElapsedTime(started).TotalSeconds;
        reader.End();
        return rate;
    }

    private static double ScanRate(IEngine engine)
    {
        using var reader = engine.OpenReader();
        var started = Stopwatch.GetTimestamp();
        reader.Begin();
        var count = reader.Scan(long.MaxValue, out _);
        var rate = count / Stopwatch.GetElapsedTime(started).TotalSeconds;
        reader.End();
        return rate;
    }

    private static double PutRate(IEngine engine, long keys, double seconds, int seed, (int Callers, int TransactionKeys) size) => WriteRows.CallAsync(
        engine, size.Callers, size.TransactionKeys, keys, putsMax: long.MaxValue, TimeSpan.FromSeconds(seconds),
        caller => new EngineData((seed * WriteRows.ManyCallers) + caller)).GetAwaiter().GetResult().Rate;

    private static async Task<double[]> MeasureAsync(EngineRun run, EngineStore store, MemoryLimit limit, long keys, long memory, string workload)
    {
        DeviceCounters.SyncAll();
        DeviceCounters.DropFromCache(store.Directory);
        string[] arguments =
        [
            Command, limit.Processes, store.System.Name, store.Directory, keys.ToString(CultureInfo.InvariantCulture), workload,
            memory.ToString(CultureInfo.InvariantCulture),
            run.Plan.Time.TotalSeconds.ToString(CultureInfo.InvariantCulture), run.RoundSeed.ToString(CultureInfo.InvariantCulture),
        ];
        var (exitCode, output, error) = await OwnProgram.RunAsync(arguments);
        return exitCode == 0
            ? [.. output.Split((char[]?)null, StringSplitOptions.RemoveEmptyEntries).Select(number => double.Parse(number, CultureInfo.InvariantCulture))]
            : throw new InvalidOperationException($"The measuring process of {store.System.Name} failed: {error}");
    }
}
