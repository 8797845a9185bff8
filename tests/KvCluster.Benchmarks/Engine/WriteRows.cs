using System.Diagnostics;
using KvCluster.Benchmarks.Engine.Peers;

namespace KvCluster.Benchmarks.Engine;

/// <summary>Durable puts, alone and in transactions: puts per second, and bytes written to the device per put, with what has to be written later.</summary>
internal static class WriteRows
{
    public const string Puts = "durable put";
    public const string TransactionsOfNew = "100-put transactions, new store";
    public const string TransactionsOfLarge = "100-put transactions, large store";
    public const string PutsPerSecond = "puts/s";
    public const string DeviceBytes = "device bytes/put";
    private const int TransactionKeys = 100;
    private const long SmallKeys = 100_000;
    private static readonly int[] Callers = [1, 8, 64];

    /// <summary>The name of the row of so many callers.</summary>
    public static string PutsOf(int callers) => $"{Puts}, {callers} caller{(callers == 1 ? "" : "s")}";

    /// <summary>Single puts over a small store.</summary>
    public static async Task PutsAsync(EngineRun run)
    {
        using var stores = run.NewStores();
        foreach (var store in stores.All)
            await LoadRows.LoadAsync(store.Engine, SmallKeys);
        foreach (var callers in Callers)
            await run.AlternateAsync(PutsOf(callers), UnitsOf(run), stores, store => MeasureAsync(run, store, callers, 1, SmallKeys));
    }

    /// <summary>Transactions of random puts into empty stores.</summary>
    public static Task TransactionsAsync(EngineRun run) =>
        run.AlternateAsync(TransactionsOfNew, UnitsOf(run), run.Systems, async system =>
        {
            using var store = run.NewStore(system);
            return await MeasureAsync(run, store, callers: 1, TransactionKeys, (long)EngineData.NumbersMax);
        });

    /// <summary>Transactions of random puts into stores with many keys.</summary>
    public static async Task LargeTransactionsAsync(EngineRun run)
    {
        using var stores = run.NewStores();
        foreach (var store in stores.All)
            await LoadRows.LoadAsync(store.Engine, run.Plan.Keys);
        await run.AlternateAsync(TransactionsOfLarge, UnitsOf(run), stores, store => MeasureAsync(run, store, callers: 1, TransactionKeys, run.Plan.Keys));
    }

    /// <summary>Random puts over so many keys for the planned time.</summary>
    /// <returns>The number of puts, and puts per second.</returns>
    public static async Task<(long Puts, double Rate)> PutAsync(EngineRun run, EngineStore store, int callers, int transactionKeys, long keys)
    {
        var started = Stopwatch.GetTimestamp();
        var counts = await Task.WhenAll(Enumerable.Range(0, callers).Select(_ =>
        {
            var data = new EngineData(run.NextSeed());
            return store.System.Blocks
                ? Task.Factory.StartNew(
                    () => CallAsync(store.Engine, data, started, run.Plan.Time, transactionKeys, keys).GetAwaiter().GetResult(),
                    CancellationToken.None, TaskCreationOptions.LongRunning, TaskScheduler.Default)
                : Task.Run(() => CallAsync(store.Engine, data, started, run.Plan.Time, transactionKeys, keys));
        }));
        return (counts.Sum(), counts.Sum() / Stopwatch.GetElapsedTime(started).TotalSeconds);
    }

    /// <summary>A number of random puts over so many keys, in transactions of 100, one after the other.</summary>
    public static async Task PutAsync(IEngine engine, EngineData data, long keys, long puts, int valueBytes = EngineData.ValueBytes)
    {
        using var writer = engine.OpenWriter();
        for (var put = 0L; put < puts; put += TransactionKeys)
            await CommitAsync(writer, data, keys, TransactionKeys, valueBytes);
    }

    private static string[] UnitsOf(EngineRun run) => run.CountsDeviceBytes ? [PutsPerSecond, DeviceBytes] : [PutsPerSecond];

    private static async Task<double[]> MeasureAsync(EngineRun run, EngineStore store, int callers, int transactionKeys, long keys)
    {
        DeviceCounters.SyncAll();
        var before = run.CountsDeviceBytes ? DeviceCounters.BytesWritten(store.Directory) : null;
        var (puts, rate) = await PutAsync(run, store, callers, transactionKeys, keys);
        await store.Engine.SettleAsync();
        DeviceCounters.SyncAll();
        return before is { } bytes ? [rate, (double)(DeviceCounters.BytesWritten(store.Directory)!.Value - bytes) / puts] : [rate];
    }

    private static async Task<long> CallAsync(IEngine engine, EngineData data, long started, TimeSpan time, int transactionKeys, long keys)
    {
        using var writer = engine.OpenWriter();
        var count = 0L;
        for (; Stopwatch.GetElapsedTime(started) < time; count += transactionKeys)
            await CommitAsync(writer, data, keys, transactionKeys, EngineData.ValueBytes);
        return count;
    }

    private static ValueTask CommitAsync(IEngineWriter writer, EngineData data, long keys, int transactionKeys, int valueBytes)
    {
        for (var index = 0; index < transactionKeys; index++)
            writer.Put(data.RandomKey((ulong)keys), data.Value(valueBytes));
        return writer.CommitAsync();
    }
}
