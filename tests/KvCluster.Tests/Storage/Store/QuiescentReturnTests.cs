using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>What a quiescent store gives back: journal that nobody needs, and free pages between pages in use.</summary>
public sealed class QuiescentReturnTests
{
    private const int Keys = 800;

    /// <summary>Two whole pages, because what does not fit into the first is too long for a leaf.</summary>
    private const int ValueBytes = 12_400;

    private const string Data = $"{StoreBench.DirectoryPath}/state-00000001/data";
    private static readonly StoreOptions Options = StoreBench.SmallOptions with { SegmentBytesMax = 1 << 20 };

    public static TheoryData<string> Modes => new(Enum.GetNames<UnsyncedWrites>());

    /// <summary>
    /// An embedded store kept up to three large segments, and the journal since its older checkpoint, and a file loaded in random order was twice as large as
    /// its pages in use.
    /// </summary>
    [Fact]
    public void QuiescentStore_AfterRandomChanges_KeepsOneSmallSegmentAndFewFreePages()
    {
        using var bench = new StoreBench(options: Options);
        bench.Open();
        Load(bench);
        var expected = bench.ReadAllKeys();
        Assert.True(bench.Store.Statistics.DataAllocatedBytes > (bench.Store.Pages.Free.UsedPages * Page.Bytes) + (5 << 20));
        using (var snapshot = bench.Standalone.OpenSnapshot())
        {
            Pass(bench, 10);
            Assert.Equal(Options.SegmentBytesMin, bench.Store.Statistics.JournalBytes);
            Assert.Equal(bench.Store.Pages.Covered.Etag, bench.Store.Pages.CoveredByOlderMeta.Etag);
        }
        // The reader may have held what a checkpoint replaced.
        Pass(bench, 4);
        var journal = bench.Disk.List($"{StoreBench.DirectoryPath}/state-00000001/journal")
            .Select(name => $"{StoreBench.DirectoryPath}/state-00000001/journal/{name}").Sum(LengthOf);
        Assert.True(journal <= 2 * Options.SegmentBytesMin, $"The journal's files have {journal} bytes.");
        // Two rest reusable for the next checkpoints.
        Assert.InRange(bench.Store.Statistics.DataAllocatedBytes - (bench.Store.Pages.Free.UsedPages * Page.Bytes), 0, 3 << 20);
        bench.Store.Pages.Verify();
        Assert.Equal(expected, bench.ReadAllKeys());
        // Nothing is left to do, so nothing is done any more.
        var calls = bench.Disk.Calls;
        Pass(bench, 20);
        Assert.Equal(calls, bench.Disk.Calls);
        bench.Close();
        bench.Open();
        Assert.Equal(expected, bench.ReadAllKeys());
        Load(bench);
        bench.Store.Pages.Verify();

        long LengthOf(string path)
        {
            using var file = bench.Disk.Open(path, new KvCluster.Storage.Files.StorageFileOptions(KvCluster.Storage.Files.StorageFileMode.OpenExisting));
            return file.Length;
        }
    }

    /// <summary>
    /// The last checkpoint had placed each leaf anew, and both meta pages had it, so that no other one followed. What it took was kept for a next one like it,
    /// and a store whose keys were overwritten at random kept its size for good.
    /// </summary>
    [Fact]
    public void QuiescentStore_WhoseLastCheckpointPlacedEachLeaf_KeepsFewFreePages()
    {
        var options = Options with { Pages = Options.Pages with { OlderBytesMax = 0, DeltaBytesMax = ScratchPool.BlockBytesMax, StaysWhole = null } };
        using var bench = new StoreBench(options: options);
        bench.Open();
        for (var round = 0; round < 3; round++)
        {
            // A value of each leaf.
            for (var index = 0; index < 10 * Keys; index += 100)
            {
                var first = index;
                bench.Write(request =>
                {
                    for (var key = first; key < first + 100; key += round == 0 ? 1 : 5)
                        request.Put(StoreBench.Text($"key-{key:00000}"), new byte[1_000]);
                });
            }
            bench.Checkpoint();
        }
        Assert.Equal(bench.Store.Pages.Covered.Etag, bench.Store.Pages.CoveredByOlderMeta.Etag);
        Assert.True(bench.Store.Statistics.DataAllocatedBytes > (bench.Store.Pages.Free.UsedPages * Page.Bytes) + (6 << 20));
        Pass(bench, 10);
        Assert.InRange(bench.Store.Statistics.DataAllocatedBytes - (bench.Store.Pages.Free.UsedPages * Page.Bytes), 0, 3 << 20);
        bench.Store.Pages.Verify();
    }

    /// <summary>A reader keeps its pages while the pages around them are given back.</summary>
    [Fact]
    public void QuiescentStore_WithALongReader_LeavesWhatItReaches()
    {
        using var bench = new StoreBench(options: Options);
        bench.Open();
        Load(bench);
        using var snapshot = bench.Standalone.OpenSnapshot();
        var before = Sum();
        for (var index = 0; index < Keys; index++)
            bench.Write(request => request.Delete(KeyOf(index)));
        Pass(bench, 10);
        Assert.Equal(before, Sum());
        bench.Store.Pages.Verify();

        (int Count, long Bytes) Sum()
        {
            var (count, bytes) = (0, 0L);
            using var cursor = snapshot.Cursor(TreeId.Kv);
            while (cursor.MoveNext())
            {
                count++;
                foreach (var value in cursor.Value)
                    bytes += value;
            }
            return (count, bytes);
        }
    }

    /// <summary>A node may have a thousand replicas that nobody uses, or uses any more. With the sizes of nodes each takes less than 256 KiB.</summary>
    [Fact]
    public void QuiescentStore_WithTheSizesOfNodes_HasOneSmallSegmentWhenNewAndAfterUse()
    {
        const long Small = 128 << 10;
        using var bench = new StoreBench(options: new StoreOptions { ReserveBytes = 4096, RetainedJournalBytes = 0 });
        bench.Open();
        Assert.Equal(Small, bench.Store.Statistics.JournalBytes);
        Assert.InRange(bench.Store.Statistics.DataAllocatedBytes, 1, 64 << 10);
        for (var index = 0; index < 400; index++)
            Assert.Equal(WriteOutcome.Applied, bench.Write(request => request.Put(KeyOf(index % 8), new byte[ValueBytes])).Outcome);
        Assert.True(bench.Store.Statistics.JournalBytes > 4 << 20, $"The journal has {bench.Store.Statistics.JournalBytes} bytes.");
        Pass(bench, 4);
        Assert.Equal(Small, bench.Store.Statistics.JournalBytes);
    }

    /// <summary>A store that is used again in the middle goes on with that, and gives back what is left at the next quiescent period.</summary>
    [Fact]
    public void QuiescentStore_UsedAgain_StopsGivingBackUntilItIsQuiescent()
    {
        using var bench = new StoreBench(options: Options);
        bench.Open();
        Load(bench);
        for (var round = 0; round < 40; round++)
        {
            bench.Time.Advance(Options.CheckpointQuiescentTime);
            for (var steps = 0; steps < 5 + round; steps++)
                bench.Step();
            Assert.Equal(WriteOutcome.Applied, bench.Write(request => request.Put(KeyOf(round), new byte[ValueBytes])).Outcome);
        }
        Pass(bench, 10);
        Assert.InRange(bench.Store.Statistics.DataAllocatedBytes - (bench.Store.Pages.Free.UsedPages * Page.Bytes), 0, 3 << 20);
        Assert.Equal(Options.SegmentBytesMin, bench.Store.Statistics.JournalBytes);
        bench.Store.Pages.Verify();
    }

    /// <summary>Power is lost at every call while a store becomes small, except that only some of the calls that make holes are looked at.</summary>
    [Theory]
    [MemberData(nameof(Modes))]
    [Trait("Turn", "7")]
    public void Crash_AtEveryCallOfAQuiescentStore_LosesNothing(string mode)
    {
        using var loaded = new StoreBench(options: Options);
        loaded.Open();
        Load(loaded);
        var expected = loaded.ReadAllKeys();
        loaded.Close();
        // What an open does is the same every time.
        for (int call = 1, isReached = 1; isReached == 1; call += call < 60 ? 1 : 29)
        {
            using var disk = loaded.Disk.Copy();
            using (var bench = new StoreBench(disk, options: Options))
            {
                bench.Open();
                bench.Write(request => request.Put(KeyOf(0), new byte[100]));
                disk.CrashAtCall = disk.Calls + call;
                Pass(bench, 4);
                isReached = disk.IsOff ? 1 : 0;
            }
            disk.Restart(Enum.Parse<UnsyncedWrites>(mode), call);
            using var reopened = new StoreBench(disk, options: Options);
            reopened.Open();
            Assert.Equal(Keys / 2, reopened.ReadAllKeys().Count(pair => expected.ContainsKey(pair.Key)));
            reopened.Store.Pages.Verify();
            Assert.Equal(WriteOutcome.Applied, reopened.Write(request => request.Put("last"u8, "1"u8)).Outcome);
        }
    }

    /// <summary>The older meta page still counts if the newest one is damaged, so the journal since then stays until both cover it (S5).</summary>
    [Fact]
    [Trait("Turn", "7")]
    public void Open_NewestMetaPageDamagedWhileTheStoreBecomesQuiescent_ReplaysFromTheOther()
    {
        using var bench = new StoreBench(options: Options);
        bench.Open();
        Load(bench);
        for (var index = 0; index < 60; index++)
            bench.Write(request => request.Put(KeyOf(index), new byte[2_000]));
        var expected = bench.ReadAllKeys();
        var (calls, covered) = (0, 0);
        for (var round = 0; round < 4; round++)
        {
            bench.Time.Advance(Options.CheckpointQuiescentTime);
            while (bench.Step())
            {
                // Between two changes of the disk it is the same.
                if (bench.Disk.Calls == calls || covered > 10)
                    continue;
                calls = bench.Disk.Calls;
                for (var page = 0; page < 2; page++)
                {
                    using var disk = bench.Disk.Copy();
                    disk.FlipBit(Data, (page * Page.Bytes) + 40);
                    using var reopened = new StoreBench(disk, options: Options);
                    reopened.Open();
                    Assert.Equal(expected.Keys, reopened.ReadAllKeys().Keys);
                }
                covered += bench.Store.Pages.Covered.Etag == bench.Store.Pages.CoveredByOlderMeta.Etag ? 1 : 0;
            }
        }
        Assert.True(covered > 0, "The second checkpoint was not written.");
    }

    /// <summary>On a full disk nothing is begun, and puts go through again when there is space.</summary>
    [Fact]
    public void QuiescentStore_OnAFullDisk_StaysAsItIs()
    {
        using var bench = new StoreBench(options: Options);
        bench.Open();
        Load(bench);
        var expected = bench.ReadAllKeys();
        bench.Disk.CapacityBytes = bench.Disk.UsedBytes;
        Pass(bench, 10);
        Assert.Equal(expected, bench.ReadAllKeys());
        bench.Disk.CapacityBytes = long.MaxValue;
        Pass(bench, 10);
        Assert.False(bench.Store.Space.IsDiskFull);
        Assert.Equal(WriteOutcome.Applied, bench.Write(request => request.Put("last"u8, "1"u8)).Outcome);
        bench.Store.Pages.Verify();
    }

    /// <summary>Every second key remains, in the order of the keys, so that free runs between them are short.</summary>
    private static void Load(StoreBench bench)
    {
        for (var index = 0; index < Keys; index += 20)
        {
            var first = index;
            Assert.Equal(WriteOutcome.Applied, bench.Write(request =>
            {
                for (var key = first; key < first + 20; key++)
                    request.Put(KeyOf(key), new byte[ValueBytes]);
            }).Outcome);
        }
        bench.Checkpoint();
        for (var index = 0; index < Keys; index += 20)
        {
            var first = index;
            bench.Write(request =>
            {
                for (var key = first; key < first + 20; key += 2)
                    request.Delete(KeyOf(key));
            });
        }
        bench.Checkpoint();
    }

    private static byte[] KeyOf(int index) => StoreBench.Text($"key-{index:0000}");

    private static void Pass(StoreBench bench, int idleTimes)
    {
        for (var step = 0; step < 4 * idleTimes && !bench.Disk.IsOff; step++)
        {
            bench.Time.Advance(Options.CheckpointQuiescentTime / 4);
            bench.RunUntilIdle();
        }
    }
}
