using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Transactions;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>The engine in a process whose thread pool does nothing. Tests that use the pool could not run beside this one.</summary>
[Collection(AloneCollection.Name)]
public sealed class OccupiedThreadPoolTests : IDisposable
{
    private readonly TemporaryDirectory _directory = new();

    public void Dispose() => _directory.Dispose();

    /// <summary>Continuations of callers run on the thread pool. What they wait for does not.</summary>
    [Fact]
    public void Write_WhileEveryThreadOfThePoolIsOccupied_BecomesDurableAndVisible()
    {
        using var store = StandaloneStore.Open(
            LocalDisk.Instance, Path.Combine(_directory.Path, "shard"), new StoreOptions(), TimeProvider.System, NullLogger.Instance);
        using var pool = new OccupiedPool();
        for (var turn = 0; turn < 20; turn++)
            Put(store, $"key-{turn}", keys: 1, valueBytes: 10);
        Assert.True(pool.IsFull, "The pool was not occupied for the whole time.");
    }

    /// <summary>The timers that end these pauses fired on the pool. Writers that were slowed, and a checkpoint that paused, then waited for it.</summary>
    [Fact]
    public void Write_SlowedBehindAPacedCheckpointWhileThePoolIsOccupied_BecomesVisible()
    {
        const int CheckpointBytes = 256 << 10;
        var options = new StoreOptions
        {
            CheckpointScratchBytes = CheckpointBytes,
            CheckpointBytesPerSecond = 4 << 20,
            CheckpointInterval = TimeSpan.MaxValue,
            Pages = new PageStoreOptions { WriteBytes = 64 << 10 },
        };
        using var store = StandaloneStore.Open(LocalDisk.Instance, Path.Combine(_directory.Path, "shard"), options, TimeProvider.System, NullLogger.Instance);
        using var pool = new OccupiedPool();
        // More than starts a checkpoint, and less than twice as much, from where on it does not pause.
        Put(store, "paced", keys: 20, valueBytes: 16 << 10);
        var first = store.Store.Pages.Roots.PublishedEtag;
        var changed = store.Store.Pages.ChangedBytes;
        // A machine that stands still here long enough finds the checkpoint written.
        if (store.Store.Pages.Covered.Etag < first)
            Assert.InRange(changed, CheckpointBytes, (2 * CheckpointBytes) - 1);
        Assert.True(SpinWait.SpinUntil(() => store.Store.Pages.Covered.Etag >= first, Eventually.Limit), "The checkpoint was not written.");
        // From twice as much on, the next write is held back.
        for (var turn = 0; turn < 4; turn++)
        {
            Put(store, $"large-{turn}", keys: 1, valueBytes: 4 * CheckpointBytes);
            Put(store, $"held-back-{turn}", keys: 1, valueBytes: 10);
        }
        Assert.True(pool.IsFull, "The pool was not occupied for the whole time.");
    }

    /// <summary>
    /// A program whose threads of the pool all wait for a write took ten seconds for each, because the answer needed one of them, too. It also waits in this
    /// way while the queue is full, and takes back what it does not wait for any more.
    /// </summary>
    [Fact]
    [Trait("Turn", "4")]
    public async Task Write_OfAnEmbeddedStoreByAThreadThatWaits_NeedsNoThreadOfThePool()
    {
        var options = new KvStoreOptions { MemoryBudgetBytes = KvStoreOptions.MemoryBudgetBytesMin };
        await using var store = KvStore.Open(Path.Combine(_directory.Path, "embedded"), options);
        var tree = await store.CreateTreeAsync("t");
        using var pool = new OccupiedPool();
        Thread[] threads = [.. Enumerable.Range(0, 8).Select(thread => new Thread(() => WriteSome(store, tree, thread)))];
        foreach (var thread in threads)
            thread.Start();
        Assert.All(threads, static thread => Assert.True(thread.Join(Eventually.Limit), "A write was not answered."));
        Assert.True(pool.IsFull, "The pool was not occupied for the whole time.");
        using var snapshot = store.OpenSnapshot();
        Assert.Equal(8 * 20, snapshot.Count(tree));
    }

    private static void WriteSome(KvStore store, KvTree tree, int thread)
    {
        // More than may wait, so that some wait for room in the queue.
        for (var write = 0; write < 20; write++)
            Assert.True(store.Write(new KvBatch().Put(tree, StoreBench.Text($"{thread}-{write}"), new byte[2 << 20])).IsApplied);
    }

    private static void Put(StandaloneStore store, string name, int keys, int valueBytes)
    {
        var request = WriteRequest.Rent();
        for (var key = 0; key < keys; key++)
            request.Put(StoreBench.Text($"{name}-{key:D2}"), new byte[valueBytes]);
        Assert.NotNull(store.TryWrite(request));
        Assert.True(SpinWait.SpinUntil(() => Has(store, StoreBench.Text($"{name}-{keys - 1:D2}")), Eventually.Limit), $"{name} is not visible.");
    }

    private static bool Has(StandaloneStore store, byte[] key)
    {
        using var snapshot = store.OpenSnapshot();
        return snapshot.TryGet(TreeId.Kv, key, out _);
    }
}
