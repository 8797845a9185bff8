using KvCluster.Benchmarks.Engine.Peers;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// What a snapshot of our engine costs while it stays open: memory for what others change meanwhile, and, when a checkpoint has written that, the memory and
/// pages of the file of the old versions that only the snapshot has.
/// </summary>
internal static class HeldSnapshotRows
{
    public const string Held = "20,000 puts while a snapshot is open";
    public const string GrownMebibytes = "MiB of memory more";
    public const string PinnedMebibytes = "MiB of memory and file pinned after a checkpoint";
    private const long Puts = 20_000;
    private const double Mebibyte = 1 << 20;

    /// <summary>The row of the group.</summary>
    public static async Task RunAsync(EngineRun run)
    {
        using var stores = run.NewStores([EngineSystem.Ours]);
        await LoadRows.LoadAsync(stores.All[0].Engine, run.Plan.Keys);
        await run.AlternateAsync(Held, [GrownMebibytes, PinnedMebibytes], stores, async store =>
        {
            await store.Engine.SettleAsync();
            var opened = ((KvClusterEngine)store.Engine).Store;
            var pages = opened.Store.Pages;
            using var snapshot = opened.OpenSnapshot();
            var before = pages.ScratchBytes + pages.ScratchHoleBytes;
            await WriteRows.CallAsync(
                store.Engine, WriteRows.ManyCallers, 1, run.Plan.Keys, Puts / WriteRows.ManyCallers, TimeSpan.MaxValue, _ => new EngineData(run.NextSeed()));
            var grown = pages.ScratchBytes + pages.ScratchHoleBytes - before;
            await store.Engine.SettleAsync();
            return [grown / Mebibyte, pages.PinnedBytes / Mebibyte];
        });
    }
}
