using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Sessions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// F18 at one replica: a full disk only stops puts. A follower's records wait for space, and its promises are written meanwhile. It recovers without
/// help.
/// </summary>
public sealed class FullDiskTests : IDisposable
{
    private static readonly TimeSpan UntilLookedAgain = TimeSpan.FromSeconds(2);
    private static readonly StoreOptions Options = StoreBench.SmallOptions with { ReserveBytes = 256 << 10, WaitingBodyBytesMax = 1 << 20 };
    private readonly ReplicaBench _leader = new(new(1));
    private readonly ReplicaBench _follower = new(new(2), Options);

    public void Dispose()
    {
        _leader.Dispose();
        _follower.Dispose();
    }

    [Fact]
    public void Append_FollowersDiskFull_WaitsAndResumesWhenThereIsRoom()
    {
        FillFollowersDisk();
        var durable = _follower.Store.Durable.Last;
        Assert.True(durable.Etag < _follower.Store.Log.Last.Etag, "A full disk took all records.");
        Assert.True(_follower.Store.Space.IsDiskFull);
        for (var look = 0; look < 5; look++)
            LookAgain(_follower);
        Assert.Equal(durable, _follower.Store.Durable.Last);
        Assert.Null(_follower.FailureTold);

        _follower.Disk.CapacityBytes = long.MaxValue;
        LookAgain(_follower);
        Assert.Equal(_leader.Store.Log.Last, _follower.Store.Durable.Last);
        LookAgain(_follower);
        Assert.False(_follower.Store.Space.IsDiskFull);
        _follower.Commit(_leader.Store.Log.Last.Etag);
        _leader.Commit(_leader.Store.Log.Last.Etag);
        Assert.Equal(_leader.Digest(), _follower.Digest());
        _follower.Reopen();
        Assert.Equal(_leader.Store.Log.Last, _follower.Store.Log.Last);
    }

    // A crash between the creation and the growth of the reserve left an empty file, which was taken for the reserve ever after.
    [Fact]
    public void Open_EmptyReserve_IsAllocatedAgain()
    {
        const string Reserve = ReplicaBench.DirectoryPath + "/reserve";
        using (var file = _follower.Disk.Open(Reserve, new KvCluster.Storage.Files.StorageFileOptions(KvCluster.Storage.Files.StorageFileMode.OpenExisting)))
            file.Resize(0);
        _follower.Reopen();
        _follower.Run();
        using var whole = _follower.Disk.Open(Reserve, new KvCluster.Storage.Files.StorageFileOptions(KvCluster.Storage.Files.StorageFileMode.OpenExisting));
        Assert.Equal(Options.ReserveBytes, whole.Length);
    }

    [Fact]
    public void WriteControl_RecordsWaitForRoom_OvertakesThem()
    {
        FillFollowersDisk();
        _follower.Store.Log.WriteControl(_follower.Store.Durable.Control with { PromisedEpoch = 7 });
        _follower.Run();
        Assert.Equal(7ul, _follower.ControlTold.Single().PromisedEpoch);
    }

    [Fact]
    public void Truncate_RecordsWaitForRoom_DropsThemAndCompletesWhenThereIsRoom()
    {
        FillFollowersDisk();
        var kept = _follower.Store.Durable.Last;
        _follower.Store.Committed.Truncate(kept.Etag);
        _follower.Run();
        _leader.Store.Writes.StopLeading();
        _leader.Store.Committed.Truncate(kept.Etag);
        _leader.Run();
        _leader.Lead(2);
        _follower.Follow(_leader);
        _follower.Disk.CapacityBytes = long.MaxValue;
        LookAgain(_follower);
        LookAgain(_follower);
        Assert.Equal([kept], _follower.CutsTold);
        Assert.Equal(_leader.Store.Log.Last, _follower.Store.Durable.Last);
        _follower.Reopen();
        Assert.Equal(_leader.Store.Log.Last, _follower.Store.Log.Last);
    }

    [Fact]
    public void HasRoom_WaitingRecordsAtTheirBound_IsFalseUntilThereIsRoom()
    {
        FillFollowersDisk(records: 600);
        Assert.False(_follower.Store.Follower.HasRoom);
        _follower.Disk.CapacityBytes = long.MaxValue;
        LookAgain(_follower);
        Assert.True(_follower.Store.Follower.HasRoom);
    }

    [Fact]
    public void Commit_DiskFull_ACheckpointFreesJournalForWaitingRecords()
    {
        FillFollowersDisk();
        _follower.Commit(_follower.Store.Durable.Last.Etag);
        var before = _follower.Store.Durable.Last;
        // Two checkpoints, because the older meta page still needs the journal after the first.
        for (var look = 0; look < 4; look++)
        {
            LookAgain(_follower);
            _follower.Commit(_follower.Store.Durable.Last.Etag);
        }
        Assert.True(_follower.Store.Durable.Last.Etag > before.Etag, $"The journal still ends at {before}.");
        Assert.Null(_follower.FailureTold);
    }

    /// <summary>
    /// Only a leader compared what it changed with the space for it. A follower went on until a checkpoint found no room, and told nobody before.
    /// </summary>
    [Fact]
    public void Commit_MoreThanTheNextCheckpointHasRoomFor_CountsAsAFullDisk()
    {
        _leader.Lead(1);
        for (var index = 0; index < 400; index++)
            _ = _leader.Put($"key-{index}", new string('x', 4000));
        _follower.Follow(_leader);
        Assert.False(_follower.Store.Space.IsDiskFull);
        _follower.Disk.CapacityBytes = _follower.Disk.UsedBytes + (1 << 20);
        _follower.Commit(_follower.Store.Durable.Last.Etag);
        while (_follower.Store.Follower.ApplyMore())
        {
        }
        Assert.True(_follower.Store.Pages.ChangedBytes > 1 << 20, $"Only {_follower.Store.Pages.ChangedBytes} bytes are changed.");
        Assert.True(_follower.Store.Space.IsDiskFull);
        _follower.Disk.CapacityBytes = long.MaxValue;
        LookAgain(_follower);
        LookAgain(_follower);
        Assert.False(_follower.Store.Space.IsDiskFull);
        Assert.Null(_follower.FailureTold);
    }

    /// <summary>Each store of a node counted the same free space for itself, so the disk was full before any of them refused a put.</summary>
    [Fact]
    public void Puts_WhileTheNodesOtherStoresNeedTheSpace_AreRefused()
    {
        const long Room = 4 << 20;
        using var other = _leader.Context.Memory.Join(static () => { }, static () => false);
        _leader.Lead(1);
        _leader.Disk.CapacityBytes = _leader.Disk.UsedBytes + (2 * Room);
        other.Set(MemoryUse.ChangedPages, 2 * Room);
        PutUntilFull(400);
        Assert.True(_leader.Store.Space.IsDiskFull);
        other.Set(MemoryUse.ChangedPages, 0);
        LookAgain(_leader);
        Assert.False(_leader.Store.Space.IsDiskFull);
    }

    /// <summary>
    /// While a follower catches up, what arrives is committed already. It applied records that waited for space, and a checkpoint waited for these to be
    /// durable here, while they waited for the journal that only a checkpoint frees. Neither the replica nor a call that asked for the checkpoint ever went on.
    /// </summary>
    [Fact]
    public void Commit_OfRecordsThatWaitForSpace_LeavesACheckpointPossible()
    {
        _leader.Lead(1);
        for (var index = 0; index < 60; index++)
            _ = _leader.Put($"key-{index % 5}", new string('x', 2000));
        _follower.Disk.CapacityBytes = _follower.Disk.UsedBytes + (64 << 10);
        foreach (var body in _leader.BodiesAfter(_follower.Store.Log.Last.Etag))
        {
            Assert.True(_follower.Store.TryAppend(body, out _));
            _follower.Commit(_follower.Store.Log.Last.Etag);
        }
        _follower.Run();
        var before = _follower.Store.Durable.Last;
        Assert.True(_follower.Store.Space.IsStalled);
        for (var look = 0; look < 6; look++)
        {
            while (_follower.Store.Follower.ApplyMore())
            {
            }
            Assert.True(_follower.Store.Pages.Roots.PublishedEtag <= _follower.Store.Durable.Last.Etag, "A record that is not durable was published.");
            LookAgain(_follower);
        }
        Assert.True(_follower.Store.Durable.Last.Etag > before.Etag, $"The journal still ends at {before}.");
        Assert.Null(_follower.FailureTold);

        _follower.Disk.CapacityBytes = long.MaxValue;
        LookAgain(_follower);
        LookAgain(_follower);
        while (_follower.Store.Follower.ApplyMore())
        {
        }
        _leader.Commit(_leader.Store.Log.Last.Etag);
        Assert.Equal(_leader.Digest(), _follower.Digest());
    }

    /// <summary>A follower's journal that checkpoints cover was kept until the disk was full, and its records waited.</summary>
    [Fact]
    public void Commit_DiskNearlyFull_RecyclesJournalThatIsOnlyKept()
    {
        using var follower = new ReplicaBench(new(2), Options with { RetainedJournalBytes = 16 << 20 });
        _leader.Lead(1);
        Follow(200);
        var covered = follower.Store.Checkpoints.RequestAsync();
        follower.Run();
        Assert.True(covered.IsCompletedSuccessfully);
        Follow(1);
        covered = follower.Store.Checkpoints.RequestAsync();
        follower.Run();
        Assert.True(covered.IsCompletedSuccessfully);
        Assert.InRange(follower.Store.Checkpoints.JournalKeptBytes, 600 << 10, long.MaxValue);
        follower.Disk.CapacityBytes = follower.Disk.UsedBytes + (512 << 10);
        for (var round = 0; round < 5; round++)
        {
            Follow(10);
            Assert.False(follower.Store.Space.IsDiskFull, $"Round {round}");
        }
        Assert.InRange(follower.Store.Statistics.JournalBytes, 0, 600 << 10);
        Assert.Null(follower.FailureTold);

        void Follow(int records)
        {
            for (var index = 0; index < records; index++)
                _ = _leader.Put($"key-{index % 5}", new string('x', 2000));
            follower.Follow(_leader);
            follower.Commit(_leader.Store.Log.Last.Etag);
            follower.Run();
        }
    }

    /// <summary>
    /// The journal that one store keeps for followers left no space for a replica on the same disk, which was being rebuilt and remained a learner: each store
    /// looked only when it found the disk full itself, and this one had nothing to write.
    /// </summary>
    [Fact]
    public void Append_AnotherStoreOnTheDiskKeepsJournal_GetsItsSpace()
    {
        var time = new ManualTime();
        var shared = new SharedDisk(time);
        using var disk = new SimulatedDisk();
        var keeps = Options with { RetainedJournalBytes = 16 << 20 };
        using var keeping = new ReplicaBench(new(3), keeps, disk, time: time, sharedDisk: shared, directory: "/keeping");
        using var rebuilt = new ReplicaBench(new(2), Options, disk, time: time, sharedDisk: shared);
        keeping.Lead(1);
        for (var index = 0; index < 200; index++)
            _ = keeping.Put($"key-{index % 5}", new string('x', 2000));
        keeping.Commit(keeping.Store.Log.Last.Etag);
        keeping.Run();
        var covered = keeping.Store.Checkpoints.RequestAsync();
        keeping.Run();
        Assert.True(covered.IsCompletedSuccessfully);
        Assert.InRange(keeping.Store.Statistics.JournalBytes, 600 << 10, long.MaxValue);

        _leader.Lead(1);
        for (var index = 0; index < 100; index++)
            _ = _leader.Put($"key-{index % 5}", new string('x', 2000));
        disk.CapacityBytes = disk.UsedBytes + (64 << 10);
        rebuilt.Follow(_leader);
        Assert.True(rebuilt.Store.Durable.Last.Etag < _leader.Store.Log.Last.Etag, "The disk took all records.");
        Assert.False(keeping.Store.Space.IsDiskFull);
        // Two checkpoints, because the older meta page still needs the journal after the first.
        for (var look = 0; look < 6; look++)
        {
            time.Advance(UntilLookedAgain);
            rebuilt.Run();
            keeping.Run();
        }
        rebuilt.Run();
        Assert.Equal(_leader.Store.Log.Last, rebuilt.Store.Durable.Last);
        Assert.InRange(keeping.Store.Statistics.JournalBytes, 0, 128 << 10);
        Assert.Equal((null, null), (keeping.FailureTold, rebuilt.FailureTold));
    }

    /// <summary>
    /// A full disk refuses puts. Keys and sessions end by deletes, which go through with the room that the next checkpoint frees at the latest.
    /// </summary>
    [Fact]
    public void Ends_AfterTheDiskWasFull_GoThroughWithoutMoreSpace()
    {
        var nowMs = (ulong)(ReplicaBench.WallTime - DateTimeOffset.UnixEpoch).TotalMilliseconds;
        _leader.Lead(1);
        var opened = _leader.Append(request => request.OpenSession(1, ReplicaBench.Owner, 1_500)).Etag;
        _leader.Append(request => request.Put("expires"u8, "v"u8, new KeyLife(nowMs + 1_000, Etag.None)));
        _leader.Append(request => request.Put("owned"u8, "v"u8, new KeyLife(0, opened)));
        _leader.Disk.CapacityBytes = _leader.Disk.UsedBytes + (1 << 20);
        PutUntilFull(400);
        Assert.True(_leader.Store.Space.IsDiskFull);
        for (var step = 1; step <= 30; step++)
        {
            _leader.AppendBatch(TimeSpan.FromMilliseconds(200 * step));
            _leader.Commit(_leader.Store.Log.Last.Etag);
            _leader.Run();
        }
        Assert.Equal((null, null), (_leader.Read("expires"), _leader.Read("owned")));
        Assert.Equal(0ul, _leader.Store.Writes.Lifetimes!.KeepAlive(1, out _));
    }

    /// <summary>It was refused as puts are, for good, although it needs only a checkpoint that is already on its way.</summary>
    [Fact]
    public void Delete_WithoutRoomBeforeTheNextCheckpoint_IsToBeTriedAgain()
    {
        _leader.Lead(1);
        PutUntilFull(400);
        _leader.Disk.CapacityBytes = _leader.Disk.UsedBytes + (256 << 10);
        PutUntilFull(400);
        Assert.Equal((true, false), (_leader.Store.Space.IsDiskFull, _leader.Store.Space.IsStalled));
        _leader.Commit(_leader.Store.Log.Last.Etag);
        var deleted = _leader.Submit(request => request.Delete("key-1"u8));
        var looked = _leader.Submit(static _ => { });
        Assert.False(_leader.AppendBatch());
        Assert.Equal(WriteOutcome.NoRoomYet, StoreBench.Answer(deleted).Outcome);
        Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(looked).Outcome);
        _leader.Disk.CapacityBytes = long.MaxValue;
        LookAgain(_leader);
        LookAgain(_leader);
        Assert.Equal(WriteOutcome.Applied, _leader.Append(request => request.Delete("key-1"u8)).Outcome);
    }

    /// <summary>
    /// When the reserve was gone and the journal's segment used up, the next one was prepared only if the reserve had space beside it. Otherwise no delete was
    /// accepted any more, and nothing else would have made room.
    /// </summary>
    [Fact]
    public void Deletes_ReserveGoneAndSegmentUsedUp_GetASegmentOfWhatIsLeft()
    {
        const int Keys = 300;
        const string Reserve = StoreBench.DirectoryPath + "/reserve";
        // More than all segments of this test together, so that it is not renewed when these are recycled.
        using var bench = new StoreBench(options: StoreBench.SmallOptions with { ReserveBytes = 8 << 20 });
        bench.Open();
        for (var key = 0; key < Keys; key++)
            Assert.Equal(WriteOutcome.Applied, bench.Write(request => request.Put(StoreBench.Text($"key-{key}"), new byte[100])).Outcome);
        bench.Checkpoint();
        bench.Disk.CapacityBytes = bench.Disk.UsedBytes;
        var deleted = 0;
        while (bench.Disk.FileExists(Reserve))
            Assert.Equal(WriteOutcome.Applied, DeleteNext());
        // Others take what the reserve has given back, but for this.
        bench.Disk.CapacityBytes = bench.Disk.UsedBytes + (256 << 10);
        for (var refused = 0; deleted < Keys;)
        {
            if (DeleteNext() == WriteOutcome.Applied)
            {
                refused = 0;
                continue;
            }
            refused++;
            Assert.True(refused < 5, $"Only {deleted} of {Keys} keys could be deleted, with {bench.Disk.CapacityBytes - bench.Disk.UsedBytes} bytes free.");
            bench.Time.Advance(UntilLookedAgain);
            bench.RunUntilIdle();
        }
        Assert.False(bench.Disk.FileExists(Reserve), "There was space for the reserve, so this test does not show what it should.");
        Assert.Empty(bench.ReadAllKeys());

        WriteOutcome DeleteNext()
        {
            var outcome = bench.Write(request => request.Delete(StoreBench.Text($"key-{deleted}"))).Outcome;
            deleted += outcome == WriteOutcome.Applied ? 1 : 0;
            return outcome;
        }
    }

    [Fact]
    public void Lead_OnAFullDisk_RefusesPutsAtOnceAndServesThemWhenThereIsRoom()
    {
        FillFollowersDisk();
        _follower.Lead(2);
        var refused = _follower.Submit(request => request.Put("key"u8, "1"u8));
        _follower.Run();
        while (_follower.Store.Writes.TryAppendBatch(ReplicaBench.WallTime, out _))
            _follower.Run();
        Assert.Equal(WriteOutcome.DiskFull, StoreBench.Answer(refused).Outcome);
        _follower.Disk.CapacityBytes = long.MaxValue;
        LookAgain(_follower);
        LookAgain(_follower);
        Assert.False(_follower.Store.Space.IsDiskFull);
        var answer = _follower.Put("key", "1");
        _follower.Commit(_follower.Store.Log.Last.Etag);
        _follower.Run();
        Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome);
    }

    [Theory]
    [InlineData(nameof(UnsyncedWrites.Dropped))]
    [Trait("Turn", "7")]
    public void Crash_AtEveryCallOfAFullDisk_WithoutUnsyncedWrites_KeepsAllThatWasDurable(string mode) =>
        Crash_AtEveryCallOfAFullDisk_KeepsAllThatWasDurable(mode);

    [Theory]
    [InlineData(nameof(UnsyncedWrites.Torn))]
    public void Crash_AtEveryCallOfAFullDisk_KeepsAllThatWasDurable(string mode)
    {
        var unsynced = Enum.Parse<UnsyncedWrites>(mode);
        for (var call = 1; ; call++)
        {
            using var disk = new SimulatedDisk();
            using var leader = new ReplicaBench(new(1));
            RecordRef durable;
            bool isOff;
            using (var follower = new ReplicaBench(new(2), Options, disk))
            {
                disk.CrashAtCall = disk.Calls + call;
                leader.Lead(1);
                for (var index = 0; index < 30; index++)
                    _ = leader.Put($"key-{index}", new string('x', 2000));
                disk.CapacityBytes = disk.UsedBytes + (16 << 10);
                follower.Follow(leader);
                LookAgain(follower);
                disk.CapacityBytes = long.MaxValue;
                LookAgain(follower);
                LookAgain(follower);
                (durable, isOff) = (follower.Store.Durable.Last, disk.IsOff);
            }
            if (!isOff)
            {
                Assert.Equal(leader.Store.Log.Last, durable);
                break;
            }
            disk.Restart(unsynced, call);
            using var reopened = new ReplicaBench(new(2), Options, disk);
            Assert.True(
                reopened.Store.Log.Last.Etag >= durable.Etag, $"Call {call}: {durable} was durable, but the journal ends at {reopened.Store.Log.Last}.");
            Assert.True(leader.Store.Reader.TryFind(reopened.Store.Log.Last.Etag, out var same) && same.Checksum == reopened.Store.Log.Last.Checksum);
            reopened.Follow(leader);
            Assert.Equal(leader.Store.Log.Last, reopened.Store.Durable.Last);
        }
    }

    private void PutUntilFull(int most)
    {
        for (var index = 0; index < most && !_leader.Store.Space.IsDiskFull; index++)
            _ = _leader.Put($"key-{index}", new string('x', 4000));
    }

    private static void LookAgain(ReplicaBench replica)
    {
        replica.Time.Advance(UntilLookedAgain);
        replica.Run();
    }

    private void FillFollowersDisk(int records = 60)
    {
        _leader.Lead(1);
        for (var index = 0; index < records; index++)
            _ = _leader.Put($"key-{index}", new string('x', 2000));
        _follower.Disk.CapacityBytes = _follower.Disk.UsedBytes + (64 << 10);
        _follower.Follow(_leader);
    }
}
