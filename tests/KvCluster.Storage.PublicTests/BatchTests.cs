using KvCluster.Storage;

namespace KvCluster.PublicTests;

/// <summary>Writes: atomic, conditional, in the order of their etags.</summary>
public sealed class BatchTests : StoreTest
{
    [Fact]
    public async Task Write_PutsAndDeletes_AreVisibleTogetherAndAfterAReopen()
    {
        await using (var store = KvStore.Open(Folder))
        {
            var tree = await store.CreateTreeAsync("orders");
            await PutAsync(store, tree, "a", "b");
            var result = await store.WriteAsync(new KvBatch().Put(tree, "c"u8, ""u8).Delete(tree, "a"u8).Put(tree, "b"u8, "new"u8));
            Assert.True(result.IsApplied);
            Assert.Equal(-1, result.FailedCondition);
            Assert.Equal((null, "new", ""), (Read(store, tree, "a"), Read(store, tree, "b"), Read(store, tree, "c")));
        }
        await using (var store = KvStore.Open(Folder))
        {
            var tree = store.Tree("orders");
            Assert.Equal((null, "new", ""), (Read(store, tree, "a"), Read(store, tree, "b"), Read(store, tree, "c")));
        }
    }

    [Fact]
    public async Task Write_ConditionDoesNotHold_ChangesNothingAndNamesIt()
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        var first = await store.WriteAsync(new KvBatch().IfAbsent(tree, "k"u8).Put(tree, "k"u8, "1"u8));
        Assert.True(first.IsApplied);
        var second = await store.WriteAsync(
            new KvBatch().IfEtag(tree, "k"u8, first.Etag).IfValue(tree, "k"u8, "1"u8).IfExists(tree, "k"u8).Put(tree, "k"u8, "2"u8));
        Assert.True(second.IsApplied);
        foreach (var failing in (KvBatch[])
        [
            new KvBatch().IfExists(tree, "k"u8).IfEtag(tree, "k"u8, first.Etag),
            new KvBatch().IfExists(tree, "k"u8).IfAbsent(tree, "k"u8),
            new KvBatch().IfExists(tree, "k"u8).IfValue(tree, "k"u8, "1"u8),
            new KvBatch().IfExists(tree, "k"u8).IfExists(tree, "other"u8),
            new KvBatch().IfExists(tree, "k"u8).IfEtag(tree, "k"u8, Etag.None),
        ])
        {
            var result = await store.WriteAsync(failing.Put(tree, "k"u8, "3"u8).Put(tree, "new"u8, "3"u8));
            Assert.False(result.IsApplied);
            Assert.Equal(1, result.FailedCondition);
            Assert.Equal(second.Etag, result.Etag);
        }
        Assert.Equal(("2", null), (Read(store, tree, "k"), Read(store, tree, "new")));
    }

    [Fact]
    public async Task Write_ManyCallersIncrementOneCounterByCondition_NoneIsLost()
    {
        const int Callers = 8, Increments = 50;
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("counters");
        await Task.WhenAll(Enumerable.Range(0, Callers).Select(_ => Task.Run(async () =>
        {
            for (var done = 0; done < Increments;)
                done += await TryIncrementAsync(store, tree) ? 1 : 0;
        })));
        using var snapshot = store.OpenSnapshot();
        Assert.Equal(Callers * Increments, BitConverter.ToInt32(snapshot.Get(tree, "counter"u8)));
    }

    [Fact]
    public async Task Etags_IncreaseWithEachOperation_AndAcrossAReopen()
    {
        Etag last;
        await using (var store = KvStore.Open(Folder))
        {
            var tree = await store.CreateTreeAsync("t");
            last = Etag.None;
            for (var turn = 0; turn < 10; turn++)
            {
                var result = await store.WriteAsync(new KvBatch().Put(tree, "a"u8, "x"u8).Put(tree, "b"u8, "x"u8));
                using var snapshot = store.OpenSnapshot();
                Assert.True(snapshot.TryGet(tree, "a"u8, out _, out var a) & snapshot.TryGet(tree, "b"u8, out _, out var b));
                Assert.True(last < a && a < b && b == result.Etag && b == snapshot.Etag, $"{last} {a} {b} {result.Etag} {snapshot.Etag}");
                last = b;
            }
        }
        await using (var store = KvStore.Open(Folder))
            Assert.True((await store.WriteAsync(new KvBatch().Put(store.Tree("t"), "c"u8, "x"u8))).Etag > last);
    }

    [Fact]
    public async Task Write_OfMoreThanTheQueueHolds_WaitsForItsTurn()
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        var value = new byte[4 << 20];
        // More than the 64 MiB that may wait for the writer.
        var writes = Enumerable.Range(0, 20).Select(index => store.WriteAsync(new KvBatch().Put(tree, Bytes($"{index:00}"), value)).AsTask()).ToArray();
        foreach (var result in await Task.WhenAll(writes))
            Assert.True(result.IsApplied);
        using var snapshot = store.OpenSnapshot();
        Assert.Equal(20, Keys(snapshot.Scan(tree)).Split(' ').Length);
    }

    [Fact]
    public async Task Write_CancelledBefore_IsNotAppliedAndTheBatchCanStillBeWritten()
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        var batch = new KvBatch().Put(tree, "k"u8, "v"u8);
        await Assert.ThrowsAsync<OperationCanceledException>(async () => await store.WriteAsync(batch, new CancellationToken(canceled: true)));
        Assert.Null(Read(store, tree, "k"));
        await store.WriteAsync(batch);
        Assert.Equal("v", Read(store, tree, "k"));
    }

    [Fact]
    public async Task Dispose_WithWritesInProgress_AnswersAndKeepsThem()
    {
        Task<KvWriteResult>[] writes;
        var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        writes = [.. Enumerable.Range(0, 100).Select(index => store.WriteAsync(new KvBatch().Put(tree, Bytes($"{index}"), new byte[1000])).AsTask())];
        await store.DisposeAsync();
        foreach (var result in await Task.WhenAll(writes))
            Assert.True(result.IsApplied);
        await using var again = KvStore.Open(Folder);
        using var snapshot = again.OpenSnapshot();
        Assert.Equal(100, Keys(snapshot.Scan(again.Tree("t"))).Split(' ').Length);
    }

    private static async Task<bool> TryIncrementAsync(KvStore store, KvTree tree)
    {
        int value;
        Etag etag;
        using (var snapshot = store.OpenSnapshot())
            value = snapshot.TryGet(tree, "counter"u8, out var stored, out etag) ? BitConverter.ToInt32(stored) : 0;
        return (await store.WriteAsync(new KvBatch().IfEtag(tree, "counter"u8, etag).Put(tree, "counter"u8, BitConverter.GetBytes(value + 1)))).IsApplied;
    }
}
