using System.Diagnostics;
using KvCluster.Benchmarks.Engine.Peers;
using KvCluster.Processes;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// Reads of a store four times the memory, and puts into it. The stores are loaded here, and measured by a <see cref="LimitedProcess"/> each.
/// </summary>
internal static class ColdRows
{
    public const string Reads = "point read, data 4x memory";
    public const string Scan = "forward scan, data 4x memory";
    public static readonly string Puts = $"durable put, {WriteRows.ManyCallers} callers, data 4x memory";
    public const string Transactions = "100-put transactions, data 4x memory";
    public const string SinglePuts = "single put, data 4x memory";

    /// <summary>The rows of the group.</summary>
    public static readonly IReadOnlyList<LimitedWorkload> Workloads =
    [
        new(Reads, [ReadRows.ReadsPerSecond], static (engine, work) => Task.FromResult(ReadRate(engine, work))) { Warms = true },
        new(Scan, [ReadRows.ItemsPerSecond], static (engine, _) => Task.FromResult(ScanRate(engine))) { Warms = true, ReadsAhead = true },
        new(SinglePuts, [WriteRows.PutsPerSecond, PutLatency.P999, PutLatency.P9999],
            static (engine, work) => PutLatency.MeasureAsync(engine, work.DataOf(0), work.Keys, work.Time)) { Warms = true },
        new(Puts, [WriteRows.PutsPerSecond], static (engine, work) => PutRateAsync(engine, work, WriteRows.ManyCallers, 1)) { Warms = true },
        new(Transactions, [WriteRows.PutsPerSecond], static (engine, work) => PutRateAsync(engine, work, 1, WriteRows.TransactionKeys)) { Warms = true },
    ];

    private const int MemoryPart = 4;
    // With much less, the runtime's own memory decides: at 116 MB the kernel ended the measuring process.
    private const long KeysMin = 10_000_000;
    private const int ReadsPerCheck = 16;

    /// <summary>Loads the stores, and measures them.</summary>
    public static async Task RunAsync(EngineRun run)
    {
        var keys = Math.Max(run.Plan.Keys, KeysMin);
        var memory = keys * (EngineData.KeyBytes + EngineData.ValueBytes) / MemoryPart;
        using var limit = MemoryLimit.TryCreate(memory, out var reason);
        if (limit is null)
        {
            run.Progress($"SKIPPED {string.Join(", ", Workloads.Select(row => row.Name))}: no memory limit can be set here: {reason}");
            return;
        }
        using var stores = run.NewStores();
        foreach (var store in stores.All)
        {
            await LoadRows.LoadAsync(store.Engine, keys);
            await store.Engine.SettleAsync();
            store.Close();
        }
        foreach (var workload in Workloads)
        {
            await run.AlternateAsync(
                workload.Name, workload.Units, stores, store => LimitedProcess.MeasureAsync(run, store, limit, memory, keys, workload));
        }
    }

    private static double[] ReadRate(IEngine engine, LimitedWork work)
    {
        using var reader = engine.OpenReader();
        var data = work.DataOf(0);
        var started = Stopwatch.GetTimestamp();
        var count = 0L;
        reader.Begin();
        for (; Stopwatch.GetElapsedTime(started) < work.Time; count += ReadsPerCheck)
        {
            for (var index = 0; index < ReadsPerCheck; index++)
            {
                if (reader.Get(data.RandomKey((ulong)work.Keys)) < 0)
                    throw new InvalidOperationException("A loaded key is missing.");
            }
        }
        var rate = count / Stopwatch.GetElapsedTime(started).TotalSeconds;
        reader.End();
        return [rate];
    }

    private static double[] ScanRate(IEngine engine)
    {
        using var reader = engine.OpenReader();
        var started = Stopwatch.GetTimestamp();
        reader.Begin();
        var count = reader.Scan(long.MaxValue, out _);
        var rate = count / Stopwatch.GetElapsedTime(started).TotalSeconds;
        reader.End();
        return [rate];
    }

    private static async Task<double[]> PutRateAsync(IEngine engine, LimitedWork work, int callers, int transactionKeys)
    {
        var (_, rate) = await WriteRows.CallAsync(engine, callers, transactionKeys, work.Keys, putsMax: long.MaxValue, work.Time, work.DataOf);
        return [rate];
    }
}
