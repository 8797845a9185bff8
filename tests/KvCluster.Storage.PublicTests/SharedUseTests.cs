using KvCluster.Storage;

namespace KvCluster.PublicTests;

/// <summary>A store that many callers share, and batches that several threads use although none may.</summary>
public sealed class SharedUseTests : StoreTest
{
    /// <summary>The second thread took the request of the first one, which was answered twice: the process ended.</summary>
    [Fact]
    public async Task Write_OfOneBatchByTwoThreads_WritesItOnceAndRefusesTheOther()
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        using var barrier = new Barrier(2);
        for (var round = 0; round < 300; round++)
        {
            var batch = new KvBatch().Put(tree, Bytes($"k{round}"), "v"u8);
            var written = await Task.WhenAll(TryWriteAsync(), TryWriteAsync());
            Assert.Equal(1, written.Count(static one => one));
            Assert.Equal("v", Read(store, tree, $"k{round}"));

            Task<bool> TryWriteAsync() => Task.Run(async () =>
            {
                barrier.SignalAndWait();
                try
                {
                    return (await store.WriteAsync(batch)).IsApplied;
                }
                catch (InvalidOperationException)
                {
                    return false;
                }
            });
        }
    }

    /// <summary>
    /// Two threads that filled one batch wrote into the same bytes: a record that cannot be read ended the store. Now each call adds its operation, or is
    /// refused.
    /// </summary>
    [Fact]
    public async Task Batch_FilledByTwoThreads_HasWhatWasNotRefused()
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        using var barrier = new Barrier(2);
        for (var round = 0; round < 20; round++)
        {
            var batch = new KvBatch();
            var added = await Task.WhenAll(FillAsync("a"), FillAsync("b"));
            Assert.Equal(added.Sum(), batch.Count);
            Assert.True((await store.WriteAsync(batch)).IsApplied);

            Task<int> FillAsync(string name) => Task.Run(() =>
            {
                var count = 0;
                barrier.SignalAndWait();
                for (var key = 0; key < 1_000; key++)
                {
                    try
                    {
                        batch.Put(tree, Bytes($"{name}{key}"), Bytes(new string('x', key % 100)));
                        count++;
                    }
                    catch (InvalidOperationException)
                    {
                        // The other one was just adding.
                    }
                }
                return count;
            });
        }
        using var snapshot = store.OpenSnapshot();
        foreach (var (key, value) in snapshot.Scan(tree))
            Assert.Equal(int.Parse(key[1..], System.Globalization.CultureInfo.InvariantCulture) % 100, value.Length);
    }

    /// <summary>A thread that cannot await gets the same results, and the same refusals.</summary>
    [Fact]
    public async Task Write_ByAThreadThatWaits_IsAnsweredLikeOthers()
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        var first = store.Write(new KvBatch().Put(tree, "k"u8, "1"u8));
        Assert.True(first.IsApplied);
        var second = store.Write(new KvBatch().IfExists(tree, "k"u8).IfAbsent(tree, "k"u8).Put(tree, "k"u8, "2"u8));
        Assert.Equal((false, 1), (second.IsApplied, second.FailedCondition));
        Assert.Equal("1", Read(store, tree, "k"));
        using var cancelled = new CancellationTokenSource();
        await cancelled.CancelAsync();
        Assert.ThrowsAny<OperationCanceledException>(() => store.Write(new KvBatch().Put(tree, "k"u8, "3"u8), cancelled.Token));
        var dropped = await store.CreateTreeAsync("dropped");
        var batch = new KvBatch().Put(dropped, "k"u8, "v"u8);
        await store.DropTreeAsync(dropped);
        Assert.Throws<KvTreeNotFoundException>(() => store.Write(batch));
        await store.DisposeAsync();
        Assert.Throws<ObjectDisposedException>(() => store.Write(new KvBatch().Put(tree, "k"u8, "4"u8)));
    }

    /// <summary>
    /// A batch that needs much room was overtaken by small ones for as long as there were any: one of 15 MiB waited 22 s beside 64 callers, each of whom had
    /// written hundreds of batches meanwhile.
    /// </summary>
    [Fact]
    public async Task Write_OfALargeBatchBesideManySmallOnes_HasItsTurn()
    {
        const int Callers = 64;
        await using var store = KvStore.Open(Folder, new KvStoreOptions { MemoryBudgetBytes = KvStoreOptions.MemoryBudgetBytesMin });
        var tree = await store.CreateTreeAsync("t");
        using var ending = new CancellationTokenSource();
        var answered = 0;
        var callers = Enumerable.Range(0, Callers).Select(caller => Task.Run(async () =>
        {
            while (!ending.IsCancellationRequested)
            {
                await store.WriteAsync(new KvBatch().Put(tree, Bytes($"small {caller}"), new byte[256 << 10]), CancellationToken.None);
                Interlocked.Increment(ref answered);
            }
        })).ToArray();
        while (Volatile.Read(ref answered) <= Callers)
            await Task.Yield();
        const ulong ChangesMax = 15 + (6 * Callers);
        var fewest = ulong.MaxValue;
        // Further rounds if this thread has stood still between the two calls.
        for (var round = 0; fewest > ChangesMax && round < 50; round++)
        {
            var batch = new KvBatch();
            for (var value = 0; value < 15; value++)
                batch.Put(tree, Bytes($"large {value}"), new byte[1_000_000]);
            Etag before;
            using (var snapshot = store.OpenSnapshot())
                before = snapshot.Etag;
            var written = await store.WriteAsync(batch);
            fewest = Math.Min(fewest, written.Etag.Change - before.Change);
        }
        // Those before it in the line and in the queue, each with one change.
        Assert.InRange(fewest, 15ul, ChangesMax);
        await ending.CancelAsync();
        await Task.WhenAll(callers);
    }
}
