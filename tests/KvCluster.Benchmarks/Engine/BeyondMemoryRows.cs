using System.Diagnostics;
using System.Globalization;
using KvCluster.Benchmarks.Engine.Peers;
using KvCluster.Processes;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// Ours beside RocksDB, the data nine times the memory: a load in order, then puts, reads, and half of each, all keys being as likely, with the bytes that each
/// operation costs the device. Each row is a <see cref="LimitedProcess"/> of its own, and so is the load. A row ends when what it leaves to be written is
/// written, so that checkpoints and compactions are paid by those who cause them. Run by tests/nightly/beyond-memory; the suite engine has no time for it.
/// </summary>
internal static class BeyondMemoryRows
{
    public const string OperationsPerSecond = "op/s";
    public const string SettledOperationsPerSecond = "op/s until settled";
    public const string DeviceBytesRead = "device bytes read/op";
    public const string DeviceBytesWritten = "device bytes written/op";

    /// <summary>
    /// The rows in their order. Both engines may have a quarter of the memory for what is only in the journal: RocksDB has two write buffers of an eighth each,
    /// ours holds so much before its writers are slowed, with a budget of half of the memory. RocksDB has another quarter for its block cache, and ours has the
    /// page cache instead. Indexes and filters of RocksDB, the runtime and the page cache share the rest.
    /// </summary>
    public static readonly IReadOnlyList<LimitedWorkload> Workloads =
    [
        new(Load, [.. Counted], static (engine, work) => CountAsync(engine, work, async () =>
        {
            await LoadRows.LoadAsync(engine, work.Keys);
            return work.Keys;
        })) { BudgetPart = BudgetPart },
        RowOf($"durable put, {WriteRows.ManyCallers} callers, beyond memory", reads: false, static (_, _) => true),
        RowOf($"point read, {WriteRows.ManyCallers} callers, beyond memory", reads: true, static (_, _) => false),
        RowOf(
            $"point read or durable put in turn, {WriteRows.ManyCallers} callers, beyond memory", reads: true,
            static (caller, count) => (caller + count) % 2 == 0),
    ];

    private const string Load = "sorted load, beyond memory";
    private const int BudgetPart = 2;
    private const int WriteBufferPart = 8;
    private const long MemoryBytes = 1L << 30;
    private const long MemoryBytesQuick = 256L << 20;
    private const long Keys = 80_000_000;
    private const long KeysQuick = 5_000_000;
    private const double Seconds = 120;
    private const double SecondsQuick = 6;

    private static string[] Counted => [OperationsPerSecond, SettledOperationsPerSecond, DeviceBytesRead, DeviceBytesWritten, LoadRows.FilesToRaw];

    /// <summary>The size, with what the command line sets.</summary>
    public static EnginePlan Plan(bool quick, IReadOnlyList<string> systems, long? keys, int? rounds, double? seconds) =>
        EnginePlan.Of(quick, [], systems, keys ?? (quick ? KeysQuick : Keys), rounds ?? 1, seconds ?? (quick ? SecondsQuick : Seconds));

    /// <summary>Measures the rows.</summary>
    /// <param name="run">With the keys and the length of a row.</param>
    /// <param name="quick">Whether the memory is a quarter of that of a whole run.</param>
    public static async Task RunAsync(EngineRun run, bool quick)
    {
        var memory = quick ? MemoryBytesQuick : MemoryBytes;
        EngineSystem[] systems = [.. run.Systems.Where(static system => system.Name is EngineSystem.KvCluster or EngineSystem.RocksDb)];
        using var limit = MemoryLimit.TryCreate(memory, out var reason);
        if (limit is null)
            reason = $"no memory limit can be set here: {reason}";
        else if (!run.CountsDeviceBytes)
            reason = "no device's bytes can be counted";
        else if (run.Plan.Systems.Count == 0 && systems.Length == 1)
            reason = $"{EngineSystem.RocksDb} is not there";
        if (limit is null || reason.Length > 0)
        {
            run.Progress($"SKIPPED {string.Join("; ", Workloads.Select(static row => row.Name))}: {reason}");
            return;
        }
        run.Progress(string.Create(
            CultureInfo.InvariantCulture,
            $"{run.Plan.Keys:N0} keys, {RawBytes(run.Plan.Keys) >> 20:N0} MiB, within {memory >> 20:N0} MiB; {EngineSystem.RocksDb} with a block cache of "
            + $"{memory / LimitedProcess.CachePart >> 20:N0} MiB and two write buffers of {memory / WriteBufferPart >> 20:N0} MiB, "
            + $"{EngineSystem.KvCluster} with a budget of {memory / BudgetPart >> 20:N0} MiB"));
        using var stores = run.NewStores(systems);
        foreach (var store in stores.All)
            store.Close();
        foreach (var workload in Workloads)
        {
            await run.AlternateAsync(
                workload.Name, workload.Units, stores, store => LimitedProcess.MeasureAsync(run, store, limit, memory, run.Plan.Keys, workload),
                rounds: workload.Name == Load ? 1 : 0);
        }
    }

    // reads: whether there are reads among the operations.
    private static LimitedWorkload RowOf(string name, bool reads, Func<int, long, bool> isPut) => new(
        name, [.. Counted, PutLatency.P99], async (engine, work) =>
        {
            // A read waits for the disk on its thread, whatever the engine.
            if (reads && !ThreadPool.SetMinThreads(WriteRows.ManyCallers + Environment.ProcessorCount, Environment.ProcessorCount))
                throw new InvalidOperationException("The thread pool cannot have a thread for each caller.");
            var latencies = new LatencyCounts();
            var counted = await CountAsync(engine, work, async () =>
            {
                var started = Stopwatch.GetTimestamp();
                foreach (var ofOne in await Task.WhenAll(Enumerable.Range(0, WriteRows.ManyCallers).Select(CallAsync)))
                    latencies.Add(ofOne);
                return latencies.Count;

                Task<LatencyCounts> CallAsync(int caller) => engine.Blocks
                    ? Task.Factory.StartNew(
                        () => RepeatAsync(engine, work, caller, isPut, started).GetAwaiter().GetResult(),
                        CancellationToken.None, TaskCreationOptions.LongRunning, TaskScheduler.Default)
                    : Task.Run(() => RepeatAsync(engine, work, caller, isPut, started));
            });
            return [.. counted, latencies.MillisecondsOf(0.99)];
        }) { BudgetPart = BudgetPart };

    private static async Task<LatencyCounts> RepeatAsync(IEngine engine, LimitedWork work, int caller, Func<int, long, bool> isPut, long started)
    {
        using var writer = engine.OpenWriter();
        using var reader = engine.OpenReader();
        var data = work.DataOf(caller);
        var latencies = new LatencyCounts();
        while (Stopwatch.GetElapsedTime(started) < work.Time)
        {
            var began = Stopwatch.GetTimestamp();
            if (isPut(caller, latencies.Count))
            {
                writer.Put(data.RandomKey((ulong)work.Keys), data.Value());
                await writer.CommitAsync();
            }
            else if (reader.GetAlone(data.RandomKey((ulong)work.Keys)) < 0)
            {
                throw new InvalidOperationException("A loaded key is missing.");
            }
            latencies.Add(Stopwatch.GetTimestamp() - began);
        }
        return latencies;
    }

    // Counts what the device does for so many operations, and for what they leave to be done.
    private static async Task<double[]> CountAsync(IEngine engine, LimitedWork work, Func<Task<long>> operateAsync)
    {
        DeviceCounters.SyncAll();
        var before = DeviceCounters.BytesMoved(work.Directory)!.Value;
        var started = Stopwatch.GetTimestamp();
        var operations = (double)await operateAsync();
        var took = Stopwatch.GetElapsedTime(started);
        await engine.SettleAsync();
        var settled = Stopwatch.GetElapsedTime(started);
        DeviceCounters.SyncAll();
        var after = DeviceCounters.BytesMoved(work.Directory)!.Value;
        return
        [
            operations / took.TotalSeconds, operations / settled.TotalSeconds, (after.Read - before.Read) / operations,
            (after.Written - before.Written) / operations, DeviceCounters.BytesAllocated(work.Directory) / (double)RawBytes(work.Keys),
        ];
    }

    private static long RawBytes(long keys) => keys * (EngineData.KeyBytes + EngineData.ValueBytes);
}
