using KvCluster.Storage;

namespace KvCluster.PublicTests;

/// <summary>Checkpoints, backups and what is restored from them.</summary>
public sealed class BackupTests : StoreTest
{
    [Fact]
    public async Task Checkpoint_ThenReopen_HasEverything()
    {
        await using (var store = KvStore.Open(Folder))
        {
            var tree = await store.CreateTreeAsync("t");
            await store.WriteAsync(new KvBatch().Put(tree, "large"u8, new byte[KvStoreLimits.ValueBytesMax]));
            Assert.True(store.Statistics.ChangedBytes > KvStoreLimits.ValueBytesMax);
            await store.CheckpointAsync();
            Assert.True(store.Statistics.DataBytes > KvStoreLimits.ValueBytesMax);
            await PutAsync(store, tree, "after");
        }
        await using (var store = KvStore.Open(Folder))
        {
            Assert.Equal("after", Read(store, store.Tree("t"), "after"));
            using var snapshot = store.OpenSnapshot();
            Assert.Equal(KvStoreLimits.ValueBytesMax, snapshot.Get(store.Tree("t"), "large"u8)!.Length);
        }
    }

    [Fact]
    public async Task Restore_OfABackupMadeWhileWriting_HasAllFromBeforeAndWholeBatches()
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        using var ended = new CancellationTokenSource();
        var written = 0;
        var writer = Task.Run(async () =>
        {
            for (; !ended.IsCancellationRequested; Interlocked.Increment(ref written))
                await store.WriteAsync(Numbered(tree, written));
        });
        await WrittenAsync(200);
        using var backup = new WatchedStream(() => WrittenAsync(Volatile.Read(ref written) + 10));
        var etag = await store.BackupAsync(backup);
        await ended.CancelAsync();
        await writer;
        // A backup may be a part of a longer stream.
        backup.Write("and more"u8);
        backup.Position = 0;
        Assert.Equal(etag, await KvStore.RestoreAsync(backup, Beside("restored")));
        Assert.Equal("and more".Length, backup.Length - backup.Position);

        await using var restored = KvStore.Open(Beside("restored"));
        var restoredTree = restored.Tree("t");
        using (var snapshot = restored.OpenSnapshot())
        {
            var first = Keys(snapshot.ScanPrefix(restoredTree, "first-"u8)).Split(' ').Length;
            // One that was in the checkpoint may not have been answered when the stream began.
            Assert.InRange(first, 200, written - 9);
            Assert.Equal(first, Keys(snapshot.ScanPrefix(restoredTree, "second-"u8)).Split(' ').Length);
            using var original = store.OpenSnapshot();
            for (var number = 0; number < first; number++)
                Assert.Equal(original.Get(tree, Bytes($"first-{number}")), snapshot.Get(restoredTree, Bytes($"first-{number}")));
        }
        Assert.True((await restored.WriteAsync(Numbered(restoredTree, 0))).Etag > etag);
        await restored.CreateTreeAsync("another");

        async Task WrittenAsync(int count)
        {
            while (Volatile.Read(ref written) < count && !writer.IsCompleted)
                await Task.Delay(1);
            Assert.True(Volatile.Read(ref written) >= count, "The writer has ended.");
        }
    }

    [Fact]
    public async Task Restore_OfWhatIsNoBackup_IsATypedErrorAndLeavesNoStore()
    {
        using var backup = new MemoryStream();
        await using (var store = KvStore.Open(Folder))
        {
            var tree = await store.CreateTreeAsync("t");
            await store.WriteAsync(new KvBatch().Put(tree, "k"u8, new byte[100_000]));
            await store.BackupAsync(backup);
            var before = FilesOf(Folder);
            await Assert.ThrowsAsync<KvStoreInUseException>(() => KvStore.RestoreAsync(new MemoryStream(backup.ToArray()), Folder));
            Assert.Equal(before, FilesOf(Folder));
        }
        var sound = backup.ToArray();
        var bytes = (byte[])sound.Clone();
        bytes[^5_000] ^= 1;
        foreach (var bad in (byte[][])[[], [.. "not a backup"u8], new byte[100_000], sound[..^1], sound[..30], bytes])
        {
            await Assert.ThrowsAsync<KvStoreDamagedException>(() => KvStore.RestoreAsync(new MemoryStream(bad), Beside("bad")));
            Assert.DoesNotContain("store", Directory.EnumerateDirectories(Beside("bad")).Select(Path.GetFileName));
        }
        await Assert.ThrowsAsync<KvStoreFormatException>(() => KvStore.RestoreAsync(new MemoryStream(sound), Folder));
        await KvStore.RestoreAsync(new MemoryStream(sound), Beside("bad"));
        await using var restored = KvStore.Open(Beside("bad"));
        using var snapshot = restored.OpenSnapshot();
        Assert.Equal(100_000, snapshot.Get(restored.Tree("t"), "k"u8)!.Length);
    }

    /// <summary>An error of the caller's own stream was reported as one of the store's disk.</summary>
    [Fact]
    public async Task Restore_FromAStreamThatFails_ThrowsWhatTheStreamThrows()
    {
        var failure = new IOException("The tape is torn.");
        Assert.Same(failure, await Assert.ThrowsAsync<IOException>(() => KvStore.RestoreAsync(new FailingStream(failure), Folder)));
        Assert.Equal(["LOCK"], Directory.EnumerateFileSystemEntries(Folder).Select(Path.GetFileName));
        await File.WriteAllTextAsync(Beside("file"), "text");
        await Assert.ThrowsAsync<KvStoreDiskException>(() => KvStore.RestoreAsync(Stream.Null, Beside("file")));
    }

    /// <summary>What a restore that a crash interrupted had written stayed for as long as there was a store.</summary>
    [Fact]
    public async Task Open_AfterARestoreThatWasInterrupted_RemovesWhatItHasLeft()
    {
        var left = (string[])[Path.Combine(Folder, "restoring"), Path.Combine(Folder, "restoring.creating")];
        foreach (var directory in left)
        {
            Directory.CreateDirectory(directory);
            await File.WriteAllBytesAsync(Path.Combine(directory, "control"), new byte[8_192]);
        }
        await using var store = KvStore.Open(Folder);
        Assert.All(left, directory => Assert.False(Directory.Exists(directory)));
    }

    [Fact]
    public async Task Backup_IntoAStreamThatFails_LeavesTheStoreWorking()
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        await store.WriteAsync(new KvBatch().Put(tree, "k"u8, new byte[100_000]));
        await Assert.ThrowsAsync<NotSupportedException>(() => store.BackupAsync(new MemoryStream(new byte[1_000])));
        using var backup = new MemoryStream();
        await store.BackupAsync(backup);
        Assert.True(backup.Length > 100_000);
        Assert.Equal(0, store.Statistics.PinnedBytes);
    }

    // The exception had a token of the store's own, by which callers cannot tell that they have cancelled the call.
    [Fact]
    public async Task BackupAndCheckpoint_CancelledByTheCaller_TellOfItsToken()
    {
        await using var store = KvStore.Open(Folder);
        var tree = await store.CreateTreeAsync("t");
        await store.WriteAsync(new KvBatch().Put(tree, "k"u8, new byte[100_000]));
        using var stop = new CancellationTokenSource();
        using var backup = new WatchedStream(stop.CancelAsync);
        var cancelled = await Assert.ThrowsAnyAsync<OperationCanceledException>(() => store.BackupAsync(backup, stop.Token));
        Assert.Equal(stop.Token, cancelled.CancellationToken);
        cancelled = await Assert.ThrowsAnyAsync<OperationCanceledException>(() => store.CheckpointAsync(stop.Token));
        Assert.Equal(stop.Token, cancelled.CancellationToken);
    }

    private static KvBatch Numbered(KvTree tree, int number) =>
        new KvBatch().Put(tree, Bytes($"first-{number}"), Bytes(new string((char)('a' + (number % 26)), 500))).Put(tree, Bytes($"second-{number}"), "x"u8);

    private sealed class FailingStream(Exception failure) : MemoryStream
    {
        public override ValueTask<int> ReadAsync(Memory<byte> buffer, CancellationToken cancellationToken = default) => ValueTask.FromException<int>(failure);
    }

    /// <summary>A stream in memory that has something done between the checkpoint and its first bytes.</summary>
    private sealed class WatchedStream(Func<Task> beforeFirst) : MemoryStream
    {
        private bool _hasBegun;

        public override async ValueTask WriteAsync(ReadOnlyMemory<byte> buffer, CancellationToken cancellationToken = default)
        {
            if (!_hasBegun)
            {
                _hasBegun = true;
                await beforeFirst();
            }
            await base.WriteAsync(buffer, cancellationToken);
        }
    }
}
