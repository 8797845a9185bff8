using System.Diagnostics;
using KvCluster.Benchmarks.Engine.Peers;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// Real data, JSON documents and paths, in stores that compress values and in others: the load in order, puts of the same values in random order, random
/// reads, and what the data file takes. The systems of these rows are the two settings.
/// </summary>
internal static class CompressionRows
{
    public const string FileToRaw = "data file / raw";
    private const int PutsPerTransaction = 100;
    private const int ReadsPerCheck = 256;

    private static readonly EngineSystem[] _systems = [SystemOf("compress: nothing", compresses: false), SystemOf("compress: values", compresses: true)];

    /// <summary>The rows of the group. A list that is not there is left out.</summary>
    public static async Task RunAsync(EngineRun run)
    {
        foreach (var name in (string[])[PackageFiles.Packages, PackageFiles.Name])
        {
            if (await PackageFiles.ReadAsync(run.Progress, name) is not { } text)
                continue;
            (ReadOnlyMemory<byte> Key, ReadOnlyMemory<byte> Value)[] records = [.. PackageFiles.RecordsIn(text)];
            await run.AlternateAsync(
                $"values of {name}", [LoadRows.ItemsPerSecond, WriteRows.PutsPerSecond, ReadRows.ReadsPerSecond, FileToRaw], _systems,
                system => MeasureAsync(run, system, text, records));
        }
    }

    private static EngineSystem SystemOf(string name, bool compresses) => new(
        name, directory => new KvClusterEngine(
            directory, new StoreOptions { Pages = new PageStoreOptions { CompressesValues = compresses } }, KvClusterEngine.MemoryBudgetDefault));

    private static async Task<double[]> MeasureAsync(
        EngineRun run, EngineSystem system, ReadOnlyMemory<byte> text, (ReadOnlyMemory<byte> Key, ReadOnlyMemory<byte> Value)[] records)
    {
        using var store = run.NewStore(system);
        var started = Stopwatch.GetTimestamp();
        var (items, bytes) = await LoadRows.LoadLinesAsync(store.Engine, text);
        var loaded = items / Stopwatch.GetElapsedTime(started).TotalSeconds;
        await store.Engine.SettleAsync();
        var statistics = ((KvClusterEngine)store.Engine).Store.Store.Statistics;
        var part = await LoadRows.AtRestAsync(() => statistics.DataAllocatedBytes) / (double)bytes;
        var puts = await PutsPerSecondAsync(run, store.Engine, records);
        var reads = await Task.Factory.StartNew(
            () => ReadsPerSecond(run, store.Engine, records), CancellationToken.None, TaskCreationOptions.LongRunning, TaskScheduler.Default);
        return [loaded, puts, reads, part];
    }

    private static async Task<double> PutsPerSecondAsync(
        EngineRun run, IEngine engine, (ReadOnlyMemory<byte> Key, ReadOnlyMemory<byte> Value)[] records)
    {
        using var writer = engine.OpenWriter();
        var random = new Random(run.RoundSeed);
        var (count, started) = (0L, Stopwatch.GetTimestamp());
        for (; Stopwatch.GetElapsedTime(started) < run.Plan.Time; count += PutsPerTransaction)
        {
            for (var put = 0; put < PutsPerTransaction; put++)
            {
                var (key, value) = records[random.Next(records.Length)];
                writer.Put(key.Span, value.Span);
            }
            await writer.CommitAsync();
        }
        return count / Stopwatch.GetElapsedTime(started).TotalSeconds;
    }

    private static double ReadsPerSecond(EngineRun run, IEngine engine, (ReadOnlyMemory<byte> Key, ReadOnlyMemory<byte> Value)[] records)
    {
        using var reader = engine.OpenReader();
        var random = new Random(run.RoundSeed);
        var (count, started) = (0L, Stopwatch.GetTimestamp());
        for (; Stopwatch.GetElapsedTime(started) < run.Plan.Time; count += ReadsPerCheck)
        {
            for (var read = 0; read < ReadsPerCheck; read++)
            {
                if (reader.GetAlone(records[random.Next(records.Length)].Key.Span) < 0)
                    throw new InvalidOperationException("A loaded key is missing.");
            }
        }
        return count / Stopwatch.GetElapsedTime(started).TotalSeconds;
    }
}
