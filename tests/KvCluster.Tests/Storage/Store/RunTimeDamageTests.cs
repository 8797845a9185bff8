using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Sessions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// F16 in a running replica: whatever reads the damaged bytes first, the replica ends with an exception whose type says so. Another replica on the
/// same threads keeps working.
/// </summary>
public sealed class RunTimeDamageTests
{
    private const string Data = ReplicaBench.DirectoryPath + "/state-00000001/data";

    [Fact]
    public void Read_DamagedPage_FailsTheReadAndEndsTheReplica()
    {
        using var bench = Checkpointed();
        FlipEveryPage(bench);
        Assert.Throws<CorruptStoreException>(() => bench.Read("key-7"));
        Assert.Null(bench.FailureTold);
        bench.Run();
        Assert.IsType<CorruptStoreException>(bench.FailureTold);
        Assert.Throws<StoreStoppedException>(() => bench.Store.OpenSnapshot());
    }

    [Fact]
    public void Digest_DamagedPage_EndsTheReplica()
    {
        using var bench = Checkpointed();
        FlipEveryPage(bench);
        Assert.Throws<CorruptStoreException>(() => bench.Digest());
        bench.Run();
        Assert.IsType<CorruptStoreException>(bench.FailureTold);
    }

    [Fact]
    public void TakeDigest_DamagedPage_EndsTheReplica()
    {
        using var bench = Checkpointed();
        FlipEveryPage(bench);
        bench.Store.Digests.Take(bench.Store.Pages.Roots.PublishedEtag, _ => Assert.Fail("A damaged replica reported a digest."));
        bench.Run();
        Assert.IsType<CorruptStoreException>(bench.FailureTold);
    }

    [Fact]
    public void Append_DamagedPage_EndsTheReplicaAndAnswersItsCallers()
    {
        using var bench = Checkpointed();
        FlipEveryPage(bench);
        bench.Lead(2);
        var answer = bench.Submit(request => request.Put("key-7"u8, "2"u8));
        Assert.False(bench.Store.Writes.TryAppendBatch(ReplicaBench.WallTime, out _));
        bench.Run();
        Assert.IsType<CorruptStoreException>(bench.FailureTold);
        // Its record may be on the disk.
        Assert.Equal(WriteOutcome.OutcomeUnknown, StoreBench.Answer(answer).Outcome);
    }

    [Fact]
    public void Scrub_SoundFile_ChecksAllPagesInEachPass()
    {
        using var bench = Checkpointed();
        Scrub(bench, until: () => bench.Store.Statistics.ScrubPasses == 1);
        Scrub(bench, until: () => bench.Store.Statistics.ScrubPasses == 2);
        // All pages in use, except the two meta pages and the map of free pages.
        Assert.InRange(bench.Store.Statistics.ScrubbedPages / 2, 40 * 1500 / 8192, (bench.Store.Statistics.DataBytes / 8192) - 2);
        Assert.Null(bench.FailureTold);
    }

    [Fact]
    public void Scrub_LargeFile_PausesBetweenSteps()
    {
        using var bench = Checkpointed(keys: 600, valueBytes: 13_000);
        var before = bench.Time.GetTimestamp();
        Scrub(bench, until: () => bench.Store.Statistics.ScrubPasses == 1);
        Assert.True(bench.Store.Statistics.ScrubbedPages >= 600 * 2, $"The pass checked only {bench.Store.Statistics.ScrubbedPages} pages of 600 values of two "
            + "pages each.");
        var rested = bench.Time.GetElapsedTime(before) - bench.Context.Options.ScrubInterval;
        Assert.InRange(rested.TotalSeconds, 600 * 16_384.0 / bench.Context.Options.ScrubBytesPerSecond * 0.8, 60);
    }

    [Fact]
    public void Scrub_PageDamagedThatWasReadBefore_EndsTheReplica()
    {
        int number = 2, found = 0;
        long pagesAPass, length;
        do
        {
            using var bench = Checkpointed();
            Scrub(bench, until: () => bench.Store.Statistics.ScrubPasses == 1);
            pagesAPass = bench.Store.Statistics.ScrubbedPages;
            length = bench.Store.Statistics.DataBytes;
            bench.IsDamaged = true;
            bench.Disk.FlipBit(Data, (number * 8192L) + 70);
            Scrub(bench, until: () => bench.Store.Statistics.ScrubPasses == 2 || bench.FailureTold is not null);
            if (bench.FailureTold is not null)
            {
                Assert.IsType<CorruptStoreException>(bench.FailureTold);
                found++;
            }
        }
        while (++number * 8192L < length);
        // Only pages that no tree reaches go unnoticed, such as those of the map, which is read when the store is opened.
        Assert.Equal(pagesAPass, found);
    }

    /// <summary>What was checked once was trusted as long as the store was open, also when it had left memory and was read from the disk again.</summary>
    [Fact]
    public void Read_PageDamagedAfterItHadLeftMemory_EndsTheReplica()
    {
        using var bench = Checkpointed();
        Assert.NotNull(bench.Read("key-7"));
        bench.IsDamaged = true;
        bench.Disk.IsInMemory = static _ => false;
        for (var second = 0; second < 3; second++)
        {
            bench.Time.Advance(TimeSpan.FromSeconds(1));
            bench.Run();
        }
        FlipEveryPage(bench);
        Assert.Throws<CorruptStoreException>(() => bench.Read("key-7"));
        bench.Run();
        Assert.IsType<CorruptStoreException>(bench.FailureTold);
    }

    [Fact]
    public void ReadBodies_DamagedRecordAfterTheCheckpoint_EndsTheReplica()
    {
        using var bench = Filled(keys: 40, valueBytes: 1500);
        bench.Reopen();
        FlipEveryRecord(bench);
        Assert.Equal(-1, bench.Store.Reader.ReadBodies(Etag.None, int.MaxValue, []));
        bench.Run();
        Assert.IsType<CorruptStoreException>(bench.FailureTold);
    }

    [Fact]
    public void ReadBodies_DamagedRecordThatTheCheckpointCovers_SendsFollowersASnapshot()
    {
        using var bench = Checkpointed();
        var last = bench.Store.Log.Last;
        var fromTheMiddle = new Etag(1, 21);
        FlipRecord(bench, fromTheMiddle);
        for (var opening = 0; opening < 2; opening++)
        {
            List<ReadOnlyMemory<byte>> before = [];
            Assert.Equal(20, bench.Store.Reader.ReadBodies(Etag.None, int.MaxValue, before));
            Assert.Equal(-1, bench.Store.Reader.ReadBodies(new Etag(1, 20), int.MaxValue, []));
            Assert.False(bench.Store.Reader.TryFind(new Etag(1, 20), out _));
            Assert.Equal(20, bench.BodiesAfter(fromTheMiddle).Count);
            bench.Run();
            Assert.Null(bench.FailureTold);
            Assert.Equal(last, bench.Store.Log.Last);
            // Opening the journal does not read the record, because nothing is replayed from it.
            bench.Reopen();
        }
    }

    /// <summary>A reopened replica: none of its pages is in memory or verified.</summary>
    private static ReplicaBench Checkpointed(int keys = 40, int valueBytes = 1500)
    {
        var bench = Filled(keys, valueBytes);
        var done = bench.Store.Checkpoints.RequestAsync();
        bench.Run();
        Assert.True(done.IsCompletedSuccessfully);
        bench.CloseAndReopen();
        return bench;
    }

    /// <summary>The record that opens the epoch, and one record for each key.</summary>
    private static ReplicaBench Filled(int keys, int valueBytes)
    {
        var bench = new ReplicaBench(new(1), StoreBench.SmallOptions with { RetainedJournalBytes = 1 << 20 });
        bench.Lead(1);
        for (var index = 0; index < keys; index++)
            _ = bench.Put($"key-{index}", new string('x', valueBytes));
        bench.Commit(bench.Store.Log.Last.Etag);
        return bench;
    }

    private static IEnumerable<string> Segments(ReplicaBench bench)
    {
        const string Journal = ReplicaBench.DirectoryPath + "/state-00000001/journal";
        return bench.Disk.List(Journal).Select(name => $"{Journal}/{name}").Where(path => bench.Disk.ReadAll(path).Length > 8192);
    }

    private static void FlipEveryRecord(ReplicaBench bench)
    {
        foreach (var path in Segments(bench))
        {
            for (var offset = 4096 + 60; offset < bench.Disk.ReadAll(path).Length; offset += 4096)
                bench.Disk.FlipBit(path, offset);
        }
    }

    /// <summary>Flips a bit in the record's payload, where it was written last.</summary>
    private static void FlipRecord(ReplicaBench bench, Etag etag)
    {
        var found = 0;
        foreach (var path in Segments(bench))
        {
            var bytes = bench.Disk.ReadAll(path);
            for (var offset = 4096; offset + 200 < bytes.Length; offset += 4096)
            {
                var body = bytes.AsSpan(offset + RecordEnvelope.Bytes);
                if (!RecordEnvelope.TryRead(bytes.AsSpan(offset), out _) || RecordBody.LastChange(body) != etag.Change)
                    continue;
                bench.Disk.FlipBit(path, offset + RecordEnvelope.Bytes + RecordBody.HeaderBytes + 10);
                found++;
            }
        }
        Assert.Equal(1, found);
    }

    private static void Scrub(ReplicaBench bench, Func<bool> until)
    {
        bench.Time.Advance(bench.Context.Options.ScrubInterval - TimeSpan.FromMinutes(1));
        for (var step = 0; step < 2_000 && !until(); step++)
        {
            bench.Time.Advance(TimeSpan.FromMilliseconds(50));
            bench.Run();
        }
        Assert.True(until(), $"{bench.Store.Statistics.ScrubPasses} passes, {bench.Store.Statistics.ScrubbedPages} pages, {bench.FailureTold}");
    }

    private static void FlipEveryPage(ReplicaBench bench)
    {
        for (var offset = 2L * 8192; offset < bench.Disk.ReadAll(Data).Length; offset += 8192)
            bench.Disk.FlipBit(Data, offset + 70);
    }
}
