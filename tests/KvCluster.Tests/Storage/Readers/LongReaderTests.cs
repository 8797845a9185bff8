using System.Runtime.InteropServices;
using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Readers;

/// <summary>What a long-held snapshot costs.</summary>
public sealed class LongReaderTests
{
    private const int Keys = 20_000;

    // One open snapshot kept every page that was written after it, although it reached none of them. 20,000 puts over 200,000 keys took 625 MiB, and
    // one checkpoint followed another.
    [Fact]
    public void HeldSnapshot_ManySmallBatches_KeepsNoPageThatItDoesNotReach()
    {
        using var disk = new SimulatedDisk();
        using var store = Create(disk);
        var random = new Random(1);
        Load(store);
        var treeBytes = store.ScratchBytes;
        using var snapshot = store.Roots.OpenSnapshot();
        var before = Sum(snapshot);
        for (var put = 0; put < 2_000; put++)
            Put(store, random.Next(Keys), (byte)put);
        // The pages of the snapshot and the newest ones.
        Assert.True(store.ScratchBytes <= (2 * treeBytes) + (1 << 20), $"{store.ScratchBytes} bytes of scratch memory for a tree of {treeBytes}.");
        Assert.Equal(before, Sum(snapshot));
        Assert.True(store.PinnedBytes > 0);
        snapshot.Dispose();
        Put(store, 0, 0);
        Put(store, 0, 0);
        Assert.Equal(0, store.PinnedBytes);
        // In steps.
        while (store.ReleaseSome())
        {
        }
        Assert.True(store.ScratchBytes <= treeBytes + (1 << 20), $"{store.ScratchBytes} bytes of scratch memory for a tree of {treeBytes}.");
    }

    // One open snapshot kept all pages of the file that checkpoints had freed since it was opened, whether it reached them or not. The file grew with
    // every checkpoint.
    [Fact]
    public void HeldSnapshot_ManyCheckpoints_KeepsNoPageOfTheFileThatItDoesNotReach()
    {
        using var disk = new SimulatedDisk();
        using var store = Create(disk);
        var random = new Random(1);
        Load(store);
        store.CheckpointAll();
        var treeBytes = store.FileBytes;
        using var snapshot = store.Roots.OpenSnapshot();
        var before = Sum(snapshot);
        for (var checkpoint = 0; checkpoint < 60; checkpoint++)
        {
            PutAndCheckpoint(store, random);
        }
        // The pages of the snapshot, the newest ones, and those that the older meta page reaches.
        Assert.True(store.FileBytes <= 4 * treeBytes, $"The file has {store.FileBytes} bytes, and had {treeBytes} with the same keys.");
        Assert.True(store.PinnedBytes <= treeBytes + (1 << 20), $"{store.PinnedBytes} bytes are pinned, and the snapshot has {treeBytes}.");
        Assert.Equal(before, Sum(snapshot));
        store.Verify();
        snapshot.Dispose();
        Put(store, 0, 0);
        Put(store, 0, 0);
        Assert.Equal(0, store.PinnedBytes);
    }

    // Closing a reader frees nothing that a pin keeps.
    [Fact]
    public void PinnedCheckpoint_ReadersComeAndGo_IsReadAsItWas()
    {
        using var disk = new SimulatedDisk();
        using var store = Create(disk);
        var random = new Random(1);
        Load(store);
        store.CheckpointAll();
        using var pin = store.Pin();
        var before = Content(pin);
        for (var checkpoint = 0; checkpoint < 10; checkpoint++)
        {
            using var reader = store.Roots.OpenSnapshot();
            PutAndCheckpoint(store, random);
        }
        Assert.Equal(before, Content(pin));
        Assert.True(store.PinnedBytes > 0);
        pin.Dispose();
        Put(store, 0, 0);
        Assert.Equal(0, store.PinnedBytes);
        store.Verify();
    }

    // A pin kept all pages freed since it was taken, including those created later. During a snapshot's transfer the file grew with every checkpoint.
    [Fact]
    public void PinnedCheckpoint_ManyCheckpoints_KeepsNoPageOfTheFileThatItDoesNotReach()
    {
        using var disk = new SimulatedDisk();
        using var store = Create(disk);
        var random = new Random(1);
        Load(store);
        store.CheckpointAll();
        var treeBytes = store.FileBytes;
        // The second pin is taken later and released first.
        using var pin = store.Pin();
        var before = Content(pin);
        CheckpointPin? second = null;
        for (var checkpoint = 0; checkpoint < 60; checkpoint++)
        {
            PutAndCheckpoint(store, random);
            if (checkpoint == 5)
                second = store.Pin();
            if (checkpoint == 30)
                second!.Dispose();
        }
        // The pages of the pins, the newest ones, and those that the older meta page reaches.
        Assert.True(store.FileBytes <= 5 * treeBytes, $"The file has {store.FileBytes} bytes, and had {treeBytes} with the same keys.");
        Assert.True(store.PinnedBytes <= treeBytes + (1 << 20), $"{store.PinnedBytes} bytes are pinned, and the checkpoint has {treeBytes}.");
        Assert.Equal(before, Content(pin));
        store.Verify();
        pin.Dispose();
        Put(store, 0, 0);
        Assert.Equal(0, store.PinnedBytes);
        store.Verify();
    }

    // Each batch examined all runs that pins keep, although none could be freed. During a snapshot's transfer these were tens of thousands, on a
    // thread that other shards share.
    [Fact]
    public void Begin_WhileAPinKeepsManyRuns_TakesNoLongerThanWithFew()
    {
        using var disk = new SimulatedDisk();
        using var store = Create(disk);
        Rewrite(every: 1);
        using var pin = store.Pin();
        Rewrite(every: Keys / 10);
        RetireAll();
        Assert.True(store.PinnedBytes > 0);
        var few = BestBegin();
        // No two pages are adjacent, because they would form one run.
        Rewrite(every: 8);
        RetireAll();
        Assert.True(store.PinnedBytes > 2_000 * Page.Bytes, $"Only {store.PinnedBytes} bytes are pinned.");
        // Other load on the machine may disturb some tries, but not all.
        for (var tries = 1; BestBegin() is var many && many > 5 * few; tries++)
            Assert.True(tries < 50, $"Begin took {many} ticks with many runs and {few} with few, in each of {tries} tries.");

        void Rewrite(int every)
        {
            store.Apply(batch =>
            {
                for (var key = 0; key < Keys; key += every)
                    batch.Put(TreeId.Kv, ByteKeys.Of(key), new byte[1_900]);
            });
            store.CheckpointAll();
        }

        void RetireAll()
        {
            for (var checkpoint = 0; checkpoint < 2; checkpoint++)
            {
                Put(store, 0, 1);
                store.CheckpointAll();
            }
        }

        long BestBegin()
        {
            var best = long.MaxValue;
            for (var begin = 0; begin < 300; begin++)
            {
                var started = System.Diagnostics.Stopwatch.GetTimestamp();
                var batch = store.Begin();
                best = Math.Min(best, System.Diagnostics.Stopwatch.GetTimestamp() - started);
                store.Roots.Abort(batch);
            }
            return best;
        }
    }

    [Fact]
    public void SeveralReaders_OfDifferentAge_EachReadsItsStateToTheEnd() => Seeds.Run(10, random =>
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
    public void SeveralPins_OfDifferentAge_EachIsReadAsItWasToTheEnd() => Seeds.Run(5, random =>
    {
        using var disk = new SimulatedDisk();
        using var store = Create(disk);
        var pins = new List<(CheckpointPin Pin, string Content)>();
        for (var step = 0; step < 200; step++)
        {
            store.Apply(batch =>
            {
                for (var put = random.Next(1, 30); put > 0; put--)
                    batch.Put(TreeId.Kv, BitConverter.GetBytes(random.Next(600)), new byte[random.Next(10) == 0 ? 9_000 : 100]);
            });
            using ReadSnapshot? reader = random.Next(3) == 0 ? store.Roots.OpenSnapshot() : null;
            if (random.Next(2) == 0)
                TryCheckpoint();
            if (random.Next(5) == 0 && pins.Count < 5)
            {
                var pin = store.Pin();
                pins.Add((pin, Content(pin)));
            }
            if (random.Next(8) == 0 && pins.Count > 0)
                Unpin(random.Next(pins.Count));
        }
        while (pins.Count > 0)
            Unpin(0);
        Put(store, 0, 0);
        Assert.Equal(0, store.PinnedBytes);
        store.Verify();

        void Unpin(int index)
        {
            Assert.Equal(pins[index].Content, Content(pins[index].Pin));
            pins[index].Pin.Dispose();
            pins.RemoveAt(index);
        }

        // Some checkpoints find no space and are abandoned. Some change nothing but the map.
        void TryCheckpoint()
        {
            if (store.BeginCheckpoint(
                covered => new CheckpointPosition(covered, default, 0), Etag.MaxValue, repeats: random.Next(2) == 0) is not { } checkpoint)
                return;
            var fullAt = random.Next(1, 8);
            disk.Fault = call => call.Operation == "Write" && --fullAt == 0 ? DiskFault.NoRoom : DiskFault.None;
            while (true)
            {
                try
                {
                    checkpoint.Write();
                    break;
                }
                catch (StorageIoException)
                {
                    if (!checkpoint.MayBeAbandoned)
                        continue;
                    store.AbandonCheckpoint(checkpoint);
                    return;
                }
            }
            store.FinishCheckpoint(checkpoint);
            if (random.Next(4) == 0)
                TryCheckpoint();
        }
    });

    [Fact]
    public void OldestSnapshotAge_SnapshotsComeAndGo_CountsFromTheFirstLook()
    {
        using var replica = new ReplicaBench(new(1));
        Assert.Equal(TimeSpan.Zero, replica.Store.Statistics.OldestSnapshotAge());
        var old = replica.Store.OpenSnapshot();
        Assert.Equal(TimeSpan.Zero, Later(5));
        Assert.Equal(TimeSpan.FromSeconds(5), Later(5));
        using var young = replica.Store.OpenSnapshot();
        Assert.Equal(TimeSpan.FromSeconds(6), Later(1));
        old.Dispose();
        // Another snapshot takes the slot. Its age starts at zero.
        using var other = replica.Store.OpenSnapshot();
        Assert.Equal(TimeSpan.FromSeconds(2), Later(2));

        TimeSpan Later(int seconds)
        {
            replica.Time.Advance(TimeSpan.FromSeconds(seconds));
            return replica.Store.Statistics.OldestSnapshotAge();
        }
    }

    [Fact]
    public void PinnedBytes_BeyondTheirBound_AskTheReaderThatHoldsMostToEnd()
    {
        using var disk = new SimulatedDisk();
        using var store = Create(disk, pinnedBytesMax: 256 << 10);
        Load(store);
        using var old = store.Roots.OpenSnapshot();
        Put(store, 1, 1);
        using var young = store.Roots.OpenSnapshot();
        for (var put = 0; put < 300 && !old.IsTooOld; put++)
            Put(store, put * 60, 1);
        Assert.True(old.IsTooOld);
        Assert.False(young.IsTooOld);
    }

    // Readers were ended, one after the other, for bytes that a pin kept. Ending them freed nothing.
    [Fact]
    public void PinnedBytes_KeptByAPin_EndNoReader()
    {
        using var disk = new SimulatedDisk();
        using var store = Create(disk, pinnedBytesMax: 1 << 20);
        Load(store);
        store.CheckpointAll();
        using var pin = store.Pin();
        // This reader is as old as the pin. What it reaches does not count either until the pin is released.
        using var old = store.Roots.OpenSnapshot();
        LeaveAll(store);
        Assert.True(store.PinnedBytes > 1 << 20);
        using var young = store.Roots.OpenSnapshot();
        for (var put = 0; put < 3; put++)
            Put(store, put, 2);
        Assert.False(old.IsTooOld || young.IsTooOld);
        pin.Dispose();
        Put(store, 0, 3);
        Assert.True(old.IsTooOld);
        Assert.False(young.IsTooOld);
    }

    // Pages of the file that a closed reader used are free only when the checkpoint in progress is finished. Until then the next reader was ended on
    // their account.
    [Fact]
    public void PinnedBytes_OfAReaderClosedDuringACheckpoint_EndNoOtherReader()
    {
        using var disk = new SimulatedDisk();
        using var store = Create(disk, pinnedBytesMax: 1 << 20);
        Load(store);
        store.CheckpointAll();
        using var old = store.Roots.OpenSnapshot();
        LeaveAll(store);
        Assert.True(old.IsTooOld);
        Put(store, 0, 2);
        using var young = store.Roots.OpenSnapshot();
        var checkpoint = store.BeginCheckpoint(covered => new CheckpointPosition(covered, default, 0), Etag.MaxValue)!;
        old.Dispose();
        Put(store, 0, 3);
        Assert.False(young.IsTooOld);
        checkpoint.Write();
        store.FinishCheckpoint(checkpoint);
        Put(store, 0, 4);
        Assert.False(young.IsTooOld);
        Assert.True(store.PinnedBytes < 1 << 20, $"{store.PinnedBytes} bytes are pinned.");
    }

    // Scratch memory kept the largest size that it ever had.
    [Fact]
    public void Checkpoint_AfterManyChanges_ReturnsScratchMemoryToTheSystem()
    {
        using var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, "data", new PageStoreOptions { MapBytes = 1 << 29, FreeScratchBytesMax = 16 << 20 }, new byte[16]);
        store.Apply(batch =>
        {
            for (var key = 0; key < 60_000; key++)
                batch.Put(TreeId.Kv, BitConverter.GetBytes(key), new byte[900]);
        });
        Assert.True(store.ScratchReservedBytes > 50 << 20, $"{store.ScratchReservedBytes} bytes are reserved.");
        store.CheckpointAll();
        while (store.ReleaseSome())
        {
        }
        Assert.True(store.ScratchReservedBytes <= 17 << 20, $"{store.ScratchReservedBytes} bytes are reserved, and {store.ScratchBytes} in use.");
    }

    // Each large value took fresh memory from the system, and the checkpoint returned all of it.
    [Fact]
    public void Checkpoint_OfLargeValues_KeepsMemoryForTheNextOnes()
    {
        using var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, "data", new PageStoreOptions { MapBytes = 1 << 29, FreeScratchBytesMax = 8 << 20 }, new byte[16]);
        Fill(16, 1_000_000);
        store.CheckpointAll();
        while (store.ReleaseSome())
        {
        }
        var kept = store.ScratchReservedBytes;
        Assert.InRange(kept, 6 << 20, 9 << 20);
        // They are a little shorter, and there is memory for each.
        Fill(4, 950_000);
        Assert.InRange(store.ScratchReservedBytes, kept, kept + (1 << 20));
        store.CheckpointAll();
        while (store.ReleaseSome())
        {
        }
        store.ReturnFreePages();
        Assert.InRange(store.ScratchReservedBytes, 0, 1 << 20);

        void Fill(int keys, int bytes) => store.Apply(batch =>
        {
            for (var key = 0; key < keys; key++)
                batch.Put(TreeId.Kv, BitConverter.GetBytes(key), new byte[bytes]);
        });
    }

    [Fact]
    public void Finish_CallInterruptedByASignal_IsRepeated()
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

    private static PageStore Create(SimulatedDisk disk, long? pinnedBytesMax = null)
    {
        var options = new PageStoreOptions { MapBytes = 1 << 28 };
        return PageStore.Create(disk, "data", pinnedBytesMax is { } most ? options with { PinnedBytesMax = most } : options, new byte[16]);
    }

    private static void Load(PageStore store) => PutAll(store, valueBytes: 100);

    /// <summary>Rewrites all keys, so that finished checkpoints free all earlier pages of the file.</summary>
    private static void LeaveAll(PageStore store)
    {
        PutAll(store, valueBytes: 99);
        for (var checkpoint = 0; checkpoint < 3; checkpoint++)
        {
            Put(store, 0, (byte)checkpoint);
            store.CheckpointAll();
        }
    }

    private static void PutAndCheckpoint(PageStore store, Random random)
    {
        for (var put = 0; put < 60; put++)
            Put(store, random.Next(Keys), (byte)put);
        store.CheckpointAll();
    }

    private static void PutAll(PageStore store, int valueBytes) => store.Apply(batch =>
    {
        for (var key = 0; key < Keys; key++)
            batch.Put(TreeId.Kv, BitConverter.GetBytes(key), new byte[valueBytes]);
    });

    private static void Put(PageStore store, int key, byte value) =>
        store.Apply(batch => batch.Put(TreeId.Kv, BitConverter.GetBytes(key), Enumerable.Repeat(value, 100).ToArray()));

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
