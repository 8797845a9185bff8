using System.Diagnostics;
using KvCluster.Benchmarks.Engine.Peers;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// How long our engine takes to count half of its keys, and to delete them: after a load and a checkpoint, after a tenth as many random puts and another
/// checkpoint, so that leaves are scattered, and after the files were dropped from the page cache.
/// </summary>
internal static class RangeRows
{
    private const string CountMicroseconds = "count us";
    private const string DeleteMilliseconds = "delete ms";
    private const string LongestMilliseconds = "longest request ms";
    private const string Requests = "requests";
    private const int ScatteredPart = 10;

    /// <summary>The rows of the group.</summary>
    public static async Task RunAsync(EngineRun run)
    {
        await MeasureAsync(run, "half of the keys", isScattered: false, isCold: false);
        await MeasureAsync(run, "half of the keys, scattered leaves", isScattered: true, isCold: false);
        await MeasureAsync(run, "half of the keys, not in memory", isScattered: false, isCold: true);
    }

    private static Task MeasureAsync(EngineRun run, string workload, bool isScattered, bool isCold) =>
        run.AlternateAsync(workload, [CountMicroseconds, DeleteMilliseconds, LongestMilliseconds, Requests], [EngineSystem.Ours], async system =>
        {
            using var store = run.NewStore(system);
            var keys = run.Plan.Keys;
            await LoadRows.LoadAsync(store.Engine, keys);
            await store.Engine.SettleAsync();
            if (isScattered)
            {
                await WriteRows.PutAsync(store.Engine, new EngineData(run.NextSeed()), keys, keys / ScatteredPart);
                await store.Engine.SettleAsync();
            }
            if (isCold)
            {
                store.Close();
                DeviceCounters.SyncAll();
                DeviceCounters.DropFromCache(store.Directory);
                store.Open();
            }
            byte[] from = [.. new EngineData(seed: 1).Key((ulong)keys / 4)], to = [.. new EngineData(seed: 1).Key((ulong)keys * 3 / 4)];
            // The first count of a run also compiles it.
            if (!isCold)
                Count(store, from, to);
            var started = Stopwatch.GetTimestamp();
            var counted = Count(store, from, to);
            var count = Stopwatch.GetElapsedTime(started);
            var (delete, longest, requests, deleted) = await DeleteAsync(store, from, to);
            if (deleted != (long)counted || Count(store, from, to) != 0)
                throw new InvalidOperationException($"Of {counted} keys, {deleted} were deleted.");
            return [count.TotalMicroseconds, delete.TotalMilliseconds, longest.TotalMilliseconds, requests];
        });

    private static ulong Count(EngineStore store, byte[] from, byte[] to)
    {
        using var snapshot = ((KvClusterEngine)store.Engine).Store.OpenSnapshot();
        return snapshot.CountRange(TreeId.Kv, from, to);
    }

    private static async Task<(TimeSpan Time, TimeSpan Longest, int Requests, long Deleted)> DeleteAsync(EngineStore store, byte[] from, byte[] to)
    {
        var (time, longest, requests, deleted) = (TimeSpan.Zero, TimeSpan.Zero, 0, 0L);
        for (var isPartial = true; isPartial; requests++)
        {
            var request = WriteRequest.Rent();
            request.DeleteRange(from, to);
            var started = Stopwatch.GetTimestamp();
            var result = await (((KvClusterEngine)store.Engine).Store.TryWrite(request) ?? throw new InvalidOperationException("The engine's queue is full."));
            var took = Stopwatch.GetElapsedTime(started);
            if (result.Outcome != WriteOutcome.Applied)
                throw new InvalidOperationException($"A delete ended as {result}.");
            (time, longest) = (time + took, took > longest ? took : longest);
            (deleted, isPartial) = (deleted + result.Deleted, result.IsPartial);
        }
        return (time, longest, requests, deleted);
    }
}
