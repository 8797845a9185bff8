using System.Diagnostics;
using System.Globalization;
using KvCluster.Benchmarks.Engine.Peers;
using KvCluster.Storage.Pages;

namespace KvCluster.Benchmarks.Engine;

/// <summary>Sorted keys into an empty store, and what the files take afterwards.</summary>
internal static class LoadRows
{
    public const string SortedLoad = "sorted load";
    public const string ItemsPerSecond = "items/s";
    public const string SettledItemsPerSecond = "items/s until settled";
    public const string RandomPuts = "1,100-byte values put in random order";
    public const string Files = PackageFiles.Name;
    public const string FilesToRaw = "files / raw";
    // An engine that looks every five seconds may take ten to find that nothing has changed for five, twice, before it gives anything back.
    private static readonly TimeSpan UnchangedForRest = TimeSpan.FromSeconds(31);
    private static readonly TimeSpan RestMax = TimeSpan.FromMinutes(2);
    private const int LargeValueBytes = 1_100;
    private const int LargeValueScale = 10;
    private const int RandomPutsPerTransaction = 1_000;

    /// <summary>Loads keys 0 to <paramref name="keys"/> and returns when they are durable.</summary>
    public static async Task LoadAsync(IEngine engine, long keys, int valueBytes = EngineData.ValueBytes)
    {
        using var loader = engine.OpenLoader();
        var data = new EngineData(seed: 1);
        var bytes = 0;
        for (var key = 0L; key < keys; key++)
        {
            loader.Put(data.Key((ulong)key), data.Value(valueBytes));
            bytes += EngineData.KeyBytes + valueBytes;
            if (bytes >= loader.BatchBytes)
            {
                await loader.CommitAsync();
                bytes = 0;
            }
        }
        await loader.FinishAsync();
    }

    /// <summary>The load, and the space that the files take after it.</summary>
    public static Task SortedAsync(EngineRun run) =>
        run.AlternateAsync(SortedLoad, [ItemsPerSecond, SettledItemsPerSecond, FilesToRaw], run.Systems, async system =>
        {
            using var store = run.NewStore(system);
            var keys = run.Plan.Keys;
            var started = Stopwatch.GetTimestamp();
            await LoadAsync(store.Engine, keys);
            var durable = Stopwatch.GetElapsedTime(started);
            await store.Engine.SettleAsync();
            var settled = Stopwatch.GetElapsedTime(started);
            return [keys / durable.TotalSeconds,
                keys / settled.TotalSeconds, await BytesAtRestAsync(run, store) / (keys * (double)(EngineData.KeyBytes + EngineData.ValueBytes))];
        });

    /// <summary>The space that larger values take, put once each in random order.</summary>
    public static Task RandomSpaceAsync(EngineRun run)
    {
        var keys = run.Plan.Keys / LargeValueScale;
        var order = new int[keys];
        for (var index = 0; index < keys; index++)
            order[index] = index;
        new Random(1).Shuffle(order);
        return run.AlternateAsync(RandomPuts, [FilesToRaw], run.Systems, async system =>
        {
            using var store = run.NewStore(system);
            await PutAsync(store.Engine, order);
            await store.Engine.SettleAsync();
            return [await BytesAtRestAsync(run, store) / (keys * (double)(EngineData.KeyBytes + LargeValueBytes))];
        }, rounds: 1);
    }

    /// <summary>The space that real paths take, loaded in order.</summary>
    public static async Task FilesAsync(EngineRun run)
    {
        if (await PackageFiles.ReadAsync(run.Progress) is not { } text)
            return;
        await run.AlternateAsync(Files, [ItemsPerSecond, FilesToRaw], run.Systems, async system =>
        {
            using var store = run.NewStore(system);
            var started = Stopwatch.GetTimestamp();
            // On one thread, to which a transaction of a peer is bound.
            var (items, bytes) = await Task.Factory.StartNew(
                () => LoadLinesAsync(store.Engine, text).GetAwaiter().GetResult(),
                CancellationToken.None, TaskCreationOptions.LongRunning, TaskScheduler.Default);
            var took = Stopwatch.GetElapsedTime(started);
            await store.Engine.SettleAsync();
            return [items / took.TotalSeconds, await BytesAtRestAsync(run, store) / (double)bytes];
        }, rounds: 1);
    }

    /// <summary>
    /// What the files take when the store has been left alone until that does not change any more: engines merge files, or give space back, when they are idle.
    /// Tells where our bytes are.
    /// </summary>
    private static async Task<double> BytesAtRestAsync(EngineRun run, EngineStore store)
    {
        var bytes = DeviceCounters.BytesAllocated(store.Directory);
        Describe("at once");
        bytes = await AtRestAsync(() => DeviceCounters.BytesAllocated(store.Directory));
        Describe("at rest");
        return bytes;

        void Describe(string when)
        {
            if (store.Engine is KvClusterEngine { Store.Store: { Statistics: var ours, Pages: var pages } })
                run.Progress(string.Create(
                    CultureInfo.InvariantCulture,
                    $"  {when}: {bytes >> 10:N0} KiB; data file {ours.DataAllocatedBytes >> 10:N0} of {ours.DataBytes >> 10:N0}, pages in use "
                    + $"{pages.Free.UsedPages * Page.Bytes >> 10:N0}; journal {ours.JournalBytes >> 10:N0}, for followers {ours.JournalKeptBytes >> 10:N0}"));
        }
    }

    /// <summary>A number of bytes when it has not changed for a while, in which the store is left alone.</summary>
    public static async Task<long> AtRestAsync(Func<long> bytesOf)
    {
        var bytes = bytesOf();
        var (began, changed) = (Stopwatch.GetTimestamp(), Stopwatch.GetTimestamp());
        while (Stopwatch.GetElapsedTime(changed) < UnchangedForRest && Stopwatch.GetElapsedTime(began) < RestMax)
        {
            await Task.Delay(UnchangedForRest / 32);
            if (bytesOf() is var now && now != bytes)
                (bytes, changed) = (now, Stopwatch.GetTimestamp());
        }
        return bytes;
    }

    /// <summary>Loads a list of a key, a tab and a value in each line, and returns how many lines and bytes it has when they are durable.</summary>
    public static async Task<(long Items, long Bytes)> LoadLinesAsync(IEngine engine, ReadOnlyMemory<byte> text)
    {
        using var loader = engine.OpenLoader();
        var (items, bytes, sinceCommit) = (0L, 0L, 0);
        while (!text.IsEmpty)
        {
            var length = text.Span.IndexOf((byte)'\n') is >= 0 and var end ? end : text.Length;
            var line = text.Span[..length];
            var tab = line.IndexOf((byte)'\t');
            loader.Put(line[..tab], line[(tab + 1)..]);
            (items, bytes, sinceCommit) = (items + 1, bytes + length - 1, sinceCommit + length - 1);
            text = text[Math.Min(length + 1, text.Length)..];
            if (sinceCommit >= loader.BatchBytes)
            {
                await loader.CommitAsync();
                sinceCommit = 0;
            }
        }
        await loader.FinishAsync();
        return (items, bytes);
    }

    private static async Task PutAsync(IEngine engine, int[] order)
    {
        using var writer = engine.OpenWriter();
        var data = new EngineData(seed: 1);
        for (var index = 0; index < order.Length; index++)
        {
            writer.Put(data.Key((ulong)order[index]), data.Value(LargeValueBytes));
            if ((index + 1) % RandomPutsPerTransaction == 0 || index + 1 == order.Length)
                await writer.CommitAsync();
        }
    }
}
