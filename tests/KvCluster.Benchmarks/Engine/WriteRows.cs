using System.Diagnostics;
using KvCluster.Benchmarks.Engine.Peers;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// Durable puts, alone and in transactions: puts per second, until they are answered and until all is in the files in which it stays, and bytes written to the
/// device per put, with what has to be written later. Each engine gets the same number of puts, because the later an engine writes what it has taken, the more
/// puts share one page. Only one that would take very much longer is stopped: LMDB, which writes everything at once, so that the number does not matter.
/// </summary>
internal static class WriteRows
{
    public const string Puts = "durable put";
    public const string TransactionsOfNew = "100-put transactions, new store";
    public const string TransactionsOfLarge = "100-put transactions, large store";
    public static readonly string TransactionsOfMany = $"100-put transactions, large store, {TransactionCallers} callers";
    public const string SinglePuts = "single put, large store";
    public const string PutsPerSecond = "puts/s";
    public const string SettledPutsPerSecond = "puts/s until settled";
    public const string DeviceBytes = "device bytes/put";

    /// <summary>Callers at the same time, where there are many.</summary>
    public const int ManyCallers = 64;

    /// <summary>Puts of <see cref="ManyCallers"/> in each second of the planned time.</summary>
    public const double ManyCallersRate = 100_000;

    /// <summary>Puts in a transaction of many.</summary>
    public const int TransactionKeys = 100;

    /// <summary>Callers at the same time whose puts are in transactions.</summary>
    public const int TransactionCallers = 16;

    // Some gigabytes of journal, in large transactions, because it has to be there and nothing more.
    private const long SteadyPuts = 10_000_000;
    private const int SteadyCallers = 4;
    private static readonly TimeSpan SteadyTimeMin = TimeSpan.FromSeconds(2);
    private const int SteadyTransactionKeys = 1_000;
    private const long SmallKeys = 100_000;

    // Where a durable write takes a fifth of a millisecond, our engine makes at least as many puts per second, here and in Singles, so they take it the planned
    // time at most.
    private const double TransactionsRate = 200_000;

    // A measurement of so many times the planned time is stopped.
    private const int TimesMax = 4;
    private static readonly (int Callers, double Rate)[] Singles = [(1, 4_000), (8, 20_000), (ManyCallers, ManyCallersRate)];

    /// <summary>The name of the row of so many callers.</summary>
    public static string PutsOf(int callers) => $"{Puts}, {callers} caller{(callers == 1 ? "" : "s")}";

    /// <summary>Single puts over a small store.</summary>
    public static async Task PutsAsync(EngineRun run)
    {
        using var stores = run.NewStores();
        await LoadAsync(stores, SmallKeys);
        foreach (var (callers, rate) in Singles)
            await run.AlternateAsync(PutsOf(callers), UnitsOf(run), stores, store => MeasureAsync(run, store, callers, 1, SmallKeys, rate));
    }

    /// <summary>Transactions of random puts into empty stores.</summary>
    public static Task TransactionsAsync(EngineRun run) =>
        run.AlternateAsync(TransactionsOfNew, UnitsOf(run), run.Systems, async system =>
        {
            using var store = run.NewStore(system);
            return await MeasureAsync(run, store, callers: 1, TransactionKeys, (long)EngineData.NumbersMax, TransactionsRate);
        });

    /// <summary>Transactions of random puts into stores with many keys, and single puts, one after the other.</summary>
    public static async Task LargeTransactionsAsync(EngineRun run)
    {
        using var stores = run.NewStores();
        await LoadAsync(stores, run.Plan.Keys);
        foreach (var (workload, callers) in ((string, int)[])[(TransactionsOfLarge, 1), (TransactionsOfMany, TransactionCallers)])
            await run.AlternateAsync(
                workload, UnitsOf(run), stores, store => MeasureAsync(run, store, callers, TransactionKeys, run.Plan.Keys, TransactionsRate));
        await run.AlternateAsync(SinglePuts, [PutsPerSecond, PutLatency.P999, PutLatency.P9999], stores, store =>
            PutLatency.MeasureAsync(store.Engine, new EngineData(run.NextSeed()), run.Plan.Keys, run.Plan.Time));
    }

    /// <summary>
    /// Device bytes of the same puts when the engines have been at work for a while and go on for longer: journals are used again, and what is written later,
    /// such as our checkpoints, is written as often as such puts cause it, and not only because a measurement ends.
    /// </summary>
    public static async Task SteadyAsync(EngineRun run)
    {
        // In a short run nothing gets that far.
        if (!run.CountsDeviceBytes || run.Plan.Time < SteadyTimeMin)
            return;
        using (var stores = run.NewStores())
        {
            await LoadAsync(stores, SmallKeys);
            foreach (var (callers, putsRate) in Singles.Where(static single => single.Callers is 1 or ManyCallers))
                await MeasureAsync(PutsOf(callers), stores, callers, 1, SmallKeys, putsRate);
        }
        using (var stores = run.NewStores())
        {
            await LoadAsync(stores, run.Plan.Keys);
            await MeasureAsync(TransactionsOfLarge, stores, 1, TransactionKeys, run.Plan.Keys, TransactionsRate);
        }

        Task MeasureAsync(string workload, EngineStores stores, int callers, int transactionKeys, long keys, double putsRate) =>
            run.AlternateAsync(Steady(workload), UnitsOf(run), stores, async store =>
            {
                await CallAsync(
                    store.Engine, SteadyCallers, SteadyTransactionKeys, keys, SteadyPuts / SteadyCallers, TimesMax * run.Plan.Time,
                    _ => new EngineData(run.NextSeed()));
                // Without a rest, in which an engine would give its journals back.
                await store.Engine.SettleAsync();
                return await WriteRows.MeasureAsync(run, store, callers, transactionKeys, keys, TimesMax * putsRate);
            }, rounds: 1);
    }

    /// <summary>The name of a row of <see cref="SteadyAsync"/>.</summary>
    public static string Steady(string workload) => $"{workload}, at work for a while";

    /// <summary>Random puts over so many keys: as many as fit into the planned time at this rate, but no more than fit into a multiple of it.</summary>
    /// <returns>The number of puts, and puts per second.</returns>
    public static async Task<(long Puts, double Rate)> PutAsync(EngineRun run, EngineStore store, int callers, int transactionKeys, long keys, double rate)
    {
        var puts = Math.Max(1, (long)(rate * run.Plan.Time.TotalSeconds / callers / transactionKeys)) * transactionKeys;
        var made = await CallAsync(store.Engine, callers, transactionKeys, keys, puts, TimesMax * run.Plan.Time, _ => new EngineData(run.NextSeed()));
        if (made.Puts < puts * callers)
            run.Progress($"{store.System.Name}: stopped after {made.Puts} of {puts * callers} puts");
        return made;
    }

    /// <summary>Random puts over so many keys by callers at the same time, each of which ends after so many puts or after so long.</summary>
    /// <param name="engine">Each caller has a thread of its own if the engine <see cref="IEngine.Blocks"/>.</param>
    /// <param name="callers">Callers at the same time.</param>
    /// <param name="transactionKeys">Puts in a transaction.</param>
    /// <param name="keys">Keys to choose from.</param>
    /// <param name="putsMax">The most puts of a caller.</param>
    /// <param name="timeMax">The longest time of a caller.</param>
    /// <param name="dataOf">The data of a caller.</param>
    /// <returns>The number of puts, and puts per second.</returns>
    public static async Task<(long Puts, double Rate)> CallAsync(
        IEngine engine, int callers, int transactionKeys, long keys, long putsMax, TimeSpan timeMax, Func<int, EngineData> dataOf)
    {
        var started = Stopwatch.GetTimestamp();
        var counts = await Task.WhenAll(Enumerable.Range(0, callers).Select(caller =>
        {
            var data = dataOf(caller);
            return engine.Blocks
                ? Task.Factory.StartNew(
                    () => RepeatAsync(data).GetAwaiter().GetResult(), CancellationToken.None, TaskCreationOptions.LongRunning, TaskScheduler.Default)
                : Task.Run(() => RepeatAsync(data));
        }));
        return (counts.Sum(), counts.Sum() / Stopwatch.GetElapsedTime(started).TotalSeconds);

        async Task<long> RepeatAsync(EngineData data)
        {
            using var writer = engine.OpenWriter();
            var count = 0L;
            for (; count < putsMax && Stopwatch.GetElapsedTime(started) < timeMax; count += transactionKeys)
                await CommitAsync(writer, data, keys, transactionKeys, EngineData.ValueBytes);
            return count;
        }
    }

    /// <summary>A number of random puts over so many keys, in transactions of 100, one after the other.</summary>
    public static async Task PutAsync(IEngine engine, EngineData data, long keys, long puts, int valueBytes = EngineData.ValueBytes)
    {
        using var writer = engine.OpenWriter();
        for (var put = 0L; put < puts; put += TransactionKeys)
            await CommitAsync(writer, data, keys, TransactionKeys, valueBytes);
    }

    /// <summary>Loads each store, and settles it, because what the load leaves to be written is none of the bytes of what follows.</summary>
    public static async Task LoadAsync(EngineStores stores, long keys)
    {
        foreach (var store in stores.All)
        {
            await LoadRows.LoadAsync(store.Engine, keys);
            await store.Engine.SettleAsync();
        }
    }

    private static string[] UnitsOf(EngineRun run) =>
        run.CountsDeviceBytes ? [PutsPerSecond, SettledPutsPerSecond, DeviceBytes] : [PutsPerSecond, SettledPutsPerSecond];

    private static async Task<double[]> MeasureAsync(EngineRun run, EngineStore store, int callers, int transactionKeys, long keys, double expected)
    {
        DeviceCounters.SyncAll();
        var before = run.CountsDeviceBytes ? DeviceCounters.BytesWritten(store.Directory) : null;
        var started = Stopwatch.GetTimestamp();
        var (puts, rate) = await PutAsync(run, store, callers, transactionKeys, keys, expected);
        await store.Engine.SettleAsync();
        var settled = puts / Stopwatch.GetElapsedTime(started).TotalSeconds;
        DeviceCounters.SyncAll();
        return before is { } bytes ? [rate, settled, (double)(DeviceCounters.BytesWritten(store.Directory)!.Value - bytes) / puts] : [rate, settled];
    }

    private static ValueTask CommitAsync(IEngineWriter writer, EngineData data, long keys, int transactionKeys, int valueBytes)
    {
        for (var index = 0; index < transactionKeys; index++)
            writer.Put(data.RandomKey((ulong)keys), data.Value(valueBytes));
        return writer.CommitAsync();
    }
}
