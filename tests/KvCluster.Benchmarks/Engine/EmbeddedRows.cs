using KvCluster.Benchmarks.Engine.Peers;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// The library as a program embeds it, beside the same engine called directly: what <see cref="Storage.KvStore"/> adds to a put and to a read, and its smaller
/// memory budget.
/// </summary>
internal static class EmbeddedRows
{
    public static readonly string Put = $"durable put, {WriteRows.ManyCallers} callers, embedded";
    public const string Read = "point read, 1 thread, one snapshot, embedded";
    private const int Keys = 1_000_000;

    /// <summary>The rows of the group.</summary>
    public static async Task RunAsync(EngineRun run)
    {
        var keys = Math.Min(run.Plan.Keys, Keys);
        using var stores = run.NewStores([EngineSystem.Ours, EngineSystem.Embedded]);
        foreach (var store in stores.All)
        {
            await LoadRows.LoadAsync(store.Engine, keys);
            await store.Engine.SettleAsync();
        }
        await run.AlternateAsync(Put, [WriteRows.PutsPerSecond], stores, async store =>
        {
            var (_, rate) = await WriteRows.PutAsync(run, store, WriteRows.ManyCallers, transactionKeys: 1, keys, WriteRows.ManyCallersRate);
            return [rate];
        });
        await run.AlternateAsync(Read, [ReadRows.ReadsPerSecond], stores, store => ReadRows.MeasureAsync(run, store, keys, threads: 1, alone: false));
    }
}
