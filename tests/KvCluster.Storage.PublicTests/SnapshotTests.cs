using System.Text;
using KvCluster.Storage;

namespace KvCluster.PublicTests;

/// <summary>Snapshots and cursors.</summary>
public sealed class SnapshotTests : StoreTest
{
    [Fact]
    public async Task Snapshot_WhileOthersWrite_KeepsItsState()
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        await PutAsync(store, tree, "a", "b");
        using var before = store.OpenSnapshot();
        for (var turn = 0; turn < 50; turn++)
        {
            await store.WriteAsync(new KvBatch().Put(tree, "a"u8, Bytes($"{turn}")).Delete(tree, "b"u8).Put(tree, Bytes($"new-{turn}"), new byte[5000]));
            if (turn % 10 == 0)
                await store.CheckpointAsync();
        }
        using var after = store.OpenSnapshot();
        Assert.Equal("a b", Keys(before.Scan(tree)));
        Assert.Equal("a", Read(before, tree, "a"));
        Assert.Equal(("49", null), (Read(after, tree, "a"), Read(after, tree, "b")));
        Assert.True(before.Etag < after.Etag);
        Assert.Equal(2, store.Statistics.OpenSnapshots);
    }

    [Fact]
    public async Task Scan_WithBoundsAndPrefixes_HasExactlyTheirKeysInBothDirections()
    {
        await using var store = KvStore.Open(Folder);
        var (before, tree, after) = (await store.CreateTreeAsync("before"), await store.CreateTreeAsync("tree"), await store.CreateTreeAsync("after"));
        await PutAsync(store, before, "zz");
        await PutAsync(store, after, "aa");
        await PutAsync(store, tree, "a", "b", "ba", "bb", "c");
        await store.WriteAsync(new KvBatch().Put(tree, [0xFF, 0xFF], ""u8).Put(tree, [0xFF, 0xFF, 1], ""u8));
        using var snapshot = store.OpenSnapshot();
        Assert.Equal("b ba bb", Keys(snapshot.ScanPrefix(tree, "b"u8)));
        Assert.Equal("bb ba b", Keys(snapshot.ScanPrefix(tree, "b"u8, reverse: true)));
        Assert.Equal("b ba", Keys(snapshot.Scan(tree, "aa"u8, "bb"u8)));
        Assert.Equal("ba b", Keys(snapshot.Scan(tree, "aa"u8, "bb"u8, reverse: true)));
        Assert.Equal("a b ba", Keys(snapshot.Scan(tree, to: "bb"u8)));
        Assert.Equal("", Keys(snapshot.Scan(tree, "c"u8, "b"u8)));
        Assert.Equal(
            (7L, 2L, 3L, 0L),
            (snapshot.Count(tree), snapshot.Count(tree, "aa"u8, "bb"u8), snapshot.CountPrefix(tree, "b"u8), snapshot.Count(tree, "c"u8, "b"u8)));
        Assert.Equal(1, snapshot.Count(after));
        Assert.Equal("", Keys(snapshot.ScanPrefix(tree, "x"u8)));
        Assert.Equal(2, Keys(snapshot.ScanPrefix(tree, [0xFF])).Split(' ').Length);
        Assert.Equal(7, Keys(snapshot.ScanPrefix(tree, default)).Split(' ').Length);
        Assert.Equal("aa", Keys(snapshot.Scan(after, reverse: true)));
    }

    [Fact]
    public async Task Cursor_OverManyPages_SeeksAndMovesBothWays()
    {
        const int Count = 5_000;
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        var other = await store.CreateTreeAsync("other");
        for (var first = 0; first < Count; first += 1_000)
        {
            var batch = new KvBatch().Put(other, Bytes($"{first}"), "x"u8);
            for (var number = first; number < first + 1_000; number++)
                batch.Put(tree, Bytes($"{2 * number:000000}"), Bytes($"value of {2 * number} {new string('x', number % 50 == 0 ? 4_000 : 10)}"));
            await store.WriteAsync(batch);
        }
        using var snapshot = store.OpenSnapshot();
        using var cursor = snapshot.OpenCursor(tree);
        for (var number = 0; number < Count; number++)
        {
            Assert.True(cursor.MoveNext());
            Assert.Equal($"{2 * number:000000}", Encoding.UTF8.GetString(cursor.Key));
            Assert.StartsWith($"value of {2 * number} ", Encoding.UTF8.GetString(cursor.Value), StringComparison.Ordinal);
        }
        Assert.False(cursor.MoveNext());
        Assert.Throws<InvalidOperationException>(() => cursor.Key.Length);
        for (var number = Count - 1; number >= 0; number--)
        {
            Assert.True(cursor.MovePrevious());
            Assert.Equal($"{2 * number:000000}", Encoding.UTF8.GetString(cursor.Key));
        }
        Assert.False(cursor.MovePrevious());
        Assert.True(cursor.MoveNext());
        Assert.Equal("000000", Encoding.UTF8.GetString(cursor.Key));
        Assert.True(cursor.Seek("004001"u8));
        Assert.Equal("004002", Encoding.UTF8.GetString(cursor.Key));
        Assert.True(cursor.MovePrevious());
        Assert.Equal("004000", Encoding.UTF8.GetString(cursor.Key));
        Assert.True(cursor.Seek("004000"u8));
        var (key, value) = cursor.Current;
        Assert.Equal("004000", Encoding.UTF8.GetString(key));
        Assert.True(value.SequenceEqual(cursor.Value) && cursor.Etag <= snapshot.Etag && cursor.Etag > Etag.None);
        Assert.False(cursor.Seek("zzz"u8));
        Assert.True(cursor.MovePrevious());
        Assert.Equal("009998", Encoding.UTF8.GetString(cursor.Key));
    }

    [Fact]
    public async Task Snapshot_FromManyThreads_ReadsWhileOthersWrite()
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        await store.WriteAsync(Pair(tree, 0));
        using var ended = new CancellationTokenSource();
        var reads = new int[2];
        var readers = Enumerable.Range(0, reads.Length).Select(reader => Task.Run(() =>
        {
            while (!ended.IsCancellationRequested)
            {
                using var snapshot = store.OpenSnapshot();
                Assert.Equal(Read(snapshot, tree, "one"), Read(snapshot, tree, "two"));
                Interlocked.Increment(ref reads[reader]);
            }
        })).ToArray();
        // On a busy machine a reader may begin late. One that has failed is not waited for.
        for (var number = 1; number <= 100 || readers.Index().Any(reader => !reader.Item.IsCompleted && Volatile.Read(ref reads[reader.Index]) == 0); number++)
            await store.WriteAsync(Pair(tree, number));
        await ended.CancelAsync();
        await Task.WhenAll(readers);

        static KvBatch Pair(KvTree tree, int number) => new KvBatch().Put(tree, "one"u8, Bytes($"{number}")).Put(tree, "two"u8, Bytes($"{number}"));
    }

    // Behind the longest key nobody could go on: the least key after it, with a zero byte more, was refused.
    [Fact]
    public async Task EveryRange_BeginsAndEndsBehindTheLongestKey()
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        var next = await store.CreateTreeAsync("u");
        byte[][] keys = [.. "abc"u8.ToArray().Select(last => (byte[])[.. Enumerable.Repeat((byte)'k', KvStoreLimits.KeyBytesMax - 1), last]),
            [.. Enumerable.Repeat(byte.MaxValue, KvStoreLimits.KeyBytesMax)]];
        var batch = new KvBatch().Put(next, "other"u8, default);
        foreach (var key in keys)
            batch.Put(tree, key, default);
        await store.WriteAsync(batch);
        byte[][] after = [.. keys.Select(key => (byte[])[.. key, 0])];
        using (var snapshot = store.OpenSnapshot())
        {
            Assert.Equal(2, snapshot.Count(tree, after[0], after[2]));
            Assert.Equal(0, snapshot.Count(tree, after[3]));
            using var cursor = snapshot.OpenCursor(tree, after[0], after[1]);
            Assert.True(cursor.MoveNext() && cursor.Key.SequenceEqual(keys[1]) && !cursor.MoveNext());
            using var all = snapshot.OpenCursor(tree);
            Assert.True(all.Seek(after[1]) && all.Key.SequenceEqual(keys[2]));
            Assert.False(all.Seek(after[3]));
        }
        Assert.Equal(1, await store.DeleteRangeAsync(tree, after[0], after[1]));
        Assert.Equal(0, await store.DeleteRangeAsync(tree, after[3], default));
        Assert.Equal(1, await store.DeleteRangeAsync(tree, after[2], after[3]));
        using var later = store.OpenSnapshot();
        Assert.Equal("other", Keys(later.Scan(next)));
    }

    // What snapshots held slowed writers: 45 of them at the least budget took all but four puts a second. The one that holds most ends instead, and what is
    // not closed then leaves no room for new ones.
    [Fact]
    public async Task HeldSnapshots_BeyondTheirPartOfTheMemory_EndAndLetWritersGoOn()
    {
        await using var store = KvStore.Open(Folder, new KvStoreOptions { MemoryBudgetBytes = KvStoreOptions.MemoryBudgetBytesMin });
        var tree = await store.CreateTreeAsync("t");
        List<KvSnapshot> held = [];
        var value = new byte[4_000];
        try
        {
            for (var round = 0; ; round++)
            {
                Assert.InRange(round, 0, 100);
                var batches = Enumerable.Range(0, 20).Select(async part =>
                {
                    var batch = new KvBatch();
                    for (var key = 0; key < 100; key++)
                        batch.Put(tree, Bytes($"{part}-{key}"), value);
                    await store.WriteAsync(batch);
                });
                await Task.WhenAll(batches);
                held.Add(store.OpenSnapshot());
            }
        }
        catch (KvSnapshotLimitException refused)
        {
            Assert.Contains("Dispose of those that have ended", refused.Message);
        }
        Assert.Throws<KvSnapshotTooOldException>(() => held.ForEach(snapshot => snapshot.Get(tree, "0-0"u8)));
        var ended = held.First(snapshot => snapshot.IsTooOld);
        Assert.Throws<KvSnapshotTooOldException>(() => ended.Scan(tree));
        Assert.NotEqual(Etag.None, ended.Etag);
        held.ForEach(snapshot => snapshot.Dispose());
        while (true)
        {
            // Whatever comes next returns what they held.
            await store.WriteAsync(new KvBatch().Put(tree, "k"u8, "v"u8));
            try
            {
                Assert.Equal("v", Read(store, tree, "k"));
                return;
            }
            catch (KvSnapshotLimitException)
            {
                await Task.Yield();
            }
        }
    }

    [Fact]
    public async Task OpenSnapshot_BeyondTheLimit_IsRefusedAndOneEndedMakesRoom()
    {
        await using var store = KvStore.Open(Folder, new KvStoreOptions { SnapshotsMax = KvStoreOptions.SnapshotsMaxMin });
        var open = Enumerable.Range(0, KvStoreOptions.SnapshotsMaxMin).Select(_ => store.OpenSnapshot()).ToList();
        Assert.Throws<KvSnapshotLimitException>(store.OpenSnapshot);
        open[3].Dispose();
        store.OpenSnapshot().Dispose();
        open.ForEach(snapshot => snapshot.Dispose());
    }
}
