using System.Buffers.Binary;
using System.Diagnostics;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Files;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// Single puts of a few callers over all of a large store while one checkpoint follows the other: how long the slowest of them wait. Alternating
/// between the data file through the page cache, the default, and past it.
/// </summary>
internal static class CheckpointLoad
{
    private const int Callers = 4;
    private const int BatchKeys = 500;
    private const int BatchesInFlight = 16;

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(string suite, string directory, int keys, int runs, TimeSpan time, Action<string> progress, CancellationToken cancellation)
    {
        var workload = $"durable put, {Callers} callers, {keys} keys, checkpoints all the time";
        using var cached = Open(Path.Combine(directory, "cached"), direct: false);
        using var direct = Open(Path.Combine(directory, "direct"), direct: true);
        (string System, StandaloneStore Store)[] systems = [("kvcluster", cached), ("kvcluster, data file past the page cache", direct)];
        var p99 = systems.ToDictionary(system => system.System, _ => new List<double>());
        var p999 = systems.ToDictionary(system => system.System, _ => new List<double>());
        foreach (var (_, store) in systems)
            await FillAsync(store, keys);
        for (var run = 0; run < runs; run++)
        {
            foreach (var (system, store) in systems)
            {
                cancellation.ThrowIfCancellationRequested();
                var latencies = await PutsAsync(store, keys, run, time);
                p99[system].Add(Milliseconds(latencies, 0.99));
                p999[system].Add(Milliseconds(latencies, 0.999));
                progress($"{workload}, {system}: {latencies.Length / time.TotalSeconds:F0}/s, p99 {p99[system][^1]:F2} ms, p99.9 {p999[system][^1]:F2} ms");
            }
        }
        return [.. systems.SelectMany(system => (BenchmarkRow[])
        [
            BenchmarkRow.Of(suite, workload, system.System, "p99 ms", p99[system.System]), BenchmarkRow.Of(suite, workload, system.System, "p99.9 ms", p999[system.System]),
        ])];
    }

    private static StandaloneStore Open(string directory, bool direct) => StandaloneStore.Open(
        LocalDisk.Instance, directory, new StoreOptions { Pages = new PageStoreOptions { Direct = direct } }, TimeProvider.System, NullLogger.Instance);

    private static async Task FillAsync(StandaloneStore store, int keys)
    {
        var waiting = new Queue<Task>();
        for (var key = 0; key < keys; key += BatchKeys)
        {
            var request = WriteRequest.Rent();
            for (var index = key; index < key + BatchKeys; index++)
                AddPut(request, index, index);
            if (waiting.Count == BatchesInFlight)
                await waiting.Dequeue();
            waiting.Enqueue(WriteAsync(store, request));
        }
        await Task.WhenAll(waiting);
        await store.Store.CheckpointAsync();
    }

    private static async Task<long[]> PutsAsync(StandaloneStore store, int keys, int run, TimeSpan time)
    {
        var started = Stopwatch.GetTimestamp();
        var checkpoints = Task.Run(async () =>
        {
            while (Stopwatch.GetElapsedTime(started) < time)
                await store.Store.CheckpointAsync();
        });
        var latencies = await Task.WhenAll(Enumerable.Range(0, Callers).Select(caller => Task.Run(async () =>
        {
            var random = new Random((run * Callers) + caller);
            var own = new List<long>(1 << 16);
            for (var begun = started; Stopwatch.GetElapsedTime(started) < time;)
            {
                var request = WriteRequest.Rent();
                AddPut(request, random.Next(keys), own.Count);
                await WriteAsync(store, request);
                var ended = Stopwatch.GetTimestamp();
                own.Add(ended - begun);
                begun = ended;
            }
            return own;
        })));
        await checkpoints;
        var all = latencies.SelectMany(own => own).ToArray();
        Array.Sort(all);
        return all;
    }

    private static async Task WriteAsync(StandaloneStore store, WriteRequest request)
    {
        var answer = await (store.TryWrite(request) ?? throw new InvalidOperationException("The engine's queue is full."));
        if (answer.Outcome != WriteOutcome.Applied)
            throw new InvalidOperationException($"A write ended as {answer}.");
    }

    private static void AddPut(WriteRequest request, int key, int value)
    {
        Span<byte> keyBytes = stackalloc byte[16];
        Span<byte> valueBytes = stackalloc byte[100];
        "key-"u8.CopyTo(keyBytes);
        // Spreads neighbouring keys over the whole range.
        BinaryPrimitives.WriteUInt64BigEndian(keyBytes[4..], (ulong)key * 0x9E37_79B9_7F4A_7C15);
        BinaryPrimitives.WriteInt32BigEndian(keyBytes[12..], key);
        valueBytes.Fill((byte)value);
        request.Put(keyBytes, valueBytes);
    }

    private static double Milliseconds(long[] sorted, double part) => sorted[(int)(sorted.Length * part)] * 1000.0 / Stopwatch.Frequency;
}
