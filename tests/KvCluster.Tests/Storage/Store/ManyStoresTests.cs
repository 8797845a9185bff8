using System.Collections.Concurrent;
using System.Globalization;
using System.Runtime.InteropServices;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Files;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Transactions;
using Microsoft.Extensions.Logging.Abstractions;
using Xunit.Abstractions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// As many stores as a large node has, on its threads and a real disk, under random transactions that would change several times the budget: their account
/// and the memory of the process stay within it, nobody stalls, and memory falls when the load ends. KV_LONG=1 takes the budget and the load of a small node.
/// </summary>
[Collection(AloneCollection.Name)]
[Trait("Turn", "2")]
public sealed partial class ManyStoresTests(ITestOutputHelper output) : IDisposable
{
    private const int Stores = 300;
    private const int KeysPerLoad = 200;
    private const int KeysPerTransaction = 40;
    private const int Callers = 64;

    /// <summary>
    /// What the process may take besides the budget and what open stores take that have nothing to do: objects of each store, and buffers of callers, of
    /// threads, of checkpoints and of the allocator. Each of the two threads that write checkpoints has a buffer of 2 MiB, and a few of these wait in a pool.
    /// </summary>
    private const long AllowanceBytes = (Stores * (128L << 10)) + (64 << 20);

    private static readonly long Budget = Seeds.IsLong ? 256L << 20 : 64L << 20;
    private static readonly int Keys = Seeds.IsLong ? 2_000 : 1_000;
    private static readonly int Transactions = Seeds.IsLong ? 60_000 : 2_000;

    private readonly TemporaryDirectory _directory = new();
    private readonly WorkThread[] _threads = [.. Enumerable.Range(0, 6).Select(static index => new WorkThread($"kv-{index}", TimeProvider.System))];
    private readonly MemoryAccount _account = new(Budget, TimeProvider.System);
    private readonly List<StandaloneStore> _stores = [];

    public void Dispose()
    {
        foreach (var thread in _threads)
            thread.Dispose();
        _stores.ForEach(static store => store.Dispose());
        _directory.Dispose();
    }

    [AllocatorFact]
    public async Task Stores_OfALargeNode_StayWithinTheBudgetUnderLoadAndReturnItAfterwards()
    {
        var random = Seeds.Next(output);
        var options = new StoreOptions
        {
            SegmentBytesMin = 64 << 10, SegmentBytesMax = 1 << 20, RetainedJournalBytes = 1 << 20, ReserveBytes = 4096, FillSegments = false,
            CheckpointQuiescentTime = TimeSpan.FromSeconds(1),
        };
        for (var index = 0; index < Stores; index++)
        {
            var context = new StoreContext(
                LocalDisk.Instance, _threads[index % 2], _threads[2..4], _threads[4 + (index % 2)], TimeProvider.System, NullLogger.Instance, options)
            {
                Memory = _account,
            };
            _stores.Add(StandaloneStore.Open(context, Path.Combine(_directory.Path, $"{index}")));
        }
        // What other tests have left in the allocator would serve these stores without being seen.
        _ = TrimAllocator(0);
        var opened = ProcessBytes();
        using var ended = new CancellationTokenSource();
        var watching = WatchAsync(ended.Token);
        var loads = new ConcurrentQueue<(StandaloneStore, int)>(
            Enumerable.Range(0, Keys / KeysPerLoad).SelectMany(part => _stores.Select(store => (store, part * KeysPerLoad))));
        await Task.WhenAll(Enumerable.Range(0, Callers).Select(_ => LoadAsync()));
        var left = Transactions;
        await Task.WhenAll(Enumerable.Range(0, Callers).Select(_ => CallAsync(new Random(random.Next()))));
        await ended.CancelAsync();
        var (used, process) = await watching;
        output.WriteLine($"budget {Budget >> 20} MiB, used {used >> 20}, process {opened >> 20} when the stores were open and then {process >> 20}, held back "
            + $"for {_account.HeldBack}");
        Assert.InRange(used, Budget * 3 / 8, Budget);
        Assert.InRange(process - opened, long.MinValue, Budget + AllowanceBytes);
        await Eventually.TrueAsync(
            () => Task.FromResult(_account.Used <= Budget / 2 && _account.UsedFor(MemoryUse.FreePages) == 0 && _account.UsedFor(MemoryUse.Requests) == 0),
            () => $"{_account.Used} bytes are used, {_account.UsedFor(MemoryUse.FreePages)} of them free");
        // As at the start: what was freed, and the allocator keeps, is not the stores'.
        _ = TrimAllocator(0);
        output.WriteLine($"afterwards used {_account.Used >> 20}, process {ProcessBytes() >> 20}");
        Assert.InRange(ProcessBytes() - opened, long.MinValue, (Budget / 2) + AllowanceBytes);

        async Task LoadAsync()
        {
            while (loads.TryDequeue(out var load))
                await WriteAsync(load.Item1, Enumerable.Range(load.Item2, KeysPerLoad));
        }

        async Task CallAsync(Random own)
        {
            while (Interlocked.Decrement(ref left) >= 0)
                await WriteAsync(_stores[own.Next(Stores)], Enumerable.Range(0, KeysPerTransaction).Select(_ => own.Next(Keys)));
        }
    }

    private static async Task WriteAsync(StandaloneStore store, IEnumerable<int> keys)
    {
        while (true)
        {
            var request = WriteRequest.Rent();
            foreach (var key in keys)
                request.Put(StoreBench.Text($"key-{key:D5}"), new byte[200]);
            if (store.TryWrite(request) is { } answer)
            {
                Assert.Equal(WriteOutcome.Applied, (await answer).Outcome);
                return;
            }
            await Task.Delay(5);
        }
    }

    // The most that was used, of the account at any time and by the process now and then.
    private async Task<(long Used, long Process)> WatchAsync(CancellationToken stop)
    {
        var (used, process) = (0L, 0L);
        for (var look = 0; !stop.IsCancellationRequested; look++)
        {
            used = Math.Max(used, _account.Used);
            if (look % 500 == 0)
                process = Math.Max(process, ProcessBytes());
            await Task.Delay(2, CancellationToken.None);
        }
        return (used, process);
    }

    // Without garbage, which the collector leaves for as long as it likes, and without mapped files, which the system takes back when it needs the memory.
    private static long ProcessBytes()
    {
        GC.Collect(GC.MaxGeneration, GCCollectionMode.Aggressive, blocking: true, compacting: true);
        var line = File.ReadLines("/proc/self/status").First(static line => line.StartsWith("RssAnon:", StringComparison.Ordinal));
        return long.Parse(line.Split(' ', StringSplitOptions.RemoveEmptyEntries)[^2], CultureInfo.InvariantCulture) << 10;
    }

    [LibraryImport("libc", EntryPoint = "malloc_trim")]
    private static partial int TrimAllocator(nuint pad);

    /// <summary>
    /// A test that measures the memory of its process as Linux counts it, and empties the allocator of glibc before. It is skipped elsewhere.
    /// </summary>
    [AttributeUsage(AttributeTargets.Method)]
    private sealed class AllocatorFactAttribute : FactAttribute
    {
        public AllocatorFactAttribute() =>
            Skip = OperatingSystem.IsLinux() && NativeLibrary.TryLoad("libc.so.6", out var libc) && NativeLibrary.TryGetExport(libc, "malloc_trim", out _)
                ? null
                : "needs Linux with glibc";
    }
}
