using System.Runtime.InteropServices;
using KvCluster.Disk;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Readers;

/// <summary>What a snapshot that is held for long costs.</summary>
public sealed class LongReaderTests
{
    private const int Keys = 20_000;

    // One open snapshot kept every page that was written afterwards, though it reached none of them: 20,000 puts over 200,000 keys took 625 MiB, and checkpoints followed one another.
    [Fact]
    public void HeldSnapshot_ManySmallBatches_KeepsNoPageThatItDoesNotReach()
    {
        using var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, "data", new PageStoreOptions { MapBytes = 1 << 28 }, new byte[16]);
        var random = new Random(1);
        var etag = Load(store);
        var treeBytes = store.ScratchBytes;
        using var snapshot = store.OpenSnapshot();
        var before = Sum(snapshot);
        for (var put = 0; put < 2_000; put++)
            Put(store, ++etag, random.Next(Keys), (byte)put);
        // The snapshot's pages, and the newest ones.
        Assert.True(store.ScratchBytes <= (2 * treeBytes) + (1 << 20), $"{store.ScratchBytes} bytes of scratch, and the tree has {treeBytes}.");
        Assert.Equal(before, Sum(snapshot));
        Assert.True(store.PinnedBytes > 0);
        snapshot.Dispose();
        Put(store, ++etag, 0, 0);
        Put(store, ++etag, 0, 0);
        Assert.Equal(0, store.PinnedBytes);
        Assert.True(store.ScratchBytes <= treeBytes + (1 << 20), $"{store.ScratchBytes} bytes of scratch, and the tree has {treeBytes}.");
    }

    // Of the file's pages, one open snapshot kept all that checkpoints left since it was opened, what it reached or not: the file grew by every checkpoint.
    [Fact]
    public void HeldSnapshot_ManyCheckpoints_KeepsNoPageOfTheFileThatItDoesNotReach()
    {
        using var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, "data", new PageStoreOptions { MapBytes = 1 << 28 }, new byte[16]);
        var random = new Random(1);
        var etag = Load(store);
        Checkpoint(store);
        var treeBytes = store.FileBytes;
        using var snapshot = store.OpenSnapshot();
        var before = Sum(snapshot);
        for (var checkpoint = 0; checkpoint < 60; checkpoint++)
        {
            for (var put = 0; put < 60; put++)
                Put(store, ++etag, random.Next(Keys), (byte)put);
            Checkpoint(store);
        }
        // The snapshot's pages, the newest ones, and those that the meta page before reaches.
        Assert.True(store.FileBytes <= 4 * treeBytes, $"The file has {store.FileBytes} bytes, and had {treeBytes} with the same keys.");
        Assert.True(store.PinnedBytes <= treeBytes + (1 << 20), $"{store.PinnedBytes} bytes are pinned, and the snapshot has {treeBytes}.");
        Assert.Equal(before, Sum(snapshot));
        store.Verify();
        snapshot.Dispose();
        Put(store, ++etag, 0, 0);
        Put(store, ++etag, 0, 0);
        Assert.Equal(0, store.PinnedBytes);
    }

    // What a pin keeps, no reader's end frees.
    [Fact]
    public void PinnedCheckpoint_ReadersComeAndGo_IsReadAsItWas()
    {
        using var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, "data", new PageStoreOptions { MapBytes = 1 << 28 }, new byte[16]);
        var random = new Random(1);
        var etag = Load(store);
        Checkpoint(store);
        using var pin = store.Pin();
        var before = Content(pin);
        for (var checkpoint = 0; checkpoint < 10; checkpoint++)
        {
            using var reader = store.OpenSnapshot();
            for (var put = 0; put < 60; put++)
                Put(store, ++etag, random.Next(Keys), (byte)put);
            Checkpoint(store);
        }
        Assert.Equal(before, Content(pin));
        Assert.True(store.PinnedBytes > 0);
        pin.Dispose();
        Put(store, ++etag, 0, 0);
        Assert.Equal(0, store.PinnedBytes);
        store.Verify();
    }

    [Fact]
    public void SeveralReaders_OfDifferentAge_EachReadsItsStateToTheEnd() => Seeded.Run(10, random =>
    {
        using var store = new ModelStore();
        var checkpointsRest = random.Next(2) == 0 ? 60 : 6;
        for (var step = 0; step < 400; step++)
        {
            store.Batch(batch =>
            {
                for (var put = random.Next(1, 4); put > 0; put--)
                    batch.Put(TreeId.Kv, BitConverter.GetBytes(random.Next(600)), new byte[random.Next(10) == 0 ? 9_000 : 100]);
            });
            if (random.Next(4) != 0)
                store.Publish(random.Next(1, store.Unpublished + 1));
            if (random.Next(15) == 0 && store.Readers < 6)
                store.OpenReader();
            if (random.Next(40) == 0 && store.Readers > 0)
                store.CloseReader(random.Next(store.Readers));
            if (random.Next(checkpointsRest) == 0 && !store.IsCheckpointing)
                store.BeginCheckpoint();
            else if (random.Next(checkpointsRest / 3) == 0 && store.IsCheckpointing)
                store.EndCheckpoint();
            if (store.Readers > 0)
                store.CheckReader(random.Next(store.Readers), random);
        }
        while (store.Readers > 0)
            store.CloseReader(0);
    });

    [Fact]
    public void OldestSnapshotAge_SnapshotsComeAndGo_CountsFromTheFirstLook()
    {
        using var replica = new ReplicaBench(1);
        Assert.Equal(TimeSpan.Zero, replica.Store.OldestSnapshotAge());
        var old = replica.Store.OpenSnapshot();
        Assert.Equal(TimeSpan.Zero, Later(5));
        Assert.Equal(TimeSpan.FromSeconds(5), Later(5));
        using var young = replica.Store.OpenSnapshot();
        Assert.Equal(TimeSpan.FromSeconds(6), Later(1));
        old.Dispose();
        // Another one takes the slot, and has an age of its own.
        using var other = replica.Store.OpenSnapshot();
        Assert.Equal(TimeSpan.FromSeconds(2), Later(2));

        TimeSpan Later(int seconds)
        {
            replica.Time.Advance(TimeSpan.FromSeconds(seconds));
            return replica.Store.OldestSnapshotAge();
        }
    }

    [Fact]
    public void PinnedBytes_BeyondTheirBound_AskTheOldestReaderToEnd()
    {
        using var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, "data", new PageStoreOptions { MapBytes = 1 << 28, PinnedBytesMax = 256 << 10 }, new byte[16]);
        var etag = Load(store);
        using var old = store.OpenSnapshot();
        Put(store, ++etag, 1, 1);
        using var young = store.OpenSnapshot();
        for (var put = 0; put < 300 && !old.IsTooOld; put++)
            Put(store, ++etag, put * 60, 1);
        Assert.True(old.IsTooOld);
        Assert.False(young.IsTooOld);
    }

    // Scratch memory was kept for good at the largest size that it ever had.
    [Fact]
    public void Checkpoint_AfterManyChanges_GivesScratchBackToTheSystem()
    {
        using var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, "data", new PageStoreOptions { MapBytes = 1 << 29 }, new byte[16]);
        var batch = store.Begin();
        for (var key = 0; key < 60_000; key++)
            batch.Put(TreeId.Kv, BitConverter.GetBytes(key), new byte[900]);
        batch.Seal(1);
        store.Publish(1);
        Assert.True(store.ScratchReservedBytes > 50 << 20, $"{store.ScratchReservedBytes} bytes are reserved.");
        var checkpoint = store.BeginCheckpoint(etag => new Coverage(etag, default, 0), UInt128.MaxValue)!;
        checkpoint.Write();
        store.FinishCheckpoint(checkpoint);
        Assert.True(store.ScratchReservedBytes <= 17 << 20, $"{store.ScratchReservedBytes} bytes are reserved, and {store.ScratchBytes} in use.");
    }

    [Fact]
    public void Finish_CallsThatASignalInterrupts_AreMadeAgain()
    {
        const int Interrupted = 4, NoSpace = 28;
        int[] errors = [Interrupted, Interrupted, 0, Interrupted, NoSpace];
        var calls = 0;
        int Call()
        {
            Marshal.SetLastPInvokeError(errors[calls]);
            return errors[calls++] == 0 ? 0 : -1;
        }
        Assert.Equal(0, LinuxFile.Finish(Call));
        Assert.Equal(3, calls);
        Assert.Equal(NoSpace, LinuxFile.Finish(Call));
        Assert.Equal(5, calls);
    }

    private static UInt128 Load(PageStore store)
    {
        var batch = store.Begin();
        for (var key = 0; key < Keys; key++)
            batch.Put(TreeId.Kv, BitConverter.GetBytes(key), new byte[100]);
        batch.Seal(1);
        store.Publish(1);
        return 1;
    }

    private static void Put(PageStore store, UInt128 etag, int key, byte value)
    {
        var batch = store.Begin();
        batch.Put(TreeId.Kv, BitConverter.GetBytes(key), Enumerable.Repeat(value, 100).ToArray());
        batch.Seal(etag);
        store.Publish(etag);
    }

    private static void Checkpoint(PageStore store)
    {
        var checkpoint = store.BeginCheckpoint(etag => new Coverage(etag, default, 0), UInt128.MaxValue)!;
        checkpoint.Write();
        store.FinishCheckpoint(checkpoint);
    }

    private static string Content(CheckpointPin pin)
    {
        using var buffer = new AlignedBuffer(Page.Bytes);
        using var hash = System.Security.Cryptography.IncrementalHash.CreateHash(System.Security.Cryptography.HashAlgorithmName.SHA256);
        foreach (var run in pin.Runs)
        {
            for (var page = run.First; page < run.First + run.Count; page++)
            {
                pin.ReadPages(page, buffer.Span);
                hash.AppendData(buffer.Span);
            }
        }
        return Convert.ToHexString(hash.GetHashAndReset());
    }

    private static long Sum(ReadSnapshot snapshot)
    {
        using var cursor = snapshot.Cursor(TreeId.Kv);
        var sum = 0L;
        while (cursor.MoveNext())
            sum = (sum * 31) + cursor.Value[0];
        return sum;
    }
}
