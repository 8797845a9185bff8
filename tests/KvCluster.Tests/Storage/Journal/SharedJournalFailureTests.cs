using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Storage.Files;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Shared;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>
/// What fails under a shared journal. A block that could not be written ends its shards without an answer, and a segment that could not be synced ends all of
/// them; a restart has everything that was answered. Where there is no room or no direct I/O for a shared journal, shards write alone.
/// </summary>
public sealed class SharedJournalFailureTests
{
    private const string Shared = $"{SharedBench.Root}/shared";
    private const int ValueBytes = 50_000;
    private static readonly StoreOptions Large = StoreBench.SmallOptions with { SegmentBytesMin = 64 << 10, SegmentBytesMax = 256 << 10 };

    public static TheoryData<string> Errors => new(nameof(DiskFault.Error), nameof(DiskFault.ShortWrite), nameof(DiskFault.ErrorAfterwards));

    public static TheoryData<string> FullDisks => new(nameof(DiskFault.NoRoom), nameof(DiskFault.NoRoomAfterwards));

    public static TheoryData<string> Faults => new(
        nameof(DiskFault.Error), nameof(DiskFault.ShortWrite), nameof(DiskFault.NoRoom), nameof(DiskFault.NoRoomAfterwards), nameof(DiskFault.ErrorAfterwards));

    [Theory]
    [MemberData(nameof(Errors))]
    public void BlockWrite_Failing_EndsItsShardsWithoutAnAnswer(string fault)
    {
        using var bench = new SharedBench(lanes: 1).Open();
        bench.WriteTogether(100, 0, 1, 2);
        bench.Disk.Fault = call => call.Operation == "Write" && IsShared(call.Path) ? Enum.Parse<DiskFault>(fault) : DiskFault.None;
        var answers = new[] { bench[0].SubmitNext(100), bench[1].SubmitNext(100) };
        bench.RunToJournals();
        bench.RunUntilIdle();
        Assert.NotNull(bench.Shared.Failure);
        Assert.All(answers, static answer => Assert.Equal(WriteOutcome.OutcomeUnknown, StoreBench.Answer(answer).Outcome));
        Assert.NotNull(bench[0].Failure);
        Assert.NotNull(bench[1].Failure);
        // The other one ends with its next write, which cannot know any more whether it would be recovered.
        bench.Disk.Fault = null;
        var next = bench[2].SubmitNext(100);
        bench.RunUntilIdle();
        Assert.Equal(WriteOutcome.OutcomeUnknown, StoreBench.Answer(next).Outcome);
        Assert.NotNull(bench[2].Failure);
        CheckRestart(bench, 1, 1, 1);
    }

    /// <summary>A file system that copies on write has given the place of a block away. Its shards write alone, and so do all from then on.</summary>
    [Theory]
    [MemberData(nameof(FullDisks))]
    public void BlockWrite_WithoutRoom_IsRepeatedInTheSegments(string fault)
    {
        using var bench = new SharedBench(lanes: 1).Open();
        bench.WriteTogether(100, 0, 1, 2);
        bench.Disk.Fault = call => call.Operation == "Write" && IsShared(call.Path) ? Enum.Parse<DiskFault>(fault) : DiskFault.None;
        WriteAll(bench, 100);
        WriteAll(bench, 100);
        Assert.Equal(1, bench.Disk.CountOf(Enum.Parse<DiskFault>(fault)));
        Assert.Null(bench.Shared.Failure);
        CheckRestart(bench, 3, 3, 3);
    }

    [Theory]
    [MemberData(nameof(Faults))]
    [InlineData(nameof(DiskFault.SyncLosesData))]
    public void SyncOfASegment_Failing_EndsAllShardsAndLosesNothingThatWasAnswered(string fault)
    {
        using var bench = new SharedBench(lanes: 1, options: Large).Open();
        bench.Disk.Fault = call => call.Operation == "Sync" && IsSegment(call.Path) && bench.Syncs.IsRunning ? Enum.Parse<DiskFault>(fault) : DiskFault.None;
        var written = FillUntil(bench, () => bench.Shared.Failure is not null);
        bench.Disk.Fault = null;
        Assert.False(Assert.IsType<StorageIoException>(bench.Shared.Failure).IsDiskFull);
        var answers = Array.ConvertAll([0, 1, 2], store => bench[store].SubmitNext(100));
        bench.RunUntilIdle();
        Assert.All(answers, static answer => Assert.NotEqual(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome));
        Assert.All(bench.All, static store => Assert.NotNull(store.Failure));
        CheckRestart(bench, written, written, written);
    }

    /// <summary>After a failed sync the disk may lack what the system has forgotten, and nobody may take the directory for whole.</summary>
    [Fact]
    public void Settle_AfterASyncOfItsSegmentHasFailed_Fails()
    {
        using var bench = new SharedBench(lanes: 1, options: Large).Open();
        bench.Disk.Fault = call => call.Operation == "Sync" && IsSegment(call.Path) && bench.Syncs.IsRunning ? DiskFault.SyncLosesData : DiskFault.None;
        FillUntil(bench, () => bench.Shared.Failure is not null);
        bench.Disk.Fault = null;
        foreach (var store in bench.All.Index())
        {
            var journal = $"{SharedBench.DirectoryOf(store.Index)}/state-00000001/journal";
            Assert.Throws<StorageIoException>(() => bench.Shared.Settle(journal));
        }
    }

    /// <summary>The header of a file's next use cannot be written, also for want of room, as on a file system that copies on write.</summary>
    [Theory]
    [MemberData(nameof(Faults))]
    public void HeaderOfTheNextUse_Failing_LosesNothingThatWasAnswered(string fault)
    {
        using var bench = new SharedBench(lanes: 1, options: Large).Open();
        var headers = 0;
        bench.Disk.Fault = call => call is { Operation: "Write", Offset: 0, Bytes: SharedFile.HeaderBytes } && IsShared(call.Path) && ++headers > 2
            ? Enum.Parse<DiskFault>(fault) : DiskFault.None;
        FillUntil(bench, () => headers > 2);
        bench.Disk.Fault = null;
        WriteAll(bench, 100);
        // None goes on after a failure.
        Assert.All(bench.All, store => Assert.Equal(bench.Shared.Failure is null, store.Failure is null));
        CheckRestart(bench, [.. bench.All.Select(static store => store.Answered)]);
    }

    /// <summary>A block has the records, but one of them cannot be written into its segment: that shard ends, and the others do not notice.</summary>
    [Theory]
    [InlineData(nameof(DiskFault.Error))]
    [InlineData(nameof(DiskFault.ShortWrite))]
    [InlineData(nameof(DiskFault.ErrorAfterwards))]
    public void WriteIntoASegment_Failing_EndsOnlyItsShard(string fault)
    {
        using var bench = new SharedBench(lanes: 1).Open();
        bench.WriteTogether(100, 0, 1, 2);
        bench.Disk.Fault = call => call.Operation == "Write" && IsSegmentOf(1, call.Path)
            ? Enum.Parse<DiskFault>(fault) : DiskFault.None;
        var answers = Array.ConvertAll([0, 1, 2], store => bench[store].SubmitNext(100));
        bench.RunToJournals();
        bench.RunUntilIdle();
        Assert.Equal(
            [WriteOutcome.Applied, WriteOutcome.OutcomeUnknown, WriteOutcome.Applied], answers.Select(static answer => StoreBench.Answer(answer).Outcome));
        Assert.Null(bench.Shared.Failure);
        Assert.NotNull(bench[1].Failure);
        bench.WriteTogether(100, 0, 2);
        CheckRestart(bench, 3, 1, 3);
    }

    /// <summary>
    /// The cached write into a segment finds no room. The records are in a block, but do not count, and are written again, at the same place, when there is.
    /// </summary>
    [Fact]
    public void WriteIntoASegment_WithoutRoom_IsRepeatedAndAnswered()
    {
        using var bench = new SharedBench(lanes: 1).Open();
        bench.WriteTogether(100, 0, 1, 2);
        var isFull = true;
        bench.Disk.Fault = call =>
        {
            if (!isFull || call.Operation != "Write" || !IsSegmentOf(1, call.Path))
                return DiskFault.None;
            isFull = false;
            return DiskFault.NoRoom;
        };
        bench.WriteTogether(100, 0, 1, 2);
        Assert.False(isFull);
        bench.WriteTogether(100, 0, 1, 2);
        CheckRestart(bench, 3, 3, 3);
    }

    /// <summary>A stop cannot write or remove what it has to. The next start does it.</summary>
    [Theory]
    [InlineData("Write", nameof(DiskFault.NoRoom))]
    [InlineData("Write", nameof(DiskFault.Error))]
    [InlineData("Delete", nameof(DiskFault.NoRoom))]
    [InlineData("Delete directory", nameof(DiskFault.Error))]
    public void Stop_FailingAtAFile_LeavesTheRestToTheNextStart(string operation, string fault)
    {
        using var bench = new SharedBench(lanes: 1).Open();
        for (var round = 0; round < 4; round++)
            bench.WriteTogether(1_000, 0, 1, 2);
        bench.Disk.Fault = call => call.Operation == operation && call.Path.StartsWith(Shared, StringComparison.Ordinal)
            ? Enum.Parse<DiskFault>(fault) : DiskFault.None;
        Assert.Throws<StorageIoException>(bench.Stop);
        Assert.Empty(bench.Disk.OpenPaths);
        bench.Disk.Fault = null;
        bench.Disk.Restart(UnsyncedWrites.Dropped);
        bench.Open();
        Assert.Empty(bench.Replay!.Losses);
        Assert.Equal([4, 4, 4], bench.All.Select(static store => store.Count));
    }

    [Fact]
    public void Files_WithTooLittleSpaceForThem_AreNotCreatedAndShardsWriteAlone()
    {
        using var disk = new SimulatedDisk { CapacityBytes = 20 << 20 };
        CheckWritesAlone(disk);
    }

    [Fact]
    public void Files_WithoutDirectIo_AreNotCreatedAndShardsWriteAlone()
    {
        using var disk = new SimulatedDisk { HasDirect = false };
        CheckWritesAlone(disk);
    }

    [Theory]
    [InlineData("Create directory")]
    [InlineData("Create")]
    [InlineData("Resize")]
    [InlineData("Write")]
    [InlineData("Sync")]
    [InlineData("Sync directory")]
    public void Files_WhoseCreationFindsNoRoom_AreLeftOutAndShardsWriteAlone(string operation)
    {
        foreach (var fault in (DiskFault[])[DiskFault.NoRoom, DiskFault.NoRoomAfterwards])
        {
            using var disk = new SimulatedDisk();
            disk.Fault = call => call.Operation == operation && call.Path.StartsWith(Shared, StringComparison.Ordinal) ? fault : DiskFault.None;
            CheckWritesAlone(disk);
            Assert.True(disk.CountOf(fault) > 0, "There was no fault.");
        }
    }

    /// <summary>There is no room for another file, and none to delete what there is of it, for which some file systems need room, too.</summary>
    [Fact]
    public void Files_WhoseCreationAndDeletionFindNoRoom_AreLeftOutAndShardsWriteAlone()
    {
        using var disk = new SimulatedDisk();
        disk.Fault = call => call.Operation is "Resize" or "Delete" && IsShared(call.Path) ? DiskFault.NoRoom : DiskFault.None;
        CheckWritesAlone(disk, mayLeaveDirectory: true);
    }

    /// <summary>The second file finds no room. What the first one has is in its segments before anybody does without it.</summary>
    [Fact]
    public void Files_OfWhichOnlyOneFindsRoom_LoseNothing()
    {
        using var bench = new SharedBench(lanes: 1, options: Large);
        bench.Disk.Fault = call => call.Operation == "Resize" && call.Path == $"{Shared}/1" ? DiskFault.NoRoom : DiskFault.None;
        bench.Open();
        for (var round = 0; round < 30; round++)
            WriteAll(bench, ValueBytes);
        Assert.Equal([$"{Shared}/0"], SharedBench.FilesOf(bench.Disk));
        Assert.True(bench.Shared.Blocks > 0, "The first file was not used.");
        Assert.Null(bench.Shared.Failure);
        CheckRestart(bench, 30, 30, 30);
    }

    /// <summary>
    /// One block is on its way for long, because its device is slow for a moment, while another lane writes many for followers, whose records go on coming.
    /// Each of them repeats the directories of all that are not known to be durable in order, for which a block has not room without end.
    /// </summary>
    [Fact]
    public void TryTake_ManyBlocksWhileOneIsOnItsWay_TakesNoMoreThanABlockHasRoomFor()
    {
        using var disk = new SimulatedDisk();
        disk.CreateDirectories(SharedBench.Root);
        var (lane, syncs) = (new StepExecutor(), new StepExecutor());
        using var shared = new SharedJournal(disk, SharedBench.Root, 0x5EED, SharedJournal.FileBytesOfNode, [lane], syncs);
        using var buffer = new AlignedBuffer(SharedBlock.BytesMax);
        var made = default(SharedBlock) with { DirectoryBytes = SharedBlock.WritesMax * 120, ContentBytes = SharedBlock.WritesMax * 200 };
        var block = made;
        Assert.False(shared.TryTake(buffer.Span, ref block, out _));
        Assert.True(syncs.RunOne());
        Assert.True(shared.TryTake(buffer.Span, ref block, out var slow));
        var count = 0;
        for (block = made; count < 500 && shared.TryTake(buffer.Span, ref block, out var place); block = made, count++)
        {
            Assert.InRange(block.Bytes, 1, SharedBlock.BytesMax);
            place.WriteDurable(buffer.Span[..block.Bytes]);
            place.NoteDurable();
            place.Leave();
            while (syncs.RunOne())
            {
            }
        }
        Assert.InRange(count, 16, 500);
        block = made;
        slow.WriteDurable(buffer.Span[..block.Bytes]);
        slow.NoteDurable();
        slow.Leave();
        while (syncs.RunOne())
        {
        }
        // When it has arrived, there is room again.
        Assert.True(shared.TryTake(buffer.Span, ref block, out var next));
        Assert.InRange(block.RepeatedBytes, 0, 2 * (made.DirectoryBytes + 12));
        next.Leave();
    }

    private static bool IsShared(string path) => path.StartsWith($"{Shared}/", StringComparison.Ordinal);

    private static bool IsSegment(string path) => path.EndsWith(".journal", StringComparison.Ordinal);

    private static bool IsSegmentOf(int store, string path) =>
        IsSegment(path) && path.StartsWith($"{SharedBench.DirectoryOf(store)}/", StringComparison.Ordinal);

    private static void WriteAll(SharedBench bench, int valueBytes)
    {
        foreach (var store in bench.All)
            _ = store.SubmitNext(valueBytes);
        bench.RunToJournals();
        bench.RunUntilIdle();
    }

    /// <summary>Has all stores write until something has happened. Returns how many requests of each were answered.</summary>
    private static int FillUntil(SharedBench bench, Func<bool> hasHappened)
    {
        for (var round = 1; round < 60; round++)
        {
            WriteAll(bench, ValueBytes);
            if (hasHappened())
                return bench.All.Min(static store => store.Answered);
        }
        throw new InvalidOperationException("It has not happened.");
    }

    /// <summary>After a power loss each store has what was answered.</summary>
    private static void CheckRestart(SharedBench bench, params int[] answered)
    {
        Assert.Equal(answered, bench.All.Zip(answered, static (store, least) => Math.Min(store.Answered, least)));
        bench.Die();
        bench.Disk.Fault = null;
        bench.Disk.Restart(UnsyncedWrites.Dropped);
        bench.Open();
        Assert.Empty(bench.Replay!.Losses);
        foreach (var (store, least) in bench.All.Zip(answered))
            Assert.InRange(store.Count, least, least + 1);
    }

    private static void CheckWritesAlone(SimulatedDisk disk, bool mayLeaveDirectory = false)
    {
        using var bench = new SharedBench(disk, lanes: 1).Open();
        for (var round = 0; round < 5; round++)
            WriteAll(bench, 100);
        Assert.Equal([5, 5, 5], bench.All.Select(static store => store.Answered));
        Assert.Equal(0ul, bench.Shared.Blocks);
        Assert.Null(bench.Shared.Failure);
        bench.Stop();
        // Nothing is left that a program without shared journals would not know.
        Assert.True(mayLeaveDirectory || !SharedJournalReplay.IsLeft(disk, SharedBench.Root), "The directory of the shared journal is still there.");
        disk.Fault = null;
        disk.Restart(UnsyncedWrites.Dropped);
        bench.Open();
        Assert.Equal([5, 5, 5], bench.All.Select(static store => store.Count));
    }
}
