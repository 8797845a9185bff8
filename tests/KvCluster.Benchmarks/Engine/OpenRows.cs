using System.Diagnostics;
using KvCluster.Benchmarks.Engine.Peers;
using KvCluster.Storage.Context;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// How long it takes to open a store until the first read is answered: after a clean stop, and for ours after a kill with much journal behind the checkpoint.
/// There also until the first durable write is answered, because ours applies what the journal has later than the first read, but before the first write.
/// </summary>
internal static class OpenRows
{
    public const string Clean = "open after a clean stop";
    public const string Killed = "open after a kill, 512 MiB of journal";
    public const string Milliseconds = "ms";
    public const string MillisecondsToWrite = "ms until the first write";
    private const long ManyBytes = 64L << 30;

    /// <summary>As much as there is when a checkpoint ends that <see cref="StoreOptions.CheckpointJournalBytes"/> has started.</summary>
    private const long JournalBytes = 512L << 20;
    private const long KeysAtFullSize = 10_000_000;

    /// <summary>The rows of the group. The journal is shorter for fewer keys.</summary>
    public static async Task RunAsync(EngineRun run)
    {
        var keys = run.Plan.Keys;
        using (var stores = run.NewStores())
        {
            await WriteRows.LoadAsync(stores, keys);
            await run.AlternateAsync(Clean, [Milliseconds], stores, store =>
            {
                store.Close();
                return Task.FromResult<double[]>([OpenAndRead(store)]);
            });
        }
        var options = new StoreOptions { CheckpointScratchBytes = ManyBytes, CheckpointJournalBytes = ManyBytes, CheckpointQuiescentJournalBytes = ManyBytes };
        using var ours = run.NewStores([EngineSystem.OursWith(options)]);
        await LoadRows.LoadAsync(ours.All[0].Engine, keys);
        await run.AlternateAsync(Killed, [Milliseconds, MillisecondsToWrite], ours, async store =>
        {
            await store.Engine.SettleAsync();
            var puts = JournalBytes / (EngineData.KeyBytes + EngineData.ValueBytes) * Math.Min(keys, KeysAtFullSize) / KeysAtFullSize;
            await WriteRows.PutAsync(store.Engine, new EngineData(run.NextSeed()), keys, puts);
            store.Kill();
            var started = Stopwatch.GetTimestamp();
            var read = OpenAndRead(store);
            using var writer = store.Engine.OpenWriter();
            writer.Put(new EngineData(run.NextSeed()).RandomKey((ulong)keys), new EngineData(run.NextSeed()).Value());
            await writer.CommitAsync();
            return [read, Stopwatch.GetElapsedTime(started).TotalMilliseconds];
        });
    }

    private static double OpenAndRead(EngineStore store)
    {
        var started = Stopwatch.GetTimestamp();
        store.Open();
        using var reader = store.Engine.OpenReader();
        if (reader.GetAlone(new EngineData(seed: 1).Key(0)) < 0)
            throw new InvalidOperationException("A loaded key is missing.");
        return Stopwatch.GetElapsedTime(started).TotalMilliseconds;
    }
}
