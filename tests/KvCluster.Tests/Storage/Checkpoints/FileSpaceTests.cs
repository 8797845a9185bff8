using KvCluster.Disk;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Checkpoints;

/// <summary>The data file takes about the space of its live pages, and gives back what it does not need.</summary>
public sealed class FileSpaceTests
{
    /// <summary>Two whole pages, because what does not fit into the first is too long for a leaf.</summary>
    private const int ValueBytes = 13_000;

    // Runs were taken from the two longest extents only, so the file grew to 3.5 times its live pages while most of it was free.
    [Theory]
    [InlineData(ValueBytes)]
    [InlineData(5_000)]
    [InlineData(100_000)]
    public void Overwriting_ATenthPerCheckpoint_KeepsTheFileNearItsLivePages(int valueBytes)
    {
        using var store = new ModelStore();
        var count = 12_000_000 / valueBytes;
        var random = new Random(1);
        Put(store, Enumerable.Range(0, count), valueBytes);
        store.Checkpoint();
        for (var round = 0; round < 20; round++)
        {
            Put(store, Enumerable.Range(0, count / 10).Select(_ => random.Next(count)), valueBytes);
            store.Checkpoint();
        }
        store.Store.Verify();
        var live = store.Store.Free.UsedRuns().Sum(run => run.Count) * 8192.0;
        Assert.InRange(store.Store.FileBytes / live, 1, 1.3);
    }

    /// <summary>The pages of what remains are where they were, so the file gets holes. When nothing remains its end is cut.</summary>
    [Fact]
    public void Deletes_WithCheckpoints_GiveSpaceBack()
    {
        using var store = new ModelStore();
        Put(store, Enumerable.Range(0, 1_000), ValueBytes);
        store.Checkpoint();
        var (length, used) = (store.Store.FileBytes, store.Disk.UsedBytes);
        Assert.True(length > 16_000_000);
        Delete(store, Enumerable.Range(50, 900));
        GoOn();
        Assert.True(store.Disk.UsedBytes < used - 12_000_000, $"{store.Disk.UsedBytes} of {used} bytes are still allocated.");
        Delete(store, Enumerable.Range(0, 50).Concat(Enumerable.Range(950, 50)));
        GoOn();
        Assert.True(store.Store.FileBytes < 3_000_000, $"The file has {store.Store.FileBytes} bytes, before it had {length}.");
        store.Reopen();
        store.CheckPublished();
        store.Store.Verify();
        Put(store, Enumerable.Range(0, 1_000), ValueBytes);
        store.Checkpoint();
        store.CheckPublished();
        store.Store.Verify();

        void GoOn()
        {
            for (var round = 0; round < 4; round++)
            {
                store.Checkpoint();
                Put(store, [2_000], 100 + round);
            }
            store.Store.Verify();
        }
    }

    /// <summary>Whatever a reader or a pin still reaches stays readable while the file shrinks around it.</summary>
    [Theory]
    [InlineData(FreeMap.HolePagesMin)]
    [InlineData(FreeMap.HolePagesMinAny)]
    public void GivingBack_UnderAReaderAndAPin_LeavesWhatTheyReach(int holePagesMin)
    {
        using var store = new ModelStore { HolePagesMin = holePagesMin };
        Put(store, Enumerable.Range(0, 600), ValueBytes);
        store.Checkpoint();
        store.OpenReader();
        var pin = store.Store.Pin();
        var before = ReadAll(pin);
        Delete(store, Enumerable.Range(0, 600));
        for (var round = 0; round < 4; round++)
        {
            store.Checkpoint();
            Put(store, [round], 50);
        }
        Assert.Equal(before, ReadAll(pin));
        store.CloseReader(0);
        for (var round = 0; round < 2; round++)
        {
            Put(store, [round], 60);
            store.Checkpoint();
        }
        Assert.Equal(before, ReadAll(pin));
        pin.Dispose();
        for (var round = 0; round < 4; round++)
        {
            Put(store, [round], 70);
            store.Checkpoint();
        }
        Assert.True(store.Store.FileBytes < 3_000_000, $"The file has {store.Store.FileBytes} bytes.");
        store.Store.Verify();
    }

    /// <summary>The older meta page still counts if the newest is damaged, so the file is not cut below what either of them records.</summary>
    [Fact]
    public void Open_WithEitherMetaPageDamagedWhileTheFileShrinks_OpensTheOther()
    {
        using var store = new ModelStore();
        Put(store, Enumerable.Range(0, 400), ValueBytes);
        store.Checkpoint();
        var length = store.Store.FileBytes;
        Delete(store, Enumerable.Range(0, 400));
        for (var round = 0; round < 6; round++)
        {
            store.Checkpoint();
            for (var page = 0; page < 2; page++)
            {
                using var disk = store.Disk.Copy();
                disk.FlipBit("data", (page * 8192) + 40);
                using var opened = KvCluster.Storage.DataFile.PageStore.Open(disk, "data", store.Options);
                opened.Verify();
            }
            Put(store, [round], 100);
        }
        Assert.True(store.Store.FileBytes < length / 2, $"The file has {store.Store.FileBytes} bytes, before it had {length}.");
    }

    /// <summary>A first checkpoint is one stretch of the file. Later ones fill the holes that single values left.</summary>
    [Fact]
    public void CheckpointCounts_OfAnEmptyAndAFullFile_CountPagesAndSeeks()
    {
        using var store = new ModelStore();
        Put(store, Enumerable.Range(0, 500), ValueBytes);
        store.Checkpoint();
        var counts = store.Store.CheckpointCounts;
        // Two for each value, the leaves and the branch above them, two for the map.
        Assert.InRange(counts.Pages, 1_003, 1_020);
        Assert.InRange(counts.Seeks, 1, 3);
        Assert.InRange(counts.Writes, 5, 9);
        for (var round = 0; round < 6; round++)
        {
            Put(store, Enumerable.Range(0, 20).Select(index => index * 25), ValueBytes);
            store.Checkpoint();
        }
        Assert.InRange(store.Store.CheckpointCounts.Pages, 43, 60);
        Assert.InRange(store.Store.CheckpointCounts.Seeks, 2, 40);
    }

    // Gigabytes were given back by one call, for which accesses to the file waited.
    [Fact]
    [Trait("Turn", "5")]
    public void GivingBack_ManyMegabytes_IsDoneInParts()
    {
        using var store = new ModelStore();
        Put(store, Enumerable.Range(0, 7_000), ValueBytes);
        store.Checkpoint();
        Delete(store, Enumerable.Range(0, 6_900));
        var parts = new List<KvCluster.Storage.DataFile.FilePart>();
        for (var round = 0; round < 6; round++)
        {
            Assert.True(store.BeginCheckpoint());
            store.WriteCheckpoint();
            store.FinishCheckpoint(givesBack: false);
            while (store.Store.TryChooseSurplus(out var part))
            {
                store.GiveBack(part);
                parts.Add(part);
            }
            Put(store, Enumerable.Range(6_900, 100).Append(20_000 + round), 100);
        }
        Assert.All(parts, part => Assert.InRange(part.Bytes, 0, 16 << 20));
        Assert.True(parts.Count(part => part.IsEnd) > 2 && parts.Count(part => !part.IsEnd && part.Bytes > 0) > 4, string.Join(", ", parts));
        Assert.True(store.Disk.UsedBytes < 8_000_000, $"{store.Disk.UsedBytes} bytes are still allocated.");
        store.CheckPublished();
        store.Store.Verify();
    }

    /// <summary>After random changes most free runs have a few pages. Holes of that length are found again after an open, and taken again.</summary>
    [Fact]
    public void GivingBack_SinglePages_LeavesWhatIsInUse()
    {
        using var store = new ModelStore { HolePagesMin = FreeMap.HolePagesMinAny };
        var random = new Random(1);
        for (var round = 0; round < 4; round++)
        {
            Put(store, Enumerable.Range(0, 1_500), 4_000);
            store.Checkpoint();
            Delete(store, Enumerable.Range(0, 1_500).Where(_ => random.Next(3) > 0));
            store.Checkpoint();
            Put(store, [2_000], round);
            store.Checkpoint();
            store.Store.Verify();
            store.CheckPublished();
            var used = store.Store.Free.UsedPages * 8192;
            Assert.True(store.Disk.UsedBytes < used + (4 << 20), $"{store.Disk.UsedBytes} bytes are allocated, and {used} are in use.");
            if (round == 1)
            {
                store.Reopen();
                store.CheckPublished();
            }
        }
    }

    /// <summary>Power is lost at every call of checkpoints that cut the end of the file and make holes.</summary>
    [Theory]
    [InlineData(0)]
    [InlineData(1)]
    [InlineData(2)]
    [InlineData(3)]
    [Trait("Turn", "2")]
    public void Crash_AtEveryCallWhileTheFileShrinks_LeavesTheOldOrTheNewState(int unsynced)
    {
        // The checkpoint after two rounds makes holes, the one after four records a shorter file, and the one after five cuts it.
        foreach (var rounds in (int[])[1, 2, 4, 5])
        {
            for (var call = 1; CrashAt(call, rounds, (UnsyncedWrites)unsynced); call++)
            {
            }
        }
    }

    /// <summary>The space of a hole may be gone when the next checkpoint needs it. That is a full disk like any other.</summary>
    [Fact]
    public void Write_IntoAHoleOnAFullDisk_PutsTheCheckpointOff()
    {
        using var store = new ModelStore();
        Put(store, Enumerable.Range(0, 400), ValueBytes);
        store.Checkpoint();
        Delete(store, Enumerable.Range(0, 350));
        for (var round = 0; round < 3; round++)
        {
            store.Checkpoint();
            Put(store, [1_000], 100 + round);
        }
        store.Disk.CapacityBytes = store.Disk.UsedBytes + 100_000;
        Put(store, Enumerable.Range(0, 300), ValueBytes);
        Assert.True(store.BeginCheckpoint());
        Assert.True(Assert.Throws<StorageIoException>(store.WriteCheckpoint).IsDiskFull);
        store.AbandonCheckpoint();
        store.CheckPublished();
        store.Store.Verify();
        store.Disk.CapacityBytes = long.MaxValue;
        store.Checkpoint();
        store.Store.Verify();
        store.Reopen();
        store.CheckPublished();
    }

    // The longest free extents were taken first, also holes, so a checkpoint on a full disk was put off although free pages had space.
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public void Write_OnAFullDiskWithHoles_TakesFreePagesThatHaveSpace(bool reopened)
    {
        using var store = new ModelStore();
        Put(store, Enumerable.Range(0, 1_000), ValueBytes);
        store.Checkpoint();
        Delete(store, Enumerable.Range(100, 800));
        for (var round = 0; round < 4; round++)
        {
            store.Checkpoint();
            Put(store, [2_000], 100 + round);
        }
        store.Checkpoint();
        var holes = store.Store.FileBytes - store.Disk.UsedBytes;
        Assert.True(holes > 4_000_000, $"Of the file's {store.Store.FileBytes} bytes {store.Disk.UsedBytes} are allocated.");
        if (reopened)
            store.Reopen();
        store.Disk.CapacityBytes = store.Disk.UsedBytes;
        var length = store.Store.FileBytes;
        for (var round = 0; round < 10; round++)
        {
            Delete(store, Enumerable.Range(round * 10, 10));
            Put(store, Enumerable.Range(3_000, 4), ValueBytes);
            store.Checkpoint();
        }
        Assert.True(store.Store.FileBytes <= length, $"The file grew from {length} to {store.Store.FileBytes} bytes.");
        store.CheckPublished();
        store.Store.Verify();
    }

    private static bool CrashAt(int call, int rounds, UnsyncedWrites unsynced)
    {
        using var store = new ModelStore();
        Put(store, Enumerable.Range(0, 200), ValueBytes);
        store.Checkpoint();
        Delete(store, Enumerable.Range(20, 180));
        for (var round = 0; round < rounds; round++)
        {
            store.Checkpoint();
            Put(store, [20 + round], 100);
        }
        Assert.True(store.BeginCheckpoint());
        var length = store.Store.FileBytes;
        var crashed = false;
        store.Disk.CrashAtCall = store.Disk.Calls + call;
        try
        {
            store.EndCheckpoint();
        }
        catch (SimulatedCrashException)
        {
            crashed = true;
        }
        Assert.True(crashed || rounds != 5 || store.Store.FileBytes < length - 500_000, $"The file has {store.Store.FileBytes} bytes, before the checkpoint it "
            + $"had {length}.");
        store.ReopenAfterCrashInCheckpoint(unsynced, seed: call);
        store.CheckPublished();
        store.Store.Verify();
        Put(store, Enumerable.Range(50, 30), ValueBytes);
        store.Checkpoint();
        store.CheckPublished();
        store.Store.Verify();
        return crashed;
    }

    private static byte[] ReadAll(KvCluster.Storage.DataFile.CheckpointPin pin)
    {
        using var pages = new AlignedBuffer((int)pin.Runs.Sum(run => run.Count) * 8192);
        var at = 0;
        foreach (var run in pin.Runs)
        {
            pin.ReadPages(run.First, pages.Span.Slice(at, (int)run.Count * 8192));
            at += (int)run.Count * 8192;
        }
        return pages.Span.ToArray();
    }

    private static void Put(ModelStore store, IEnumerable<int> keys, int valueBytes)
    {
        store.Batch(batch =>
        {
            foreach (var key in keys)
                batch.Put(TreeId.Kv, ByteKeys.Of(key), new byte[valueBytes]);
        });
        store.Publish();
    }

    private static void Delete(ModelStore store, IEnumerable<int> keys)
    {
        store.Batch(batch =>
        {
            foreach (var key in keys)
                batch.Delete(TreeId.Kv, ByteKeys.Of(key));
        });
        store.Publish();
    }
}
