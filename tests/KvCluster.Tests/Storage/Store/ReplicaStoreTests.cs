using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

public sealed class ReplicaStoreTests : IDisposable
{
    private readonly StoreBench _bench = new();

    public void Dispose() => _bench.Dispose();

    [Fact]
    public void Write_PutThenReopen_ValueAndEtagRemain()
    {
        _bench.Open();
        var written = _bench.Write(request => request.Put("a"u8, "1"u8));
        Assert.Equal(WriteOutcome.Applied, written.Outcome);
        Assert.Equal(new Etag(1, 2), written.Etag);
        _bench.Close();
        _bench.Open();
        Assert.Equal("1", _bench.Read("a"));
        Assert.Equal(new Etag(2, 3), _bench.Store.Pages.Roots.PublishedEtag);
    }

    // After each restart it was 0 until the first checkpoint.
    [Fact]
    public void JournalKeptBytes_AfterARestart_AreThoseBefore()
    {
        using var bench = new StoreBench(options: StoreBench.SmallOptions with { RetainedJournalBytes = 1 << 20 });
        bench.Open();
        for (var index = 0; index < 200; index++)
            bench.Write(request => request.Put("a"u8, new byte[1_000]));
        // Two, because the older meta page needs journal too.
        bench.Checkpoint();
        bench.Write(request => request.Put("a"u8, "1"u8));
        bench.Checkpoint();
        var before = bench.Store.Statistics.JournalKeptBytes;
        Assert.True(before > 100_000, $"{before} bytes of journal are kept.");
        bench.Close();
        bench.Open();
        Assert.Equal(before, bench.Store.Statistics.JournalKeptBytes);
    }

    [Fact]
    public void Write_FailedConditionAmongOthers_FailsAloneAndNamesTheCondition()
    {
        _bench.Open();
        var first = _bench.Submit(request => request.Put("a"u8, "1"u8));
        var second = _bench.Submit(request =>
        {
            request.AddCondition("a"u8, ConditionKind.Exists);
            request.AddCondition("a"u8, ConditionKind.ValueEquals, value: "2"u8);
            request.Put("a"u8, "3"u8);
        });
        var third = _bench.Submit(request =>
        {
            request.AddCondition("a"u8, ConditionKind.ValueEquals, value: "1"u8);
            request.Delete("a"u8);
        });
        _bench.RunUntilIdle();
        Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(first).Outcome);
        Assert.Equal(new WriteResult(WriteOutcome.ConditionFailed, StoreBench.Answer(first).Etag, 1, 0), StoreBench.Answer(second));
        Assert.Equal(new WriteResult(WriteOutcome.Applied, new Etag(1, 3), -1, 1), StoreBench.Answer(third));
        Assert.Null(_bench.Read("a"));
    }

    [Theory]
    [InlineData(ConditionKind.Absent, true)]
    [InlineData(ConditionKind.Exists, false)]
    [InlineData(ConditionKind.EtagEquals, true)]
    [InlineData(ConditionKind.ValueEquals, false)]
    internal void Condition_OnAbsentKey_HoldsAsItSays(ConditionKind kind, bool holds)
    {
        _bench.Open();
        var result = _bench.Write(request => request.AddCondition("none"u8, kind));
        Assert.Equal(holds ? WriteOutcome.Applied : WriteOutcome.ConditionFailed, result.Outcome);
    }

    [Fact]
    public void Condition_EtagOfLastWrite_Holds()
    {
        _bench.Open();
        var written = _bench.Write(request => request.Put("a"u8, "1"u8));
        var right = _bench.Write(request =>
        {
            request.AddCondition("a"u8, ConditionKind.EtagEquals, written.Etag);
            request.Put("a"u8, "2"u8);
        });
        var wrong = _bench.Write(request =>
        {
            request.AddCondition("a"u8, ConditionKind.EtagEquals, written.Etag);
            request.Put("a"u8, "3"u8);
        });
        Assert.Equal((WriteOutcome.Applied, WriteOutcome.ConditionFailed), (right.Outcome, wrong.Outcome));
        Assert.Equal("2", _bench.Read("a"));
    }

    [Fact]
    public void Write_DeadlinePassed_IsNotApplied()
    {
        _bench.Open();
        var result = _bench.Write(request =>
        {
            request.DeadlineTimestamp = 1;
            request.Put("a"u8, "1"u8);
        });
        Assert.Equal(WriteOutcome.DeadlinePassed, result.Outcome);
        Assert.Null(_bench.Read("a"));
    }

    [Fact]
    public void TrySubmit_QueueFull_SaysBusyAtOnce()
    {
        using var bench = new StoreBench(options: StoreBench.SmallOptions with { QueueCountMax = 2, QueueBytesMax = 1000 });
        bench.Open();
        var first = bench.Submit(request => request.Put("a"u8, "1"u8));
        var tooMany = WriteRequest.Rent();
        tooMany.Put("b"u8, new byte[2000]);
        Assert.Null(bench.Standalone.TryWrite(tooMany));
        var second = bench.Submit(request => request.Put("c"u8, "1"u8));
        var third = WriteRequest.Rent();
        third.Put("d"u8, "1"u8);
        Assert.Null(bench.Standalone.TryWrite(third));
        bench.RunUntilIdle();
        Assert.Equal((WriteOutcome.Applied, WriteOutcome.Applied), (StoreBench.Answer(first).Outcome, StoreBench.Answer(second).Outcome));
        Assert.Equal(WriteOutcome.Applied, bench.Write(request => request.Put("big"u8, new byte[2000])).Outcome);
    }

    [Fact]
    public void Journal_FailingWrite_EndsTheEngineWithUnknownOutcome()
    {
        _bench.Open();
        _bench.Write(request => request.Put("a"u8, "1"u8));
        var failed = 0;
        _bench.Disk.Refuse = (operation, path) =>
            operation == "Write" && path.Contains("journal", StringComparison.Ordinal) && failed++ == 0 ? new StorageIoException(operation, path, "broken")
                : null;
        var caught = _bench.Submit(request => request.Put("b"u8, "1"u8));
        _bench.RunUntilIdle();
        Assert.Equal(WriteOutcome.OutcomeUnknown, StoreBench.Answer(caught).Outcome);
        Assert.True(_bench.Standalone.Failure.IsCompletedSuccessfully);
        Assert.Contains("broken", StoreBench.Answer(_bench.Standalone.Failure).Message, StringComparison.Ordinal);
        Assert.Equal(WriteOutcome.Stopped, _bench.Write(request => request.Put("c"u8, "1"u8)).Outcome);
        Assert.Throws<StoreStoppedException>(() => _bench.Read("a"));
        Assert.Equal(1, failed);
        _bench.Disk.Refuse = null;
        _bench.Close();
        _bench.Open();
        Assert.Equal("1", _bench.Read("a"));
    }

    [Fact]
    public void Journal_WhereFillingDoesNotPay_WritesNoZerosAndIsWhole()
    {
        var filled = WritesOf(fills: true);
        var allocated = WritesOf(fills: false);
        Assert.True(allocated < filled, $"{allocated} writes without filling, {filled} with it.");
    }

    private static int WritesOf(bool fills)
    {
        using var bench = new StoreBench(options: StoreBench.SmallOptions with { FillSegments = fills });
        bench.Open();
        var writes = 0;
        bench.Disk.Fault = call =>
        {
            writes += call.Operation == "Write" && call.Path.EndsWith(".journal", StringComparison.Ordinal) ? 1 : 0;
            return DiskFault.None;
        };
        for (var index = 0; index < 60; index++)
            _ = bench.Write(request => request.Put(StoreBench.Text($"key-{index}"), new byte[3000]));
        bench.Close();
        bench.Open();
        Assert.Equal(60, bench.ReadAllKeys().Count);
        return writes;
    }

    [Fact]
    public void Checkpoint_AfterManySegments_RecyclesTheJournalAndReopens()
    {
        _bench.Open();
        for (var round = 0; round < 10; round++)
        {
            for (var index = 0; index < 40; index++)
                _bench.Write(request => request.Put(StoreBench.Text($"key-{index}"), StoreBench.Text($"{round}")));
            _bench.Checkpoint();
        }
        Assert.True(_bench.Store.Statistics.JournalBytes <= 5 * StoreBench.SmallOptions.SegmentBytesMax, "The journal has "
            + $"{_bench.Store.Statistics.JournalBytes} bytes.");
        Assert.True(_bench.Store.Reader.TryFind(_bench.Store.Log.Last.Etag, out _));
        Assert.False(_bench.Store.Reader.TryFind(new Etag(1, 2), out _));
        _bench.Close();
        _bench.Open();
        Assert.Equal("9", _bench.Read("key-39"));
        Assert.Equal(40ul, _bench.Store.Statistics.Keys);
    }

    // After a checkpoint of 2 GB a journal lane erased or deleted dozens of segments, and no write was durable before it had.
    [Fact]
    public void Checkpoint_AfterManySegments_RetiresTheirFilesInTheBackground()
    {
        _bench.Open();
        var (retired, byALane) = (0, 0);
        _bench.Disk.Fault = call =>
        {
            if (call.Path.EndsWith(".journal", StringComparison.Ordinal) && call.Operation == "Delete")
                (retired, byALane) = (retired + 1, byALane + (_bench.IsCheckpointStep ? 0 : 1));
            return DiskFault.None;
        };
        for (var index = 0; index < 200; index++)
            _bench.Write(request => request.Put(StoreBench.Text($"key-{index}"), new byte[1000]));
        _bench.Checkpoint();
        _bench.Write(request => request.Put("last"u8, "1"u8));
        _bench.Checkpoint();
        Assert.True(retired > 5, $"Only {retired} segments were deleted.");
        Assert.Equal(0, byALane);
    }

    // Two segments were kept for use again at a checkpoint that made four unnecessary. So a busy store filled two new ones with zeros in each cycle.
    [Fact]
    public void Checkpoints_OfABusyStore_UseAllSegmentsAgain()
    {
        var options = StoreBench.SmallOptions with { CheckpointJournalBytes = 4 * StoreBench.SmallOptions.SegmentBytesMax };
        using var bench = new StoreBench(options: options);
        bench.Open();
        var (isSteady, changes) = (false, new List<string>());
        bench.Disk.Fault = call =>
        {
            if (isSteady && call.Operation is "Delete" or "Resize" && call.Path.EndsWith(".journal", StringComparison.Ordinal))
                changes.Add($"{call.Operation} {call.Path}");
            return DiskFault.None;
        };
        for (var cycle = 0; cycle < 8; cycle++)
        {
            isSteady = cycle >= 4;
            for (var index = 0; index < 50; index++)
                bench.Write(request => request.Put(StoreBench.Text($"key-{index}"), new byte[3000]));
            bench.Checkpoint();
        }
        Assert.Equal([], changes);
        Assert.InRange(SegmentsOf(bench), 5, 12);
    }

    [Fact]
    public void Spares_WhenSpaceBecomesShort_AreDeleted()
    {
        const int Keys = 8_000;
        const int KeysPerPut = 25;
        const int Apart = 12;
        using var bench = new StoreBench(
            options: StoreBench.SmallOptions with { CheckpointJournalBytes = 8 * StoreBench.SmallOptions.SegmentBytesMax, ReserveBytes = 1 << 20 });
        bench.Open();
        for (var key = 0; key < Keys; key += KeysPerPut)
            PutSome(key, apart: 1);
        for (var cycle = 0; cycle < 6; cycle++)
        {
            for (var index = 0; index < 100; index++)
                bench.Write(request => request.Put("other"u8, new byte[3000]));
            bench.Checkpoint();
        }
        Assert.True(NotLive() >= 8, $"Only {NotLive()} segments are kept to be used again.");
        // Leaves all over the tree change, for which a checkpoint needs more than is left.
        bench.Disk.CapacityBytes = bench.Disk.UsedBytes + StoreBench.SmallOptions.SegmentBytesMax + (256 << 10);
        for (var key = 0; key + (KeysPerPut * Apart) <= Keys; key += KeysPerPut * Apart)
            PutSome(key, Apart);
        bench.RunUntilIdle();
        // Two, the next one, and its successor.
        Assert.True(NotLive() <= 4, $"{NotLive()} segments are kept to be used again.");
        // What was deleted made room for the checkpoint.
        bench.Checkpoint();

        long NotLive() => SegmentsOf(bench) - (bench.Store.Statistics.JournalBytes / StoreBench.SmallOptions.SegmentBytesMax);

        void PutSome(int from, int apart) => bench.Write(request =>
        {
            for (var index = 0; index < KeysPerPut; index++)
                request.Put(StoreBench.Text($"key-{from + (index * apart):D6}"), new byte[200]);
        });
    }

    private static int SegmentsOf(StoreBench bench) =>
        StoreBench.PathsOf(bench.Disk, StoreBench.DirectoryPath).Count(path => path.EndsWith(".journal", StringComparison.Ordinal));

    /// <summary>
    /// One of the two meta pages is the newer one. If it is damaged, the older one's checkpoint and the journal after that must still exist (S5).
    /// </summary>
    [Theory]
    [InlineData(0)]
    [InlineData(1)]
    public void Open_AMetaPageDamagedAfterTheJournalWasRecycled_ReplaysFromTheOther(int damagedPage)
    {
        _bench.Open();
        for (var round = 0; round < 10; round++)
        {
            for (var index = 0; index < 40; index++)
                _bench.Write(request => request.Put(StoreBench.Text($"key-{index}"), StoreBench.Text($"{round}")));
            _bench.Checkpoint();
        }
        _bench.Write(request => request.Put("last"u8, "1"u8));
        Assert.False(_bench.Store.Reader.TryFind(new Etag(1, 2), out _));
        _bench.Close();
        _bench.Disk.FlipBit($"{StoreBench.DirectoryPath}/state-00000001/data", (damagedPage * Page.Bytes) + 40);
        _bench.Open();
        Assert.Equal("9", _bench.Read("key-39"));
        Assert.Equal("1", _bench.Read("last"));
        Assert.Equal(41ul, _bench.Store.Statistics.Keys);
    }

    [Fact]
    public void Write_DiskFull_RefusesPutsButAllowsDeletesAndCheckpoints()
    {
        using var bench = new StoreBench(options: StoreBench.SmallOptions with { ReserveBytes = 256 << 10 });
        bench.Open();
        for (var index = 0; index < 20; index++)
            Put(index);
        bench.Disk.CapacityBytes = bench.Disk.UsedBytes + (32 << 10);
        var refused = Enumerable.Range(0, 200).Select(Put).ToList().FindIndex(result => result.Outcome == WriteOutcome.DiskFull);
        Assert.True(refused >= 0, "32 KiB took 200 puts.");
        for (var index = 0; index < 4; index++)
            Assert.Equal(WriteOutcome.Applied, Delete(index).Outcome);
        bench.Checkpoint();
        // Many more deletes than the reserve has space for. Some wait until a checkpoint frees journal, and none ends the engine.
        var deleted = 0;
        for (var index = 0; index < 200; index++)
        {
            bench.Time.Advance(TimeSpan.FromMilliseconds(300));
            var outcome = Delete(index).Outcome;
            Assert.True(outcome is WriteOutcome.Applied or WriteOutcome.NoRoomYet, $"Delete {index} ended as {outcome}.");
            deleted += outcome == WriteOutcome.Applied ? 1 : 0;
            // Takes no room.
            Assert.Equal(WriteOutcome.Applied, bench.Write(static _ => { }).Outcome);
        }
        Assert.True(deleted >= 50, $"Only {deleted} deletes succeeded.");
        Assert.Null(bench.Read("key-3"));
        bench.Disk.CapacityBytes = long.MaxValue;
        for (var attempt = 0; attempt < 3 && Put(7).Outcome == WriteOutcome.DiskFull; attempt++)
        {
            bench.RunUntilIdle();
            bench.Time.Advance(TimeSpan.FromSeconds(2));
        }
        Assert.Equal(WriteOutcome.Applied, Put(7).Outcome);
        Assert.Equal("7", bench.Read("key-7"));
        bench.Close();
        bench.Open();
        Assert.Equal("7", bench.Read("key-7"));

        WriteResult Put(int index) => bench.Write(request => request.Put(StoreBench.Text($"key-{index}"), StoreBench.Text($"{index}")));

        WriteResult Delete(int index) => bench.Write(request => request.Delete(StoreBench.Text($"key-{index}")));
    }

    [Fact]
    public void Open_AgainAndAgain_DoesNotLengthenTheJournal()
    {
        _bench.Open();
        _bench.Write(request => request.Put("a"u8, "1"u8));
        _bench.Checkpoint();
        for (var round = 0; round < 20; round++)
        {
            _bench.Close();
            _bench.Open();
        }
        _bench.Checkpoint();
        _bench.Write(request => request.Put("a"u8, "2"u8));
        _bench.Checkpoint();
        Assert.True(_bench.Store.Statistics.JournalBytes <= 4 * StoreBench.SmallOptions.SegmentBytesMin, "The journal has "
            + $"{_bench.Store.Statistics.JournalBytes} bytes.");
    }

    [Fact]
    public void Write_LargestTransaction_UsesItsOwnSegment()
    {
        _bench.Open();
        var value = new byte[8 << 20];
        Random.Shared.NextBytes(value);
        Assert.Equal(WriteOutcome.Applied, _bench.Write(request => request.Put("big"u8, value)).Outcome);
        Assert.Equal(WriteOutcome.Applied, _bench.Write(request => request.Put("small"u8, "1"u8)).Outcome);
        _bench.Close();
        _bench.Open();
        using var snapshot = _bench.Standalone.OpenSnapshot();
        Assert.True(snapshot.TryGet(KvCluster.Storage.Pages.TreeId.Kv, "big"u8, out var stored));
        Assert.True(KvValue.Read(stored, out _).SequenceEqual(value));
        Assert.Equal("1", _bench.Read("small"));
    }
}
