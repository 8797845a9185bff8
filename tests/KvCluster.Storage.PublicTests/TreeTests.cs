using KvCluster.Storage;

namespace KvCluster.PublicTests;

/// <summary>Named trees.</summary>
public sealed class TreeTests : StoreTest
{
    [Fact]
    public async Task Trees_WithTheSameKeys_AreApartAndChangeInOneBatch()
    {
        await using var store = KvStore.Open(Folder);
        var (users, names) = (await store.CreateTreeAsync("users"), await store.CreateTreeAsync("Namen/ü"));
        await store.WriteAsync(new KvBatch().Put(users, "k"u8, "user"u8).Put(names, "k"u8, "name"u8));
        Assert.Equal(("user", "name"), (Read(store, users, "k"), Read(store, names, "k")));
        var refused = await store.WriteAsync(new KvBatch().IfValue(users, "k"u8, "name"u8).Delete(names, "k"u8));
        Assert.False(refused.IsApplied);
        await store.WriteAsync(new KvBatch().Delete(users, "k"u8));
        Assert.Equal((null, "name"), (Read(store, users, "k"), Read(store, names, "k")));
        Assert.Same(users, await store.CreateTreeAsync("users"));
        Assert.Equal(["Namen/ü", "users"], store.TreeNames.Order(StringComparer.Ordinal));
        Assert.Equal(2, store.Statistics.Trees);
    }

    [Fact]
    public async Task CreateTree_ByManyCallersAtOnce_CreatesOne()
    {
        await using var store = KvStore.Open(Folder);
        var trees = await Task.WhenAll(Enumerable.Range(0, 20).Select(index => Task.Run(() => store.CreateTreeAsync($"tree-{index % 2}"))));
        Assert.Equal(2, trees.Distinct().Count());
        Assert.Equal(2, store.TreeNames.Count);
    }

    [Fact]
    public async Task DropTree_EndsItAndLeavesTheOthers_AlsoAfterAReopen()
    {
        await using (var store = KvStore.Open(Folder))
        {
            var (kept, dropped) = (await store.CreateTreeAsync("kept"), await store.CreateTreeAsync("dropped"));
            await PutAsync(store, kept, "k");
            await PutAsync(store, dropped, [.. Enumerable.Range(0, 2_500).Select(index => $"key-{index}")]);
            using var before = store.OpenSnapshot();
            await store.DropTreeAsync(dropped);
            Assert.Equal("key-7", Read(before, dropped, "key-7"));
            Assert.Equal(["kept"], store.TreeNames);
            await Assert.ThrowsAsync<KvTreeNotFoundException>(async () => await store.WriteAsync(new KvBatch().Put(dropped, "k"u8, "v"u8)));
            await Assert.ThrowsAsync<KvTreeNotFoundException>(() => store.DropTreeAsync(dropped));
            // A tree of the same name is another one.
            var again = await store.CreateTreeAsync("dropped");
            using var after = store.OpenSnapshot();
            Assert.Equal(("", ""), (Keys(after.Scan(again)), Keys(after.Scan(dropped))));
        }
        await using (var store = KvStore.Open(Folder))
        {
            Assert.Equal(["dropped", "kept"], store.TreeNames.Order(StringComparer.Ordinal));
            Assert.Equal("k", Read(store, store.Tree("kept"), "k"));
            using var snapshot = store.OpenSnapshot();
            Assert.Equal("", Keys(snapshot.Scan(store.Tree("dropped"))));
        }
    }

    [Fact]
    public async Task DeleteRange_OfATree_RemovesExactlyItsKeys()
    {
        await using var store = KvStore.Open(Folder);
        var (before, tree, after) = (await store.CreateTreeAsync("before"), await store.CreateTreeAsync("tree"), await store.CreateTreeAsync("after"));
        await PutAsync(store, before, "a", "z");
        await PutAsync(store, tree, "a", "b", "c", "d");
        await PutAsync(store, after, "a", "z");
        Assert.Equal(2, await store.DeleteRangeAsync(tree, "b"u8, "d"u8));
        Assert.Equal(0, await store.DeleteRangeAsync(tree, "d"u8, "b"u8));
        using (var snapshot = store.OpenSnapshot())
            Assert.Equal(("a z", "a d", "a z"), (Keys(snapshot.Scan(before)), Keys(snapshot.Scan(tree)), Keys(snapshot.Scan(after))));
        Assert.Equal(2, await store.DeleteRangeAsync(tree));
        using (var snapshot = store.OpenSnapshot())
            Assert.Equal(("a z", "", "a z"), (Keys(snapshot.Scan(before)), Keys(snapshot.Scan(tree)), Keys(snapshot.Scan(after))));
        await Assert.ThrowsAsync<ArgumentOutOfRangeException>(() => store.DeleteRangeAsync(tree, new byte[KvStoreLimits.KeyBytesMax + 2]));
    }

    [Fact]
    public async Task DeleteRange_OfMoreThanOneStepRemoves_RemovesAll()
    {
        const int Count = 100;
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        // 20 MiB in leaves: values that are too long for a leaf do not count.
        for (var first = 0; first < 100; first++)
        {
            var batch = new KvBatch();
            for (var index = 0; index < Count; index++)
                batch.Put(tree, Bytes($"{first}-{index}"), new byte[2_000]);
            await store.WriteAsync(batch);
        }
        Assert.Equal(100 * Count, await store.DeleteRangeAsync(tree));
        using var snapshot = store.OpenSnapshot();
        Assert.Equal("", Keys(snapshot.Scan(tree)));
    }

    [Fact]
    public async Task Batch_WithATreeThatIsDroppedBeforeItIsWritten_ChangesNothing()
    {
        await using var store = KvStore.Open(Folder);
        var (kept, dropped) = (await store.CreateTreeAsync("kept"), await store.CreateTreeAsync("dropped"));
        var batch = new KvBatch().Put(kept, "k"u8, "v"u8).Put(dropped, "k"u8, "v"u8);
        await store.DropTreeAsync(dropped);
        var refused = await Assert.ThrowsAsync<KvTreeNotFoundException>(async () => await store.WriteAsync(batch));
        Assert.Equal("dropped", refused.Name);
        Assert.Null(Read(store, kept, "k"));
    }

    /// <summary>
    /// A batch that waited while the queue was full was applied to a tree that had been dropped meanwhile. Its keys belonged to nobody until the next open.
    /// </summary>
    [Fact]
    public async Task Batches_ThatWaitWhileATreeIsDropped_AreRefusedAsAWholeOrDroppedWithIt()
    {
        // With the least memory, the queue takes a few of these.
        const int Count = 60, ValueBytes = 1 << 20;
        await using var store = KvStore.Open(Folder, new KvStoreOptions { MemoryBudgetBytes = KvStoreOptions.MemoryBudgetBytesMin });
        var (kept, dropped) = (await store.CreateTreeAsync("kept"), await store.CreateTreeAsync("dropped"));
        var batches = Enumerable.Range(0, Count)
            .Select(index => new KvBatch().Put(kept, Bytes($"{index:00}"), default).Put(dropped, Bytes($"{index:00}"), new byte[ValueBytes])).ToList();
        var writes = batches.ConvertAll(batch => store.WriteAsync(batch).AsTask());
        await store.DropTreeAsync(dropped);
        var applied = new List<string>();
        for (var index = 0; index < Count; index++)
        {
            if (await Record.ExceptionAsync(() => writes[index]) is not { } refusal)
                applied.Add($"{index:00}");
            else
                Assert.Equal("dropped", Assert.IsType<KvTreeNotFoundException>(refusal).Name);
        }
        using var snapshot = store.OpenSnapshot();
        Assert.Equal(string.Join(' ', applied), Keys(snapshot.Scan(kept)));
        Assert.Equal("", Keys(snapshot.Scan(dropped)));
    }

    [Fact]
    public async Task Tree_OfAnUnknownName_IsATypedErrorAndIsNotCreated()
    {
        await using var store = KvStore.Open(Folder);
        Assert.Equal("none", Assert.Throws<KvTreeNotFoundException>(() => store.Tree("none")).Name);
        Assert.False(store.TryGetTree("none", out _));
        await Assert.ThrowsAsync<ArgumentException>(() => store.CreateTreeAsync(""));
        await Assert.ThrowsAsync<ArgumentNullException>(() => store.CreateTreeAsync(null!));
        await Assert.ThrowsAsync<ArgumentOutOfRangeException>(() => store.CreateTreeAsync(new string('ü', (KvStoreLimits.TreeNameBytesMax / 2) + 1)));
        await Assert.ThrowsAnyAsync<ArgumentException>(() => store.CreateTreeAsync("\ud800"));
        Assert.Empty(store.TreeNames);
        Assert.Equal(KvStoreLimits.TreeNameBytesMax, (await store.CreateTreeAsync(new string('x', KvStoreLimits.TreeNameBytesMax))).Name.Length);
    }
}
