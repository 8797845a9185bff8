using KvCluster.Benchmarks.Engine.Peers;
using KvCluster.Storage.Files;
using KvCluster.Storage.Inspection;
using KvCluster.Storage.Pages;

namespace KvCluster.Benchmarks.Engine;

/// <summary>Our checkpoints: what one writes after random puts to a large tree, and how much the data file grows when values are overwritten.</summary>
internal static class CheckpointRows
{
    /// <summary>The numbers of random puts before a checkpoint.</summary>
    private static readonly int[] ScatteredPuts = [100, 10_000];

    public const string Overwritten = "10 KB values, a tenth overwritten, 80 checkpoints";
    public const string FileToLive = "data file / live pages";
    private const int ScatteredValueBytes = 1_000;
    private const int ScatteredScale = 5;
    private const int OverwrittenKeys = 6_000;
    private const int OverwrittenValueBytes = 10_000;
    private const int OverwrittenCheckpoints = 80;
    private const int OverwrittenPart = 10;

    /// <summary>Pages, writes and seeks of a checkpoint; at full size the tree has about 2 GB.</summary>
    public static async Task ScatteredAsync(EngineRun run)
    {
        var keys = run.Plan.Keys / ScatteredScale;
        using var stores = run.NewStores([EngineSystem.Ours]);
        await LoadRows.LoadAsync(stores.All[0].Engine, keys, ScatteredValueBytes);
        await stores.All[0].Engine.SettleAsync();
        foreach (var puts in ScatteredPuts)
        {
            await run.AlternateAsync(
                FormattableString.Invariant($"checkpoint after {puts:N0} random puts"), ["pages", "writes", "seeks"], stores, async store =>
                {
                    await WriteRows.PutAsync(store.Engine, new EngineData(run.NextSeed()), keys, puts, ScatteredValueBytes);
                    await store.Engine.SettleAsync();
                    var counts = ((KvClusterEngine)store.Engine).Store.Store.Statistics.CheckpointCounts;
                    return [counts.Pages, counts.Writes, counts.Seeks];
                });
        }
    }

    /// <summary>The size of a data file whose values change again and again, beside its live pages.</summary>
    public static Task OverwrittenAsync(EngineRun run) =>
        run.AlternateAsync(Overwritten, [FileToLive], [EngineSystem.Ours], async system =>
        {
            using var store = run.NewStore(system);
            await LoadRows.LoadAsync(store.Engine, OverwrittenKeys, OverwrittenValueBytes);
            await store.Engine.SettleAsync();
            var data = new EngineData(run.NextSeed());
            for (var checkpoint = 0; checkpoint < OverwrittenCheckpoints; checkpoint++)
            {
                await WriteRows.PutAsync(store.Engine, data, OverwrittenKeys, OverwrittenKeys / OverwrittenPart, OverwrittenValueBytes);
                await store.Engine.SettleAsync();
            }
            // The free map of a store that is open belongs to its writer.
            store.Close();
            using var stopped = StoppedReplica.Open(LocalDisk.Instance, store.Directory);
            var live = stopped.Free!.UsedRuns().Sum(static run => run.Count) * Page.Bytes;
            return [(double)stopped.DataBytes / live];
        }, rounds: 1);
}
