using System.Diagnostics;
using System.Globalization;
using KvCluster.Benchmarks.Engine.Peers;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// Durable random puts over many keys with a budget of memory that has room for few of the changed leaves. Ours has the budget for changed pages, journal and
/// requests together, RocksDB two write buffers of a quarter each and half of it as block cache, and LMDB the page cache, which none of them is denied. A row
/// lasts four times the planned time, and until three checkpoints of ours have ended, but no more than sixteen times it; what is left to be written then is
/// paid, too.
/// </summary>
internal static class BudgetRows
{
    public const string DeviceBytesRead = "device bytes read/put";
    public const long SmallBudget = 512L << 20;
    public const long LargeBudget = 2L << 30;
    private const int CachePart = 2;
    private const int TimesMin = 4;
    private const int StepsMax = 4;

    // A checkpoint of many leaves takes both meta pages.
    private const ulong MetaPagesMin = 6;
    private static readonly (int Callers, int TransactionKeys)[] Writers =
        [(WriteRows.ManyCallers, 1), (1, WriteRows.TransactionKeys), (WriteRows.TransactionCallers, WriteRows.TransactionKeys)];

    /// <summary>The name of a row.</summary>
    public static string Of(int callers, int transactionKeys, long budget) => string.Create(
        CultureInfo.InvariantCulture,
        $"durable put, large store, {callers} caller{(callers == 1 ? "" : "s")} x {transactionKeys}, {budget >> 20:N0} MiB");

    /// <summary>The rows of both budgets.</summary>
    public static async Task RunAsync(EngineRun run)
    {
        foreach (var budget in (long[])[SmallBudget, LargeBudget])
        {
            using var stores = run.NewStores(run.Systems.Select(system => WithBudget(system, budget)));
            await WriteRows.LoadAsync(stores, run.Plan.Keys);
            foreach (var (callers, transactionKeys) in Writers)
            {
                await run.AlternateAsync(
                    Of(callers, transactionKeys, budget),
                    run.CountsDeviceBytes ? [WriteRows.PutsPerSecond, WriteRows.SettledPutsPerSecond, WriteRows.DeviceBytes, DeviceBytesRead]
                        : [WriteRows.PutsPerSecond, WriteRows.SettledPutsPerSecond],
                    stores, store => MeasureAsync(run, store, callers, transactionKeys));
            }
        }
    }

    private static EngineSystem WithBudget(EngineSystem system, long budget) => system.Name switch
    {
        EngineSystem.KvCluster => system with { Open = directory => new KvClusterEngine(directory, new(), budget) },
        EngineSystem.RocksDb => system with { Open = directory => new RocksDbEngine(directory, budget / CachePart, budget) },
        _ => system,
    };

    private static async Task<double[]> MeasureAsync(EngineRun run, EngineStore store, int callers, int transactionKeys)
    {
        DeviceCounters.SyncAll();
        var before = DeviceCounters.BytesMoved(store.Directory);
        var metaPages = MetaPagesOf(store);
        var started = Stopwatch.GetTimestamp();
        var puts = 0L;
        for (var step = 0; step == 0 || (step < StepsMax && WantsMore(store, metaPages)); step++)
        {
            puts += (await WriteRows.CallAsync(
                store.Engine, callers, transactionKeys, run.Plan.Keys, long.MaxValue, TimesMin * run.Plan.Time, _ => new EngineData(run.NextSeed()))).Puts;
        }
        var rate = puts / Stopwatch.GetElapsedTime(started).TotalSeconds;
        await store.Engine.SettleAsync();
        var settled = puts / Stopwatch.GetElapsedTime(started).TotalSeconds;
        if (store.Engine is KvClusterEngine)
            run.Progress($"  {puts} puts, {MetaPagesOf(store) - metaPages} meta pages of checkpoints");
        DeviceCounters.SyncAll();
        if (before is not { } moved || DeviceCounters.BytesMoved(store.Directory) is not { } after)
            return [rate, settled];
        return [rate, settled, (after.Written - moved.Written) / (double)puts, (after.Read - moved.Read) / (double)puts];
    }

    private static bool WantsMore(EngineStore store, ulong before) =>
        store.Engine is KvClusterEngine && MetaPagesOf(store) - before < MetaPagesMin;

    private static ulong MetaPagesOf(EngineStore store) =>
        store.Engine is KvClusterEngine ours ? ours.Store.Store.Pages.Meta.Newest.Revision : 0;
}
