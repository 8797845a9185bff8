using System.Text;
using KvCluster.Storage;

namespace KvCluster.PublicTests;

/// <summary>Sets of keys: their members, their numbers, and what becomes of them.</summary>
public sealed class SetTests : StoreTest
{
    /// <summary>Enough for a tree of many pages.</summary>
    private const int Many = 30_000;

    [Fact]
    public async Task Members_AddedAndRemoved_AreThereOnceAndInOrder()
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        using var before = store.OpenSnapshot();
        await store.WriteAsync(new KvBatch()
            .SetAdd(tree, "s"u8, "b"u8).SetAdd(tree, "s"u8, "a"u8).SetAdd(tree, "s"u8, "c"u8).SetAdd(tree, "s"u8, "b"u8)
            .SetAdd(tree, "other"u8, "x"u8));
        var first = await store.WriteAsync(new KvBatch().SetRemove(tree, "s"u8, "a"u8));
        // Neither changes anything, nor the etag of the set.
        await store.WriteAsync(
            new KvBatch().SetAdd(tree, "s"u8, "b"u8).SetRemove(tree, "s"u8, "none"u8).SetRemove(tree, "none"u8, "x"u8).SetDelete(tree, "none"u8));
        using (var snapshot = store.OpenSnapshot())
        {
            var set = snapshot.GetSet(tree, "s"u8);
            Assert.Equal((2L, first.Etag, "b c"), (set.Count, set.Etag, Members(set)));
            Assert.True(set.Contains("b"u8) && !set.Contains("a"u8) && !set.Contains("bb"u8));
            Assert.Equal(
                (0L, Etag.None, ""), (snapshot.GetSet(tree, "none"u8).Count, snapshot.GetSet(tree, "none"u8).Etag, Members(snapshot.GetSet(tree, "none"u8))));
            Assert.Equal((0L, false), (before.GetSet(tree, "s"u8).Count, before.GetSet(tree, "s"u8).Contains("b"u8)));
        }
        await store.WriteAsync(new KvBatch().SetRemove(tree, "s"u8, "b"u8).SetRemove(tree, "s"u8, "c"u8));
        Assert.Equal(("", "x"), (Members(store, tree, "s"), Members(store, tree, "other")));
    }

    [Fact]
    public async Task Sets_AndValuesAndTrees_AreApart()
    {
        await using var store = KvStore.Open(Folder);
        var (tree, other) = (await store.CreateTreeAsync("tree"), await store.CreateTreeAsync("other"));
        await store.WriteAsync(new KvBatch().Put(tree, "k"u8, "value"u8).SetAdd(tree, "k"u8, "m"u8).SetAdd(other, "k"u8, "n"u8));
        Assert.Equal(("value", "m", "n"), (Read(store, tree, "k"), Members(store, tree, "k"), Members(store, other, "k")));
        Assert.False((await store.WriteAsync(new KvBatch().IfAbsent(tree, "k"u8).SetRemove(tree, "k"u8, "m"u8))).IsApplied);
        Assert.True((await store.WriteAsync(new KvBatch().IfAbsent(other, "k"u8).Delete(tree, "k"u8))).IsApplied);
        Assert.Equal((null, "m"), (Read(store, tree, "k"), Members(store, tree, "k")));
        Assert.Equal(0, await store.DeleteRangeAsync(tree));
        using (var snapshot = store.OpenSnapshot())
            Assert.Equal("", Keys(snapshot.Scan(tree)));
        Assert.Equal(1, await store.DeleteSetAsync(tree, "k"u8));
        Assert.Equal(("", "n"), (Members(store, tree, "k"), Members(store, other, "k")));
    }

    [Fact]
    public async Task SetOfAnySize_OverReopensAndBackups_HasItsMembers()
    {
        using var backup = new MemoryStream();
        await using (var store = KvStore.Open(Folder))
        {
            var tree = await store.CreateTreeAsync("t");
            await AddAsync(store, tree, "large", 0, Many);
            await AddAsync(store, tree, "small", 0, 3);
            using var large = store.OpenSnapshot();
            await store.CheckpointAsync();
            await store.BackupAsync(backup);
            // From a tree to a value again, member by member.
            await ChangeAsync(store, 0, Many - 5, (batch, number) => batch.SetRemove(tree, "large"u8, Number(number)));
            Assert.Equal(((long)Many, 5L), (large.GetSet(tree, "large"u8).Count, Count(store, tree, "large")));
            CheckAll(large.GetSet(tree, "large"u8), 0, Many);
        }
        await using (var store = KvStore.Open(Folder))
        {
            var tree = store.Tree("t");
            using (var snapshot = store.OpenSnapshot())
                CheckAll(snapshot.GetSet(tree, "large"u8), Many - 5, Many);
            await AddAsync(store, tree, "large", 0, Many);
            Assert.Equal(Many, Count(store, tree, "large"));
        }
        backup.Position = 0;
        await KvStore.RestoreAsync(backup, Beside("restored"));
        await using var restored = KvStore.Open(Beside("restored"));
        using var all = restored.OpenSnapshot();
        CheckAll(all.GetSet(restored.Tree("t"), "large"u8), 0, Many);
        CheckAll(all.GetSet(restored.Tree("t"), "small"u8), 0, 3);
    }

    /// <summary>The same in a set that is a value and in one that is a tree.</summary>
    [Theory]
    [InlineData(10)]
    [InlineData(5_000)]
    public async Task Cursor_OverMembers_SeeksAndMovesBothWays(int count)
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        await ChangeAsync(store, 0, count, (batch, number) => batch.SetAdd(tree, "s"u8, Number(2 * number)));
        using var snapshot = store.OpenSnapshot();
        var set = snapshot.GetSet(tree, "s"u8);
        using (var cursor = set.OpenCursor())
        {
            Assert.Throws<InvalidOperationException>(() => cursor.Member.Length);
            for (var number = 0; number < count; number++)
                Assert.True(cursor.MoveNext() && cursor.Member.SequenceEqual(Number(2 * number)));
            Assert.False(cursor.MoveNext());
            for (var number = count - 1; number >= 0; number--)
                Assert.True(cursor.MovePrevious() && cursor.Member.SequenceEqual(Number(2 * number)));
            Assert.False(cursor.MovePrevious());
            Assert.True(cursor.Seek(Number(7)) && cursor.Member.SequenceEqual(Number(8)));
            Assert.True(cursor.MovePrevious() && cursor.Member.SequenceEqual(Number(6)));
            Assert.False(cursor.Seek(Number(2 * count)));
            Assert.True(cursor.MovePrevious() && cursor.Member.SequenceEqual(Number(2 * (count - 1))));
        }
        foreach (var (from, first) in ((int, int)[])[(0, 0), (9, 10), (10, 10), (2 * count, 2 * count)])
        {
            var expected = first;
            foreach (var member in set.Members(Number(from)))
            {
                Assert.True(member.SequenceEqual(Number(expected)), $"{Encoding.UTF8.GetString(member)} is not {expected}.");
                expected += 2;
            }
            Assert.Equal(2 * count, expected);
        }
    }

    [Fact]
    public async Task ScanSets_OfATree_ListsItsKeysWithSetsInOrder()
    {
        await using var store = KvStore.Open(Folder);
        var (tree, other) = (await store.CreateTreeAsync("tree"), await store.CreateTreeAsync("other"));
        await AddAsync(store, tree, "fruit/plum", 0, 5_000);
        await store.WriteAsync(new KvBatch()
            .SetAdd(tree, "fruit/apple"u8, "m"u8).SetAdd(tree, "nut"u8, "m"u8).SetAdd(other, "fruit/fig"u8, "m"u8)
            .Put(tree, "fruit/value"u8, "v"u8).SetAdd(tree, "gone"u8, "m"u8).SetDelete(tree, "gone"u8));
        using var snapshot = store.OpenSnapshot();
        Assert.Equal("fruit/apple:1 fruit/plum:5000 nut:1", Sets(snapshot.ScanSets(tree)));
        Assert.Equal("nut:1 fruit/plum:5000 fruit/apple:1", Sets(snapshot.ScanSets(tree, reverse: true)));
        Assert.Equal("fruit/plum:5000", Sets(snapshot.ScanSets(tree, "fruit/b"u8, "nut"u8)));
        Assert.Equal("fruit/apple:1 fruit/plum:5000", Sets(snapshot.ScanSetsPrefix(tree, "fruit/"u8)));
        Assert.Equal("fruit/plum:5000 fruit/apple:1", Sets(snapshot.ScanSetsPrefix(tree, "fruit/"u8, reverse: true)));
        Assert.Equal("fruit/fig:1", Sets(snapshot.ScanSets(other)));
        Assert.Throws<ArgumentOutOfRangeException>(() => snapshot.ScanSets(tree, new byte[KvStoreLimits.KeyBytesMax + 2]));
        snapshot.Dispose();
        Assert.Throws<ObjectDisposedException>(() => snapshot.ScanSets(tree));
    }

    [Fact]
    public async Task SetDelete_WithOtherOperations_IsPartOfTheBatch()
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        await AddAsync(store, tree, "s", 0, Many);
        using var before = store.OpenSnapshot();
        var result = await store.WriteAsync(
            new KvBatch().SetAdd(tree, "s"u8, "lost"u8).SetDelete(tree, "s"u8).SetAdd(tree, "s"u8, "kept"u8).Put(tree, "s"u8, "value"u8));
        Assert.True(result.IsApplied);
        Assert.Equal(("kept", "value", (long)Many), (Members(store, tree, "s"), Read(store, tree, "s"), before.GetSet(tree, "s"u8).Count));
    }

    /// <summary>More than 8 MiB of members: a batch removes them all or is refused, and the call for it takes several steps.</summary>
    [Fact]
    public async Task SetDelete_OfMoreThanOneStep_IsRefusedInABatchAndDoneByTheCall()
    {
        const int Huge = 12_000;
        await using (var store = KvStore.Open(Folder))
        {
            var tree = await store.CreateTreeAsync("t");
            await ChangeAsync(store, 0, Huge, (batch, number) => batch.SetAdd(tree, "huge"u8, Long(number)));
            await AddAsync(store, tree, "other", 0, 3);
            foreach (var batch in (KvBatch[])[new KvBatch().SetDelete(tree, "huge"u8), new KvBatch().Put(tree, "k"u8, "v"u8).SetDelete(tree, "huge"u8)])
                await Assert.ThrowsAsync<KvSetTooLargeException>(async () => await store.WriteAsync(batch));
            Assert.Equal(((long)Huge, null), (Count(store, tree, "huge"), Read(store, tree, "k")));
            using var before = store.OpenSnapshot();
            Assert.Equal(Huge, await store.DeleteSetAsync(tree, "huge"u8));
            Assert.Equal(0, await store.DeleteSetAsync(tree, "huge"u8));
            Assert.Equal((0L, 3L, (long)Huge), (Count(store, tree, "huge"), Count(store, tree, "other"), before.GetSet(tree, "huge"u8).Count));
        }
        await using var again = KvStore.Open(Folder);
        Assert.Equal((0L, 3L), (Count(again, again.Tree("t"), "huge"), Count(again, again.Tree("t"), "other")));
    }

    /// <summary>What a crash or a token leaves of a dropped tree's sets is removed by the next open.</summary>
    [Fact]
    public async Task DropTree_EndsItsSets_AlsoWhenItIsInterrupted()
    {
        await using (var store = KvStore.Open(Folder))
        {
            var (kept, dropped, interrupted) =
                (await store.CreateTreeAsync("kept"), await store.CreateTreeAsync("dropped"), await store.CreateTreeAsync("interrupted"));
            foreach (var tree in (KvTree[])[kept, dropped, interrupted])
            {
                await ChangeAsync(store, 0, 2_500, (batch, number) => batch.SetAdd(tree, Number(number), "m"u8));
                await AddAsync(store, tree, "large", 0, 2_000);
            }
            await store.DropTreeAsync(dropped);
            using (var snapshot = store.OpenSnapshot())
                Assert.Equal(
                    (0L, 0L, 1L),
                    (snapshot.GetSet(dropped, "large"u8).Count, snapshot.GetSet(dropped, Number(7)).Count, snapshot.GetSet(interrupted, Number(7)).Count));
            await Assert.ThrowsAsync<KvTreeNotFoundException>(async () => await store.WriteAsync(new KvBatch().SetAdd(dropped, "s"u8, "m"u8)));
            await Assert.ThrowsAsync<KvTreeNotFoundException>(() => store.DeleteSetAsync(dropped, "large"u8));
            using var ended = new CancellationTokenSource();
            var drop = store.DropTreeAsync(interrupted, ended.Token);
            await ended.CancelAsync();
            _ = await Record.ExceptionAsync(() => drop);
        }
        await using (var store = KvStore.Open(Folder))
        {
            var kept = store.Tree("kept");
            using var snapshot = store.OpenSnapshot();
            Assert.Equal((2_000L, 1L), (snapshot.GetSet(kept, "large"u8).Count, snapshot.GetSet(kept, Number(2_499)).Count));
        }
    }

    [Fact]
    public async Task KeysAndMembers_BeyondTheirLimits_AreRefused()
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        var (longest, tooLong) = (new byte[KvStoreLimits.MemberBytesMax], new byte[KvStoreLimits.MemberBytesMax + 1]);
        var tooLongBound = new byte[KvStoreLimits.MemberBytesMax + 2];
        Assert.Equal(1_024, KvStoreLimits.MemberBytesMax);
        var (longestKey, tooLongKey) = (new byte[KvStoreLimits.KeyBytesMax], new byte[KvStoreLimits.KeyBytesMax + 1]);
        var batch = new KvBatch().SetAdd(tree, longestKey, longest).SetAdd(tree, longestKey, "m"u8);
        foreach (var member in (byte[][])[[], tooLong])
        {
            Assert.Throws<ArgumentOutOfRangeException>(() => batch.SetAdd(tree, "s"u8, member));
            Assert.Throws<ArgumentOutOfRangeException>(() => batch.SetRemove(tree, "s"u8, member));
        }
        foreach (var key in (byte[][])[[], tooLongKey])
        {
            Assert.Throws<ArgumentOutOfRangeException>(() => batch.SetAdd(tree, key, "m"u8));
            Assert.Throws<ArgumentOutOfRangeException>(() => batch.SetRemove(tree, key, "m"u8));
            Assert.Throws<ArgumentOutOfRangeException>(() => batch.SetDelete(tree, key));
            await Assert.ThrowsAsync<ArgumentOutOfRangeException>(() => store.DeleteSetAsync(tree, key));
        }
        Assert.Throws<ArgumentNullException>(() => batch.SetAdd(null!, "s"u8, "m"u8));
        Assert.Equal(2, batch.Count);
        await store.WriteAsync(batch);
        Assert.Throws<InvalidOperationException>(() => batch.SetAdd(tree, "s"u8, "m"u8));
        using var snapshot = store.OpenSnapshot();
        Assert.Throws<ArgumentOutOfRangeException>(() => snapshot.GetSet(tree, tooLongKey));
        Assert.Throws<ArgumentOutOfRangeException>(() => snapshot.GetSet(tree, default));
        foreach (var set in (KvSet[])[snapshot.GetSet(tree, longestKey), snapshot.GetSet(tree, "none"u8), default])
        {
            Assert.Equal(set.Count > 0, set.Contains(longest));
            Assert.Throws<ArgumentOutOfRangeException>(() => set.Contains(tooLong));
            Assert.Throws<ArgumentOutOfRangeException>(() => set.Contains(default));
            // A bound may be one byte longer than a member, so that what is behind the longest one can be named.
            foreach (var member in set.Members(tooLong))
                Assert.True(member.SequenceCompareTo(tooLong) >= 0);
            Assert.Throws<ArgumentOutOfRangeException>(() => set.Members(tooLongBound));
            using var cursor = set.OpenCursor();
            Assert.Throws<ArgumentOutOfRangeException>(() => cursor.Seek(tooLongBound));
            Assert.Throws<InvalidOperationException>(() => cursor.Member.Length);
            Assert.Equal(set.Count > 0, cursor.Seek("a"u8));
        }
    }

    [Theory]
    [InlineData(3)]
    [InlineData(5_000)]
    public async Task Set_AfterItsSnapshotOrCursor_ThrowsThatItIsDisposedOf(int count)
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        await AddAsync(store, tree, "s", 0, count);
        var snapshot = store.OpenSnapshot();
        var set = snapshot.GetSet(tree, "s"u8);
        var (cursor, ended) = (set.OpenCursor(), set.OpenCursor());
        Assert.True(cursor.MoveNext() && ended.MoveNext());
        ended.Dispose();
        ended.Dispose();
        CheckEnded(ended);
        snapshot.Dispose();
        CheckEnded(cursor);
        cursor.Dispose();
        Assert.Throws<ObjectDisposedException>(() => set.Count);
        Assert.Throws<ObjectDisposedException>(() => set.Etag);
        Assert.Throws<ObjectDisposedException>(() => set.Contains("m"u8));
        Assert.Throws<ObjectDisposedException>(() => set.Members());
        Assert.Throws<ObjectDisposedException>(() => set.OpenCursor());
        Assert.Throws<ObjectDisposedException>(() => snapshot.GetSet(tree, "s"u8));
    }

    private static void CheckEnded(KvMemberCursor cursor)
    {
        Assert.Throws<ObjectDisposedException>(() => cursor.MoveNext());
        Assert.Throws<ObjectDisposedException>(() => cursor.MovePrevious());
        Assert.Throws<ObjectDisposedException>(() => cursor.Seek("a"u8));
        Assert.Throws<ObjectDisposedException>(() => cursor.Member.Length);
    }

    private static void CheckAll(KvSet set, int first, int end)
    {
        Assert.Equal(end - first, set.Count);
        var number = first;
        foreach (var member in set.Members())
            Assert.True(member.SequenceEqual(Number(number++)), $"{Encoding.UTF8.GetString(member)} is not {number - 1}.");
        Assert.Equal(end, number);
        Assert.True(set.Contains(Number(first)) && set.Contains(Number(end - 1)) && !set.Contains(Number(end)));
    }

    private static Task AddAsync(KvStore store, KvTree tree, string key, int first, int end) =>
        ChangeAsync(store, first, end, (batch, number) => batch.SetAdd(tree, Bytes(key), Number(number)));

    /// <summary>Makes a change for each number, some thousand in a batch.</summary>
    private static async Task ChangeAsync(KvStore store, int first, int end, Action<KvBatch, int> change)
    {
        const int Each = 5_000;
        for (; first < end; first += Each)
        {
            var batch = new KvBatch();
            for (var number = first; number < Math.Min(first + Each, end); number++)
                change(batch, number);
            Assert.True((await store.WriteAsync(batch)).IsApplied);
        }
    }

    private static long Count(KvStore store, KvTree tree, string key)
    {
        using var snapshot = store.OpenSnapshot();
        return snapshot.GetSet(tree, Bytes(key)).Count;
    }

    private static string Members(KvStore store, KvTree tree, string key)
    {
        using var snapshot = store.OpenSnapshot();
        return Members(snapshot.GetSet(tree, Bytes(key)));
    }

    private static string Members(KvSet set)
    {
        var members = new List<string>();
        foreach (var member in set.Members())
            members.Add(Encoding.UTF8.GetString(member));
        return string.Join(' ', members);
    }

    private static string Sets(KvSetScan scan)
    {
        var sets = new List<string>();
        foreach (var (key, set) in scan)
            sets.Add($"{Encoding.UTF8.GetString(key)}:{set.Count}");
        return string.Join(' ', sets);
    }

    private static byte[] Number(int number) => Bytes($"{number:00000000}");

    private static byte[] Long(int number) => Bytes($"{number:00000000}{new string('m', 1_000)}");
}
