using KvCluster.Benchmarks.Engine.Peers;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// What the file takes of values of one size, put once each in random order: when they are written, when a tenth was overwritten before each of many
/// checkpoints, and when the store was left alone after that. Of ours the data file counts, without journal.
/// </summary>
internal static class SpaceRows
{
    public const string FreshToRaw = "file / raw, fresh";
    public const string OverwrittenToRaw = "file / raw, after 80 checkpoints with a tenth overwritten";
    public const string RestToRaw = "file / raw, at rest";
    private const int RawBytesPerPlannedKey = 6;
    private const int RawBytesMin = 6_000_000;
    private const int TransactionBytes = 1 << 20;
    private const int Checkpoints = 80;
    private const int OverwrittenPart = 10;

    /// <summary>Values up to here are in leaves, which are not full if keys arrive in random order.</summary>
    private const int LeafValueBytesMax = 2_048;

    /// <summary>From here on a value is mostly whole pages.</summary>
    private const int PagesValueBytesMin = 9_000;

    /// <summary>The sizes of values.</summary>
    public static readonly IReadOnlyList<int> ValueSizes = [100, 1_100, 2_100, 4_000, 5_000, 9_000, 10_000, 17_000, 40_000];

    /// <summary>The name of the rows of a size.</summary>
    public static string Of(int valueBytes) => FormattableString.Invariant($"space of {valueBytes:N0}-byte values");

    /// <summary>The most that the fresh file, and that at rest, is to take for each byte.</summary>
    public static double FreshMost(int valueBytes) => valueBytes <= LeafValueBytesMax ? 1.3 : 1.15;

    /// <summary>The most after the overwrites.</summary>
    public static double OverwrittenMost(int valueBytes) => valueBytes >= PagesValueBytesMin ? 1.4 : 2.2;

    /// <summary>Each size in a store of its own.</summary>
    public static async Task RunAsync(EngineRun run)
    {
        foreach (var valueBytes in ValueSizes)
        {
            var keys = (int)(Math.Max(run.Plan.Keys * RawBytesPerPlannedKey, RawBytesMin) / (EngineData.KeyBytes + valueBytes));
            await run.AlternateAsync(
                Of(valueBytes), [FreshToRaw, OverwrittenToRaw, RestToRaw], run.Systems, system => MeasureAsync(run, system, keys, valueBytes), rounds: 1);
        }
    }

    private static async Task<double[]> MeasureAsync(EngineRun run, EngineSystem system, int keys, int valueBytes)
    {
        using var store = run.NewStore(system);
        var raw = keys * (double)(EngineData.KeyBytes + valueBytes);
        var order = Enumerable.Range(0, keys).ToArray();
        var random = new Random(1);
        random.Shuffle(order);
        await PutAsync(store.Engine, order, valueBytes);
        await store.Engine.SettleAsync();
        var fresh = BytesOf(store);
        for (var checkpoint = 0; checkpoint < Checkpoints; checkpoint++)
        {
            await PutAsync(store.Engine, [.. Enumerable.Range(0, keys / OverwrittenPart).Select(_ => random.Next(keys))], valueBytes);
            await store.Engine.SettleAsync();
        }
        var overwritten = BytesOf(store);
        // Peers have done their work when they are settled.
        var rest = store.Engine is KvClusterEngine ? await LoadRows.AtRestAsync(() => BytesOf(store)) : overwritten;
        return [fresh / raw, overwritten / raw, rest / raw];
    }

    private static async Task PutAsync(IEngine engine, int[] order, int valueBytes)
    {
        using var writer = engine.OpenWriter();
        var data = new EngineData(seed: 1);
        var perTransaction = Math.Max(1, TransactionBytes / (EngineData.KeyBytes + valueBytes));
        for (var index = 0; index < order.Length; index++)
        {
            writer.Put(data.Key((ulong)order[index]), data.Value(valueBytes));
            if ((index + 1) % perTransaction == 0 || index + 1 == order.Length)
                await writer.CommitAsync();
        }
    }

    private static long BytesOf(EngineStore store) =>
        store.Engine is KvClusterEngine ours ? ours.Store.Store.Statistics.DataAllocatedBytes : DeviceCounters.BytesAllocated(store.Directory);
}
