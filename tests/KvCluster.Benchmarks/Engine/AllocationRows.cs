using KvCluster.Benchmarks.Engine.Peers;

namespace KvCluster.Benchmarks.Engine;

/// <summary>What the garbage collector has to do for our engine: managed bytes per point read and per durable put.</summary>
internal static class AllocationRows
{
    public const string Read = "point read, allocation";
    public static readonly string Put = $"durable put, {WriteRows.ManyCallers} callers, allocation";
    public const string Bytes = "bytes/op";
    private const long Keys = 100_000;
    private const int Reads = 1_000_000;

    /// <summary>The rows of the group.</summary>
    public static async Task RunAsync(EngineRun run)
    {
        using var stores = run.NewStores([EngineSystem.Ours]);
        await LoadRows.LoadAsync(stores.All[0].Engine, Keys);
        await run.AlternateAsync(Read, [Bytes], stores, store => Task.FromResult<double[]>([OfReads(store.Engine, new EngineData(run.NextSeed()))]));
        await run.AlternateAsync(Put, [Bytes], stores, async store =>
        {
            var before = GC.GetTotalAllocatedBytes(precise: true);
            var (puts, _) = await WriteRows.PutAsync(run, store, WriteRows.ManyCallers, transactionKeys: 1, Keys, WriteRows.ManyCallersRate);
            return [(double)(GC.GetTotalAllocatedBytes(precise: true) - before) / puts];
        });
    }

    private static double OfReads(IEngine engine, EngineData data)
    {
        using var reader = engine.OpenReader();
        var before = GC.GetAllocatedBytesForCurrentThread();
        var sum = 0L;
        for (var index = 0; index < Reads; index++)
            sum += reader.GetAlone(data.RandomKey((ulong)Keys));
        return sum > 0 ? (double)(GC.GetAllocatedBytesForCurrentThread() - before) / Reads : throw new InvalidOperationException("The reads found nothing.");
    }
}
