using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Storage.Files;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Shared;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>When segments are synced: before blocks with their records are overwritten, and before somebody may move their directory.</summary>
public sealed class SharedJournalSyncTests
{
    private const int ValueBytes = 50_000;

    /// <summary>Rounds of two stores after which each file was overwritten.</summary>
    private const int RoundsOfAllFiles = 50;
    private static readonly StoreOptions Large =
        StoreBench.SmallOptions with { SegmentBytesFirst = 256 << 10, SegmentBytesMin = 256 << 10, SegmentBytesMax = 256 << 10 };

    /// <summary>A store is used no more, and the blocks with its last records are overwritten.</summary>
    [Theory]
    [InlineData(1)]
    [InlineData(2)]
    public void Blocks_AreOverwrittenOnlyAfterTheirSegmentsAreSynced(int lanes)
    {
        using var bench = new SharedBench(lanes: lanes, options: Large).Open();
        bench.WriteTogether(ValueBytes, 0, 1, 2);
        OverwriteFiles(bench);
        LosePower(bench);
        Assert.Equal(1, bench[0].Count);
    }

    /// <summary>
    /// A segment is synced while records of a later block are being written into it. That sync need not have them, so another one is due before that block is
    /// overwritten.
    /// </summary>
    [Fact]
    public void SegmentWrittenDuringItsSync_IsSyncedAgain()
    {
        using var bench = new SharedBench(
            lanes: 1, options: Large with { SegmentBytesFirst = 2 << 20, SegmentBytesMin = 2 << 20, SegmentBytesMax = 2 << 20 }).Open();
        var count = 0;
        while (bench.Syncs.Count == 0 || SharedBench.BlocksOf(bench.Disk)[^1].Path == $"{SharedBench.Root}/shared/0")
        {
            bench.WriteTogether(ValueBytes, bench.RunButSyncs, 0, 1, 2);
            count++;
        }
        // The oldest file is full, and its segments are about to be synced.
        var (path, at, block) = SharedBench.BlocksOf(bench.Disk)[^1];
        var entries = SharedBlock.ReadDirectory(bench.Disk.ReadAll(path).AsMemory(at + SharedBlock.HeaderBytes, block.DirectoryBytes))!;
        var segment = $"{SharedBench.Root}/{System.Text.Encoding.UTF8.GetString(entries.Single(static entry => entry.Replica.Value == 1).Name.Span)}";
        var synced = new List<string>();
        bench.Disk.Fault = call =>
        {
            if (call.Operation == "Sync")
                synced.Add(call.Path);
            return DiskFault.None;
        };
        bench.Disk.DuringWrite = written =>
        {
            if (written != segment)
                return;
            bench.Disk.DuringWrite = null;
            while (bench.Syncs.RunOne())
            {
            }
        };
        bench.WriteTogether(ValueBytes, bench.RunButSyncs, 0, 1, 2);
        bench.Disk.Fault = null;
        Assert.Contains(segment, synced);
        bench.RunUntilIdle();
        OverwriteFiles(bench);
        LosePower(bench);
        Assert.Equal(count + 1, bench[0].Count);
    }

    /// <summary>
    /// Zeros in the next segment make its durable writes faster. Records that a block has made durable are not such writes, so for them the zeros would be
    /// written in vain.
    /// </summary>
    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public void NextSegment_IsFilledForDurableWritesOnly(bool areShared)
    {
        const int RoundsInOneSegment = 4;
        // The next segment is longer than the spare that is used for it.
        using var bench = new SharedBench(lanes: 1, options: Large with { SegmentBytesMax = 512 << 10 }).Open();
        var written = new HashSet<string>();
        bench.Disk.Fault = call =>
        {
            if (call.Operation == "Write" && call.Path.StartsWith(SharedBench.DirectoryOf(0), StringComparison.Ordinal)
                && call.Path.Contains("/journal/", StringComparison.Ordinal))
                written.Add(call.Path);
            return DiskFault.None;
        };
        for (var round = 0; round < RoundsInOneSegment; round++)
        {
            if (areShared)
            {
                bench.WriteTogether(ValueBytes, 0, 1, 2);
                continue;
            }
            var answer = bench[0].SubmitNext(ValueBytes);
            bench.RunUntilIdle();
            Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome);
        }
        bench.Disk.Fault = null;
        // The current one, and the next one if zeros were written into it.
        Assert.Equal(areShared ? 1 : 2, written.Count);
    }

    /// <summary>A block is durable, but its records are not in their segments yet, where a sync would find them.</summary>
    [Fact]
    public void File_WithABlockThatIsNotInItsSegmentsYet_IsNotUsedAgain()
    {
        using var disk = new SimulatedDisk();
        disk.CreateDirectories(SharedBench.Root);
        var syncs = new StepExecutor();
        using var shared = new SharedJournal(disk, SharedBench.Root, 0x5EED, SharedBench.FileBytes, [new StepExecutor()], syncs);
        using var buffer = new AlignedBuffer(SharedBlock.BytesMax);
        Assert.False(TryWrite(out _));
        Assert.True(TryWrite(out var slow));
        var count = 0;
        while (TryWrite(out var place))
        {
            place.Leave();
            Assert.InRange(++count, 1, 20);
        }
        Assert.Equal(1ul, NeededFrom(disk));
        slow.Leave();
        Assert.False(TryWrite(out _));
        Assert.True(NeededFrom(disk) > 1);
        Assert.True(TryWrite(out var next));
        next.Leave();

        bool TryWrite(out SharedPlace place)
        {
            var block = default(SharedBlock) with { DirectoryBytes = 100, ContentBytes = 200_000 };
            var isTaken = shared.TryTake(buffer.Span, ref block, out place);
            if (isTaken)
            {
                place.WriteDurable(buffer.Span[..block.Bytes]);
                place.NoteDurable();
            }
            while (syncs.RunOne())
            {
            }
            return isTaken;
        }
    }

    /// <summary>Of two writes on their way into one segment the one of the later file may end first.</summary>
    [Fact]
    public void Segment_NotedForALaterFileFirst_IsSyncedBeforeTheEarlierIsUsedAgain()
    {
        using var bench = new SharedBench(lanes: 1).Open();
        var segment = bench.Shared.Open(
            StoreBench.PathsOf(bench.Disk, SharedBench.DirectoryOf(0)).First(static path => path.EndsWith(".journal", StringComparison.Ordinal)));
        bench.Shared.Note(segment, 2);
        bench.Shared.Note(segment, 1);
        Assert.Equal(1, segment.Since);
        bench.Shared.Release(segment);
    }

    /// <summary>A node sets a replica's directory aside, and nobody puts anything into it there.</summary>
    [Theory]
    [InlineData(1)]
    [InlineData(2)]
    public void DirectoryOfAClosedStore_Moved_IsWhole(int lanes)
    {
        using var bench = new SharedBench(lanes: lanes).Open();
        for (var round = 0; round < 5; round++)
            bench.WriteTogether(1_000, 0, 1, 2);
        var (segment, isUnsynced) = ("", false);
        bench.Disk.Fault = call =>
        {
            if (call.Operation == "Sync" && call.Path.EndsWith(".journal", StringComparison.Ordinal))
                (segment, isUnsynced) = (call.Path, true);
            return DiskFault.None;
        };
        // The background has not come to it yet.
        bench.CloseStore(0, bench.RunButSyncs);
        bench.Disk.Fault = null;
        Assert.True(isUnsynced && segment.StartsWith(SharedBench.DirectoryOf(0), StringComparison.Ordinal), $"Synced was '{segment}'.");
        bench.Disk.Rename(SharedBench.DirectoryOf(0), $"{SharedBench.Root}/aside");
        bench.Disk.SyncDirectory(SharedBench.Root);
        bench.Disk.SyncDirectory($"{SharedBench.Root}/shards");
        bench.WriteTogether(1_000, 1, 2);
        bench.Die();
        bench.Disk.Restart(UnsyncedWrites.Dropped);
        SharedBench.Settle(bench.Disk);
        bench.Disk.Rename($"{SharedBench.Root}/aside", SharedBench.DirectoryOf(0));
        bench.Open();
        Assert.Equal([5, 6, 6], bench.All.Select(static store => store.Count));
    }

    /// <summary>A node that stops leaves directories that a program without shared journals can use.</summary>
    [Fact]
    public void Stop_LeavesNoSharedJournalAndEverySegmentSynced()
    {
        using var bench = new SharedBench(lanes: 1).Open();
        for (var round = 0; round < 5; round++)
            bench.WriteTogether(1_000, 0, 1, 2);
        bench.Stop();
        Assert.False(SharedJournalReplay.IsLeft(bench.Disk, SharedBench.Root));
        Assert.Empty(bench.Disk.OpenPaths);
        bench.Disk.Restart(UnsyncedWrites.Dropped);
        Assert.All([0, 1, 2], store => Assert.Equal("sound", SharedBench.RecoveryOf(bench.Disk, store).Row));
        bench.Open();
        Assert.Equal([5, 5, 5], bench.All.Select(static store => store.Count));
    }

    /// <summary>Each segment has its second handle closed once it is synced, and not before.</summary>
    [Fact]
    public void SegmentsOfThePast_AreNotKeptOpen()
    {
        using var bench = new SharedBench(lanes: 1, options: Large).Open();
        for (var round = 0; round < RoundsOfAllFiles; round++)
            bench.WriteTogether(ValueBytes, 0, 1, 2);
        var open = bench.Disk.OpenPaths.Count(static path => path.EndsWith(".journal", StringComparison.Ordinal));
        // For each store the current one, twice, and those of which blocks in the files still have records: three files with six blocks each.
        Assert.InRange(open, 3, 3 * (2 + (18 / 4) + 1));
    }

    /// <summary>Each store alone: it writes into its own segment, durable at once, and not into the shared journal.</summary>
    [Fact]
    public void WriteAlone_GoesIntoItsSegmentDurable()
    {
        using var bench = new SharedBench(lanes: 2).Open();
        var blocks = bench.Shared.Blocks;
        for (var round = 0; round < 9; round++)
        {
            _ = bench[round % 3].SubmitNext(100);
            bench.RunUntilIdle();
        }
        Assert.Equal(blocks, bench.Shared.Blocks);
        bench.Die();
        bench.Disk.Restart(UnsyncedWrites.Dropped);
        bench.Disk.DeleteDirectory($"{SharedBench.Root}/shared");
        bench.Open();
        Assert.Equal([3, 3, 3], bench.All.Select(static store => store.Count));
    }

    /// <summary>Records that are too long for a block are written alone, and so is what does not fit beside others.</summary>
    [Fact]
    public void LongRecords_AreWrittenAlone()
    {
        using var bench = new SharedBench(lanes: 1, options: Large).Open();
        var blocks = bench.Shared.Blocks;
        foreach (var store in bench.All)
            _ = store.SubmitNext(SharedLane.WriteBytesMax);
        bench.RunToJournals();
        bench.RunUntilIdle();
        Assert.Equal(blocks, bench.Shared.Blocks);
        LosePower(bench);
        Assert.Equal([1, 1, 1], bench.All.Select(static store => store.Count));
    }

    /// <summary>A replica leaves the node and another one of the same shard comes, again and again, with entries of those before in the files.</summary>
    [Theory]
    [InlineData(1)]
    [InlineData(2)]
    public void ReplicasOfOneShard_OneAfterTheOther_NeverGetEachOthersRecords(int lanes) => Seeds.Run(12, random =>
    {
        using var bench = new SharedBench(seed: random.Next(), lanes: lanes).Open();
        var replica = 1ul;
        var written = 0;
        for (var replaced = random.Next(2, 9); replaced > 0; replaced--)
        {
            for (var round = random.Next(4); round > 0; round--, written++)
                bench.WriteTogether(random.Next(3_000), 0, 1);
            bench.CloseStore(0);
            if (random.Next(2) == 0)
                bench.Disk.Rename(SharedBench.DirectoryOf(0), $"{SharedBench.Root}/retired-{replica}");
            else
                bench.Disk.DeleteDirectory(SharedBench.DirectoryOf(0));
            bench.Disk.SyncDirectory($"{SharedBench.Root}/shards");
            bench.Disk.SyncDirectory(SharedBench.Root);
            replica += 10;
            bench.OpenStore(0, replica);
            bench.RunUntilIdle();
        }
        var sizes = Enumerable.Range(0, random.Next(3)).Select(_ => random.Next(3_000)).ToArray();
        foreach (var size in sizes)
            bench.WriteTogether(size, 0, 1);
        Assert.Equal((sizes.Length, written + sizes.Length), (bench[0].Count, bench[1].Count));
        bench.Die();
        bench.Disk.Restart((UnsyncedWrites)random.Next(4), random.Next());
        SharedBench.Settle(bench.Disk);
        bench.Open(replica);
        bench[0].CheckContent(index => sizes[index], $"replica {replica}");
        Assert.Equal((sizes.Length, written + sizes.Length), (bench[0].Count, bench[1].Count));
    });

    /// <summary>Stores other than the first one write until the blocks with its records are overwritten.</summary>
    private static void OverwriteFiles(SharedBench bench)
    {
        for (var round = 0; round < RoundsOfAllFiles; round++)
        {
            foreach (var store in bench.All.Skip(1))
                _ = store.SubmitNext(ValueBytes);
            bench.RunToJournals();
            bench.RunUntilIdle();
        }
        Assert.Null(bench.Shared.Failure);
    }

    private static void LosePower(SharedBench bench)
    {
        bench.Die();
        bench.Disk.Restart(UnsyncedWrites.Dropped);
        bench.Open();
        Assert.Empty(bench.Replay!.Losses);
    }

    private static ulong NeededFrom(SimulatedDisk disk)
    {
        var all = 0ul;
        foreach (var path in SharedBench.FilesOf(disk))
        {
            if (SharedFile.TryReadHeader(disk.ReadAll(path).AsSpan(0, SharedFile.HeaderBytes), path, out _, out var needed))
                all = Math.Max(all, needed);
        }
        return all;
    }
}
