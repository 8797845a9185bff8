using System.Buffers.Binary;
using System.Diagnostics;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// The storage engine alone, in this process, on the disk of the temporary directory: durable writes, reads, scans, and beside them the device
/// itself.
/// </summary>
internal static class EngineSuite
{
    private const string Suite = "engine";
    private const string System = "kvcluster";
    private const int KeyCount = 200_000;
    private const int TransactionKeys = 100;
    private const int LoadBatch = 500;

    /// <summary>See <see cref="BenchmarkSuite"/>.</summary>
    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(bool quick, Action<string> progress, CancellationToken cancellation)
    {
        var runs = quick ? 3 : 7;
        var time = TimeSpan.FromSeconds(quick ? 0.5 : 3);
        using var directory = new TemporaryDirectory();
        using var store = StandaloneStore.Open(
            LocalDisk.Instance, Path.Combine(directory.Path, "shard"), new StoreOptions(), TimeProvider.System, NullLogger.Instance);
        var rows = new List<BenchmarkRow>();
        async Task Measure(string workload, string system, string unit, Func<Task<double>> run)
        {
            progress(workload);
            var values = new List<double>();
            for (var index = 0; index < runs; index++)
            {
                cancellation.ThrowIfCancellationRequested();
                values.Add(await run());
            }
            rows.Add(BenchmarkRow.Of(Suite, workload, system, unit, values));
        }

        await Measure("synced 4 KiB write", "device", "op/s", () => Task.FromResult(DeviceWrites.PerSecond(directory.Path, AlignedBuffer.Alignment, time)));
        await Measure($"load of {KeyCount} keys in batches of {LoadBatch}", System, "op/s", () => LoadAsync(store));
        await Measure("durable put, 1 caller", System, "op/s", () => PutsAsync(store, callers: 1, keys: 1, time));
        await Measure("durable put, 64 callers", System, "op/s", () => PutsAsync(store, callers: 64, keys: 1, time));
        await Measure("durable put, 256 callers", System, "op/s", () => PutsAsync(store, callers: 256, keys: 1, time));
        await Measure($"{TransactionKeys}-key transaction, 1 caller", System, "op/s", () => PutsAsync(store, callers: 1, TransactionKeys, time));
        await Measure($"{TransactionKeys}-key transaction, 16 callers", System, "op/s", () => PutsAsync(store, callers: 16, TransactionKeys, time));
        await Measure("checkpoint", System, "ms", async () =>
        {
            await PutsAsync(store, callers: 64, keys: 1, TimeSpan.FromMilliseconds(100));
            var started = Stopwatch.GetTimestamp();
            await store.Store.CheckpointAsync();
            return Stopwatch.GetElapsedTime(started).TotalMilliseconds;
        });
        await Measure("point read, 1 thread", System, "op/s", () => Task.FromResult(PointReads(store, time)));
        await Measure("scanned items, 1 thread", System, "op/s", () => Task.FromResult(Scans(store, time)));
        rows.AddRange(await CheckpointLoad.RunAsync(Suite, directory.Path, quick ? 100_000 : 1_000_000, runs, quick ? TimeSpan.FromSeconds(1) : TimeSpan.FromSeconds(10), progress, cancellation));
        return rows;
    }

    private static async Task<double> LoadAsync(StandaloneStore store)
    {
        var started = Stopwatch.GetTimestamp();
        var waiting = new Queue<ValueTask<WriteResult>>();
        for (var key = 0; key < KeyCount; key += LoadBatch)
        {
            var request = WriteRequest.Rent();
            for (var index = key; index < key + LoadBatch; index++)
                AddPut(request, index, index);
            if (waiting.Count == 16)
                ThrowUnlessApplied(await waiting.Dequeue());
            waiting.Enqueue(Submit(store, request));
        }
        while (waiting.TryDequeue(out var answer))
            ThrowUnlessApplied(await answer);
        return Rate(KeyCount, started);
    }

    private static async Task<double> PutsAsync(StandaloneStore store, int callers, int keys, TimeSpan time)
    {
        var started = Stopwatch.GetTimestamp();
        var counts = await Task.WhenAll(Enumerable.Range(0, callers).Select(caller => Task.Run(async () =>
        {
            var random = new Random(caller);
            long count = 0;
            for (; Stopwatch.GetElapsedTime(started) < time; count++)
            {
                var request = WriteRequest.Rent();
                for (var index = 0; index < keys; index++)
                    AddPut(request, random.Next(KeyCount), (int)count);
                ThrowUnlessApplied(await Submit(store, request));
            }
            return count;
        })));
        return Rate(counts.Sum(), started);
    }

    private static double PointReads(StandaloneStore store, TimeSpan time)
    {
        var random = new Random(1);
        Span<byte> key = stackalloc byte[16];
        var started = Stopwatch.GetTimestamp();
        long count = 0;
        while (Stopwatch.GetElapsedTime(started) < time)
        {
            for (var index = 0; index < 1000; index++, count++)
            {
                WriteKey(key, random.Next(KeyCount));
                using var snapshot = store.OpenSnapshot();
                if (!snapshot.TryGet(TreeId.Kv, key, out _))
                    throw new InvalidOperationException("A loaded key is missing.");
            }
        }
        return Rate(count, started);
    }

    private static double Scans(StandaloneStore store, TimeSpan time)
    {
        var started = Stopwatch.GetTimestamp();
        long count = 0;
        long bytes = 0;
        while (Stopwatch.GetElapsedTime(started) < time)
        {
            using var snapshot = store.OpenSnapshot();
            using var cursor = snapshot.Cursor(TreeId.Kv);
            for (; cursor.MoveNext(); count++)
                bytes += cursor.Key.Length + cursor.Value.Length;
        }
        return bytes > 0 ? Rate(count, started) : throw new InvalidOperationException("The scan found nothing.");
    }

    private static ValueTask<WriteResult> Submit(StandaloneStore store, WriteRequest request) =>
        store.TryWrite(request) ?? throw new InvalidOperationException("The engine's queue is full.");

    private static void ThrowUnlessApplied(WriteResult result)
    {
        if (result.Outcome != WriteOutcome.Applied)
            throw new InvalidOperationException($"A write ended as {result}.");
    }

    private static void AddPut(WriteRequest request, int key, int value)
    {
        Span<byte> keyBytes = stackalloc byte[16];
        Span<byte> valueBytes = stackalloc byte[100];
        WriteKey(keyBytes, key);
        valueBytes.Fill((byte)value);
        request.Put(keyBytes, valueBytes);
    }

    /// <summary>"key-" and a number that spreads neighbouring keys over the whole range, as in random order.</summary>
    private static void WriteKey(Span<byte> key, int number)
    {
        "key-"u8.CopyTo(key);
        BinaryPrimitives.WriteUInt64BigEndian(key[4..], (ulong)number * 0x9E37_79B9_7F4A_7C15);
        BinaryPrimitives.WriteInt32BigEndian(key[12..], number);
    }

    private static double Rate(long count, long started) => count / Stopwatch.GetElapsedTime(started).TotalSeconds;
}
