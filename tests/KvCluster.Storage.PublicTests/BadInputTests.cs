using System.Diagnostics;
using System.Numerics;
using KvCluster.Storage;

namespace KvCluster.PublicTests;

/// <summary>What a store refuses: with an error that has a type, and without changing anything.</summary>
public sealed class BadInputTests : StoreTest
{
    [Fact]
    public async Task Batch_OverALimit_IsRefusedAndKeepsWhatItHas()
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        var (longest, tooLong) = (new byte[KvStoreLimits.KeyBytesMax], new byte[KvStoreLimits.KeyBytesMax + 1]);
        var batch = new KvBatch().Put(tree, longest, "v"u8);
        Assert.Throws<ArgumentOutOfRangeException>(() => batch.Put(tree, tooLong, "v"u8));
        Assert.Throws<ArgumentOutOfRangeException>(() => batch.Put(tree, default, "v"u8));
        Assert.Throws<ArgumentOutOfRangeException>(() => batch.Delete(tree, tooLong));
        Assert.Throws<ArgumentOutOfRangeException>(() => batch.Delete(tree, default));
        Assert.Throws<ArgumentOutOfRangeException>(() => batch.IfExists(tree, tooLong));
        Assert.Throws<ArgumentOutOfRangeException>(() => batch.Put(tree, "k"u8, new byte[KvStoreLimits.ValueBytesMax + 1]));
        Assert.Throws<ArgumentNullException>(() => batch.Put(null!, "k"u8, "v"u8));
        batch.Put(tree, "largest"u8, new byte[KvStoreLimits.ValueBytesMax]);
        Assert.Throws<KvBatchFullException>(() => batch.Put(tree, "k"u8, new byte[KvStoreLimits.ValueBytesMax]));
        Assert.Equal(2, batch.Count);
        await store.WriteAsync(batch);
        using var snapshot = store.OpenSnapshot();
        Assert.True(snapshot.TryGet(tree, longest, out _));
        Assert.Equal(2, Keys(snapshot.Scan(tree)).Split(' ').Length);
        Assert.Throws<ArgumentOutOfRangeException>(() => snapshot.TryGet(tree, tooLong, out _));
        Assert.Throws<ArgumentOutOfRangeException>(() => snapshot.TryGet(tree, default, out _));
        // A bound has one byte more.
        Assert.Equal("largest", Keys(snapshot.Scan(tree, tooLong)));
        byte[] tooLongBound = [.. tooLong, 0];
        Assert.Throws<ArgumentOutOfRangeException>(() => snapshot.Scan(tree, tooLongBound));
        Assert.Throws<ArgumentOutOfRangeException>(() => snapshot.Count(tree, tooLongBound));
        Assert.Throws<ArgumentOutOfRangeException>(() => snapshot.CountPrefix(tree, tooLong));
    }

    [Fact]
    public async Task Batch_WithTooManyOperations_IsRefusedAndCanBeWritten()
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        var batch = new KvBatch();
        for (var index = 0; index < KvStoreLimits.BatchOperationsMax; index++)
            batch.Put(tree, Bytes($"{index}"), default).IfAbsent(tree, Bytes($"{index}"));
        Assert.Throws<KvBatchFullException>(() => batch.Delete(tree, "k"u8));
        Assert.Throws<KvBatchFullException>(() => batch.IfAbsent(tree, "k"u8));
        Assert.True((await store.WriteAsync(batch)).IsApplied);
    }

    [Fact]
    public async Task Batch_UsedAfterItWasWritten_IsRefused()
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        var batch = new KvBatch().Put(tree, "k"u8, "v"u8);
        await store.WriteAsync(batch);
        Assert.Throws<InvalidOperationException>(() => batch.Put(tree, "k"u8, "w"u8));
        Assert.Throws<InvalidOperationException>(() => batch.Delete(tree, "k"u8));
        Assert.Throws<InvalidOperationException>(() => batch.IfAbsent(tree, "k"u8));
        await Assert.ThrowsAsync<InvalidOperationException>(async () => await store.WriteAsync(batch));
        Assert.Equal("v", Read(store, tree, "k"));
    }

    [Fact]
    public async Task Tree_OfAnotherStore_IsRefused()
    {
        await using var store = KvStore.Open(Folder);
        await using var other = KvStore.Open(Beside("other"));
        var (own, foreign) = (await store.CreateTreeAsync("t"), await other.CreateTreeAsync("t"));
        var batch = new KvBatch().Put(own, "k"u8, "v"u8);
        Assert.Throws<ArgumentException>(() => batch.Put(foreign, "k"u8, "v"u8));
        await Assert.ThrowsAsync<ArgumentException>(async () => await other.WriteAsync(batch));
        await Assert.ThrowsAsync<ArgumentException>(() => store.DropTreeAsync(foreign));
        using var snapshot = store.OpenSnapshot();
        Assert.Throws<ArgumentException>(() => snapshot.TryGet(foreign, "k"u8, out _));
        await store.WriteAsync(batch);
        Assert.Equal(("v", null), (Read(store, own, "k"), Read(other, foreign, "k")));
    }

    [Fact]
    public async Task Open_OfWhatIsNoStore_IsATypedErrorAndChangesNothing()
    {
        await File.WriteAllTextAsync(Beside("file"), "text");
        Assert.False(Assert.Throws<KvStoreDiskException>(() => KvStore.Open(Beside("file"))).IsFull);
        Assert.Throws<KvStoreDiskException>(() => KvStore.Open(Path.Combine(Beside("file"), "inside")));
        Directory.CreateDirectory(Beside("full"));
        await File.WriteAllTextAsync(Path.Combine(Beside("full"), "letter.txt"), "text");
        Assert.Contains("letter.txt", Assert.Throws<KvStoreFormatException>(() => KvStore.Open(Beside("full"))).Message, StringComparison.Ordinal);
        Assert.Equal(["letter.txt"], Directory.EnumerateFileSystemEntries(Beside("full")).Select(Path.GetFileName));
        Assert.Throws<ArgumentException>(() => KvStore.Open(" "));
        Assert.Throws<ArgumentOutOfRangeException>(() => KvStore.Open(Folder, new KvStoreOptions { MemoryBudgetBytes = 1 }));
        Assert.False(Directory.Exists(Folder));
    }

    [Fact]
    public async Task Open_OfAReadOnlyDirectory_IsATypedError()
    {
        if (OperatingSystem.IsWindows())
            return;
        // The administrator may write everywhere, except where the kernel itself refuses. So under root, as in most containers, the rest of this shows only
        // that the store opens. What a user without rights gets there is shown by OtherUserTests.
        if (OperatingSystem.IsLinux())
            Assert.Throws<KvStoreDiskException>(() => KvStore.Open("/proc/self/data"));
        await KvStore.Open(Folder).DisposeAsync();
        var before = FilesOf(Folder);
        File.SetUnixFileMode(Folder, UnixFileMode.UserRead | UnixFileMode.UserExecute);
        File.SetUnixFileMode(Path.Combine(Folder, "LOCK"), UnixFileMode.UserRead);
        try
        {
            if (Environment.IsPrivilegedProcess)
                await KvStore.Open(Folder).DisposeAsync();
            else
                Assert.Throws<KvStoreDiskException>(() => KvStore.Open(Folder));
        }
        finally
        {
            File.SetUnixFileMode(Folder, UnixFileMode.UserRead | UnixFileMode.UserWrite | UnixFileMode.UserExecute);
        }
        if (!Environment.IsPrivilegedProcess)
            Assert.Equal(before, FilesOf(Folder));
    }

    [Fact]
    public async Task Open_OfAnotherVersion_IsATypedErrorAndChangesNothing()
    {
        await KvStore.Open(Folder).DisposeAsync();
        var path = Path.Combine(Folder, "store", "control");
        var control = await File.ReadAllBytesAsync(path);
        foreach (var slot in (int[])[0, 4_096])
        {
            control[slot + 4] = 99;
            var checksum = ~0u;
            foreach (var one in control.AsSpan(slot, 128))
                checksum = BitOperations.Crc32C(checksum, one);
            BitConverter.TryWriteBytes(control.AsSpan(slot + 128), ~checksum);
        }
        await File.WriteAllBytesAsync(path, control);
        var before = FilesOf(Folder);
        Assert.Contains("version 99", Assert.Throws<KvStoreFormatException>(() => KvStore.Open(Folder)).Message, StringComparison.Ordinal);
        Assert.Equal(before, FilesOf(Folder));
    }

    [Fact]
    public async Task Open_OfADamagedStore_IsATypedErrorAndChangesNothing()
    {
        await KvStore.Open(Folder).DisposeAsync();
        await File.WriteAllBytesAsync(Path.Combine(Folder, "store", "control"), new byte[8_192]);
        var before = FilesOf(Folder);
        Assert.Throws<KvStoreDamagedException>(() => KvStore.Open(Folder));
        Assert.Equal(before, FilesOf(Folder));
    }

    [Fact]
    public async Task Read_OfADamagedValue_IsATypedErrorAndStopsTheStore()
    {
        await using (var store = KvStore.Open(Folder))
        {
            var tree = await store.CreateTreeAsync("t");
            await store.WriteAsync(new KvBatch().Put(tree, "bad"u8, Enumerable.Repeat((byte)0xAB, 100_000).ToArray()).Put(tree, "good"u8, "v"u8));
            await store.CheckpointAsync();
        }
        foreach (var data in Directory.EnumerateFiles(Folder, "data", SearchOption.AllDirectories))
        {
            var bytes = await File.ReadAllBytesAsync(data);
            bytes[bytes.AsSpan().IndexOf(Enumerable.Repeat((byte)0xAB, 1_000).ToArray()) + 500] ^= 1;
            await File.WriteAllBytesAsync(data, bytes);
        }
        await using (var store = KvStore.Open(Folder))
        {
            var tree = store.Tree("t");
            Assert.Equal("v", Read(store, tree, "good"));
            using (var snapshot = store.OpenSnapshot())
            {
                Assert.Throws<KvStoreDamagedException>(() => snapshot.Get(tree, "bad"u8));
                using var cursor = snapshot.OpenCursor(tree);
                Assert.True(cursor.MoveNext());
                Assert.Throws<KvStoreDamagedException>(() => cursor.Value.Length);
            }
            var failed = await StoppedAsync(store, tree);
            Assert.IsNotType<KvStoreFailedException>(failed.InnerException);
            Assert.Throws<KvStoreFailedException>(store.OpenSnapshot);
            await Assert.ThrowsAsync<KvStoreFailedException>(() => store.CheckpointAsync());
            await Assert.ThrowsAsync<KvStoreFailedException>(() => store.CreateTreeAsync("u"));
        }
    }

    // The reader's find is told to the store's own thread.
    private static async Task<KvStoreFailedException> StoppedAsync(KvStore store, KvTree tree)
    {
        var started = Stopwatch.GetTimestamp();
        while (Stopwatch.GetElapsedTime(started) < TimeSpan.FromMinutes(3))
        {
            try
            {
                await store.WriteAsync(new KvBatch().Put(tree, "k"u8, "v"u8));
            }
            catch (KvStoreFailedException failed)
            {
                return failed;
            }
        }
        throw new Xunit.Sdk.XunitException("The store still accepts writes.");
    }

    [Fact]
    public async Task UseAfterDisposal_ThrowsThatEverywhere()
    {
        var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        await PutAsync(store, tree, "a", "b");
        var (snapshot, ended) = (store.OpenSnapshot(), store.OpenSnapshot());
        var (cursor, endedCursor, cursorOfEnded) = (snapshot.OpenCursor(tree), snapshot.OpenCursor(tree), ended.OpenCursor(tree));
        Assert.True(cursorOfEnded.MoveNext() && endedCursor.MoveNext() && cursor.MoveNext());
        ended.Dispose();
        ended.Dispose();
        endedCursor.Dispose();
        endedCursor.Dispose();
        foreach (var moved in (KvCursor[])[endedCursor, cursorOfEnded])
            CheckEnded(moved);
        CheckEnded(ended, tree);
        Assert.Equal("a", Read(snapshot, tree, "a"));

        var disposal = store.DisposeAsync();
        CheckEnded(cursor);
        CheckEnded(snapshot, tree);
        cursor.Dispose();
        snapshot.Dispose();
        await disposal;
        await store.DisposeAsync();
        Assert.Throws<ObjectDisposedException>(store.OpenSnapshot);
        Assert.Throws<ObjectDisposedException>(() => store.Tree("t"));
        Assert.Throws<ObjectDisposedException>(() => store.TreeNames);
        Assert.Throws<ObjectDisposedException>(() => store.Statistics);
        var batch = new KvBatch().Put(tree, "a"u8, "new"u8);
        await Assert.ThrowsAsync<ObjectDisposedException>(async () => await store.WriteAsync(batch));
        await Assert.ThrowsAsync<ObjectDisposedException>(() => store.CreateTreeAsync("u"));
        await Assert.ThrowsAsync<ObjectDisposedException>(() => store.DropTreeAsync(tree));
        await Assert.ThrowsAsync<ObjectDisposedException>(() => store.CheckpointAsync());
        await Assert.ThrowsAsync<ObjectDisposedException>(() => store.BackupAsync(Stream.Null));

        await using var again = KvStore.Open(Folder);
        Assert.Equal("a", Read(again, again.Tree("t"), "a"));
    }

    /// <summary>Calls that waited for their turn when the disposal began, or that asked for it later, never ended.</summary>
    [Fact]
    public async Task Dispose_WhileCallsOfEveryKindRaceWithIt_EndsThemAll()
    {
        const int Rounds = 5, Callers = 4;
        for (var round = 0; round < Rounds; round++)
        {
            var store = KvStore.Open(Beside($"store-{round}"));
            var tree = await store.CreateTreeAsync("t");
            var calls = (Func<int, Task>[])
            [
                number => store.CreateTreeAsync($"tree-{number}"),
                async number => await store.DropTreeAsync(await store.CreateTreeAsync($"dropped-{number}")),
                async number => await store.WriteAsync(new KvBatch().Put(tree, Bytes($"{number}"), new byte[100])),
                number => store.DeleteRangeAsync(tree, Bytes($"{number}")),
                _ => store.CheckpointAsync(),
                _ => store.BackupAsync(Stream.Null),
                _ => Task.Run(() => store.OpenSnapshot().Dispose()),
                async number =>
                {
                    // It never waits, so its callers would keep the pool's threads to themselves.
                    await Task.Yield();
                    _ = store.Statistics;
                },
            ];
            var callers = calls.SelectMany(call => Enumerable.Range(0, Callers)
                .Select(caller => Task.Run(() => RepeatUntilDisposedAsync(call, caller)))).ToList();
            await Task.Delay(TimeSpan.FromMilliseconds(20 * round));
            await Task.WhenAll([.. callers, store.DisposeAsync().AsTask()]).WaitAsync(TimeSpan.FromMinutes(3));
        }

        static async Task RepeatUntilDisposedAsync(Func<int, Task> call, int caller)
        {
            for (var number = caller; ; number += Callers)
            {
                try
                {
                    await call(number);
                }
                catch (ObjectDisposedException)
                {
                    return;
                }
                catch (KvStoreFailedException closed) when (closed.IsOutcomeUnknown)
                {
                    // It began before the disposal, and its record was on the way.
                }
            }
        }
    }

    private static void CheckEnded(KvCursor cursor)
    {
        Assert.Throws<ObjectDisposedException>(() => cursor.MoveNext());
        Assert.Throws<ObjectDisposedException>(() => cursor.MovePrevious());
        Assert.Throws<ObjectDisposedException>(() => cursor.Seek("a"u8));
        Assert.Throws<ObjectDisposedException>(() => cursor.Key.Length);
        Assert.Throws<ObjectDisposedException>(() => cursor.Value.Length);
        Assert.Throws<ObjectDisposedException>(() => cursor.Etag);
    }

    private static void CheckEnded(KvSnapshot snapshot, KvTree tree)
    {
        Assert.Throws<ObjectDisposedException>(() => snapshot.Etag);
        Assert.Throws<ObjectDisposedException>(() => snapshot.IsTooOld);
        Assert.Throws<ObjectDisposedException>(() => snapshot.Get(tree, "a"u8));
        Assert.Throws<ObjectDisposedException>(() => snapshot.OpenCursor(tree));
        Assert.Throws<ObjectDisposedException>(() => snapshot.Scan(tree));
        Assert.Throws<ObjectDisposedException>(() => snapshot.ScanPrefix(tree, "a"u8));
        Assert.Throws<ObjectDisposedException>(() => snapshot.Count(tree));
        Assert.Throws<ObjectDisposedException>(() => snapshot.CountPrefix(tree, "a"u8));
    }
}
