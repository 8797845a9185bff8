using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>Background work pauses while nobody waits for it, and does not pause when somebody does.</summary>
public sealed class PacingTests
{
    private const string Data = StoreBench.DirectoryPath + "/state-00000001/data";
    private const string ReplicaData = ReplicaBench.DirectoryPath + "/state-00000001/data";
    private static readonly TimeSpan Rest = TimeSpan.FromSeconds(1);

    private static readonly StoreOptions Options = StoreBench.SmallOptions with
    {
        CheckpointJournalBytes = 1 << 20,
        CheckpointBytesPerSecond = 64 << 10,
        Pages = new PageStoreOptions { WriteBytes = 64 << 10 },
    };

    private int _writes;
    private int _syncs;

    [Fact]
    public void Checkpoint_NobodyWaits_PausesAfterEachWrite()
    {
        using var bench = Filled();
        var steps = 0;
        for (; _syncs == 0; steps++)
        {
            var before = _writes;
            bench.Time.Advance(Rest);
            bench.RunUntilIdle();
            Assert.InRange(_writes - before, 0, 4);
        }
        Assert.InRange(steps, 5, 100);
        Assert.Equal(400ul, bench.Store.Statistics.Keys);
    }

    [Fact]
    public void Checkpoint_SomebodyWaits_DoesNotPause()
    {
        using var bench = Filled();
        Assert.Equal(0, _syncs);
        var done = bench.Store.Checkpoints.RequestAsync();
        bench.RunUntilIdle();
        bench.Time.Advance(Rest);
        bench.RunUntilIdle();
        Assert.True(done.IsCompletedSuccessfully);
    }

    // Writers continued at full speed until nothing more was accepted, and then stalled.
    [Fact]
    public void TryAppendBatch_CheckpointsFallBehind_PausesAfterEachBatch()
    {
        using var bench = new ReplicaBench(new(1), StoreBench.SmallOptions with { CheckpointScratchBytes = 32 << 10 });
        bench.Lead(1);
        var puts = 0;
        // Nothing is committed, so no checkpoint can begin.
        for (; bench.Store.Writes.CanAppend; puts++)
        {
            Assert.InRange(puts, 0, 100);
            _ = bench.Put($"key-{puts:D3}", new string('v', 1000));
        }
        Assert.InRange(puts, 3, 100);
        _ = bench.Submit(request => request.Put(StoreBench.Text("waits"), StoreBench.Text("v")));
        Assert.False(bench.AppendBatch());
        var told = bench.WorkTold;
        bench.Time.Advance(TimeSpan.FromMilliseconds(100));
        bench.Run();
        Assert.True(bench.WorkTold > told);
        Assert.True(bench.AppendBatch());
    }

    // Each batch took memory for all that waited, a megabyte for the few pages that it might change while memory was short.
    [Fact]
    public void TryAppendBatch_MuchWaitsWhileCheckpointsFallBehind_TakesMemoryForWhatABatchMayHave()
    {
        using var bench = new ReplicaBench(new(1), StoreBench.SmallOptions with { CheckpointScratchBytes = 32 << 10, BatchBytes = 4 << 20 });
        bench.Lead(1);
        for (var puts = 0; bench.Store.Writes.CanAppend; puts++)
        {
            Assert.InRange(puts, 0, 100);
            _ = bench.Put($"key-{puts:D3}", new string('v', 1000));
        }
        for (var puts = 0; puts < 200; puts++)
        {
            var key = StoreBench.Text($"waits-{puts:D3}");
            _ = bench.Submit(request => request.Put(key, new byte[20_000]));
        }
        Assert.False(bench.AppendBatch());
        bench.Time.Advance(TimeSpan.FromMilliseconds(100));
        bench.Run();
        var isAppended = false;
        var allocated = Allocations.Of(() => isAppended = bench.Store.Writes.TryAppendBatch(ReplicaBench.WallTime, out _));
        Assert.True(isAppended);
        Assert.InRange(allocated, 0, 1 << 20);
    }

    // Pages that only a reader held counted as if the next checkpoint wrote them, so that one checkpoint followed the other.
    [Fact]
    public void Checkpoint_WhileAReaderHoldsMuch_IsNotStartedByWhatItHolds()
    {
        const int DueBytes = 512 << 10;
        var checkpoints = 0;
        using var bench = new StoreBench(options: StoreBench.SmallOptions with { CheckpointScratchBytes = DueBytes });
        bench.Open();
        var keys = 0;
        for (; bench.Store.Pages.ScratchBytes < DueBytes - (4 * Page.Bytes); keys++)
            Write(keys, keys);
        var snapshot = bench.Standalone.OpenSnapshot();
        Write(0, keys - 1);
        bench.Checkpoint();
        Assert.InRange(bench.Store.Pages.HeldScratchBytes, DueBytes * 3 / 4, DueBytes);
        for (var key = 0; key < keys; key += keys / 20)
        {
            var covered = bench.Store.Pages.Covered;
            Write(key, key);
            bench.RunUntilIdle();
            checkpoints += bench.Store.Pages.Covered == covered ? 0 : 1;
        }
        snapshot.Dispose();
        Assert.Equal(0, checkpoints);

        // In one request, so that no checkpoint begins in the middle.
        void Write(int first, int last) => Assert.Equal(WriteOutcome.Applied, bench.Write(request =>
        {
            for (var key = first; key <= last; key++)
                request.Put(StoreBench.Text($"key-{key:D5}"), StoreBench.Text(new string((char)('a' + (keys % 26)), 1000)));
        }).Outcome);
    }

    // Values of a megabyte gathered until they took as much memory as changed leaves may, and were then written in one burst.
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public void Checkpoint_OfLargeValuesAndLittleElse_BeginsEarly(bool isBesideMuchElse)
    {
        using var bench = WithRuns(new PageStoreOptions());
        if (isBesideMuchElse)
            PutSmall(bench);
        var covered = bench.Store.Pages.Covered;
        PutRuns(bench, 12);
        Assert.Equal(isBesideMuchElse, bench.Store.Pages.Covered == covered);
    }

    // One large value that was overwritten again and again made the checkpoints of the leaves beside it early, and values that were overwritten before a late
    // checkpoint were each written by an early one.
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public void Checkpoint_OfLargeValuesThatAreOverwritten_DoesNotBeginEarly(bool isBesideMuchElse)
    {
        using var bench = WithRuns(new PageStoreOptions());
        if (isBesideMuchElse)
            PutSmall(bench);
        var covered = bench.Store.Pages.Covered;
        foreach (var count in isBesideMuchElse ? Enumerable.Repeat(1, 40) : [7, 7, 12])
            PutRuns(bench, count);
        Assert.InRange(bench.Store.Pages.ChangedFileBytes, 1 << 20, long.MaxValue);
        Assert.Equal(covered, bench.Store.Pages.Covered);
    }

    // It paused behind each write although as much came meanwhile.
    [Fact]
    public void Checkpoint_OfLargeValuesWhileMoreCome_DoesNotPause()
    {
        using var bench = WithRuns(Options.Pages);
        var covered = bench.Store.Pages.Covered;
        PutRuns(bench, 11);
        Assert.True(bench.Store.Checkpoints.IsRunning);
        PutRuns(bench, 10);
        Assert.Equal(covered, bench.Store.Pages.Covered);
        // The pause that had begun.
        bench.Time.Advance(Rest);
        bench.RunUntilIdle();
        Assert.NotEqual(covered, bench.Store.Pages.Covered);
    }

    // A request was answered only when a checkpoint found nothing newer, so it was never answered while writes continued.
    [Fact]
    public void CheckpointAsync_WhileWritesContinue_IsAnsweredByTheCheckpointThatCoversIt()
    {
        using var bench = Filled();
        var wanted = bench.Store.Pages.Roots.PublishedEtag;
        var done = bench.Store.Checkpoints.RequestAsync();
        for (var index = 0; index < 300 && !done.IsCompleted; index++)
        {
            // The checkpoint in progress pauses once more.
            bench.Time.Advance(Rest);
            Put(bench, index);
        }
        Assert.True(done.IsCompletedSuccessfully, "The request was not answered within 300 puts.");
        Assert.True(StoreBench.Answer(done).Etag >= wanted);
    }

    [Fact]
    public void Checkpoint_JournalGrowsFast_DoesNotPause()
    {
        using var bench = Filled();
        // Of 3,000 bytes and some more.
        for (var index = 0; index < 124 && _syncs == 0; index++)
            Put(bench, index);
        bench.Time.Advance(Rest);
        bench.RunUntilIdle();
        Assert.True(_syncs > 0, "The journal grew by a third of what starts the next checkpoint, but the current one still pauses.");
    }

    [Fact]
    public void Close_WhileACheckpointPauses_KeepsEverythingDurable()
    {
        using var bench = Filled();
        var closing = bench.Store.CloseAsync();
        for (var step = 0; step < 20; step++)
        {
            bench.RunUntilIdle();
            bench.Time.Advance(Rest);
        }
        Assert.True(closing.IsCompletedSuccessfully);
        Assert.Equal(0, _syncs);
        bench.Close();
        bench.Open();
        Assert.Equal(400ul, bench.Store.Statistics.Keys);
    }

    [Fact]
    public void Checkpoint_ShardQuiescent_IsWrittenOnceAndLeavesNothingToReplay()
    {
        var options = StoreBench.SmallOptions with { CheckpointQuiescentJournalBytes = 64 << 10, SegmentBytesMin = 1 << 20, SegmentBytesMax = 1 << 20 };
        using var bench = new ReplicaBench(new(1), options);
        bench.Disk.Refuse = (operation, path) =>
        {
            _syncs += path == ReplicaData && operation == "Sync" ? 1 : 0;
            return null;
        };
        bench.Lead(1);
        PutAndCommit(bench, "a", 40 << 10);
        Pass(bench, 10 * options.CheckpointQuiescentTime);
        Assert.Equal(0, _syncs);
        // There is enough journal for a checkpoint, but the shard is never quiescent for long enough.
        for (var index = 0; index < 20; index++)
        {
            PutAndCommit(bench, $"b-{index}", 3000);
            Pass(bench, options.CheckpointQuiescentTime * 0.6);
        }
        Assert.Equal(0, _syncs);
        Pass(bench, 2 * options.CheckpointQuiescentTime);
        var syncs = _syncs;
        Assert.True(syncs > 0, "The shard is quiescent and has written no checkpoint.");
        Pass(bench, 20 * options.CheckpointQuiescentTime);
        Assert.Equal(syncs, _syncs);
        bench.Reopen();
        Pass(bench, 20 * options.CheckpointQuiescentTime);
        Assert.Equal(syncs, _syncs);
    }

    [Fact]
    public void Checkpoint_WhileCommittedRecordsWaitToBeApplied_IsFollowedByOneOfTheRest()
    {
        var options = StoreBench.SmallOptions with { CheckpointQuiescentJournalBytes = 64 << 10 };
        using var leader = new ReplicaBench(new(1), options);
        using var follower = new ReplicaBench(new(2), options);
        leader.Lead(1);
        for (var index = 0; index < 30; index++)
            _ = leader.Put($"key-{index}", new string('x', 200 << 10));
        follower.Follow(leader);
        var last = leader.Store.Log.Last.Etag;
        follower.Commit(last);
        follower.Store.Follower.ApplyMore();
        var early = follower.Store.Checkpoints.RequestAsync();
        follower.Run();
        Assert.True(StoreBench.Answer(early).Etag is var covered && covered > Etag.None && covered < last, $"It covers {covered} of {last}.");
        while (follower.Store.Follower.ApplyMore())
        {
        }
        // No further event arrives. When the shard has been quiescent for long enough, a checkpoint covers the rest.
        Pass(follower, 3 * options.CheckpointQuiescentTime);
        using var source = follower.Store.Checkpoints.OpenSource();
        Assert.Equal(last, source.Covers.Etag);
    }

    [Fact]
    public void Checkpoint_JournalFromBeforeTheStart_Counts()
    {
        using var bench = new ReplicaBench(new(1), StoreBench.SmallOptions with { CheckpointJournalBytes = 256 << 10 });
        bench.Lead(1);
        PutAndCommit(bench, "a", 200 << 10);
        bench.Reopen();
        bench.Disk.Refuse = (operation, path) =>
        {
            _syncs += path == ReplicaData && operation == "Sync" ? 1 : 0;
            return null;
        };
        bench.Lead(2);
        PutAndCommit(bench, "b", 100 << 10);
        Pass(bench, TimeSpan.FromSeconds(1));
        Assert.True(_syncs > 0, "Replayed journal did not count towards the next checkpoint.");
    }

    [Fact]
    public async Task Digest_InSteps_EqualsTheDigestInOneStep()
    {
        using var bench = Filled();
        using var snapshot = bench.Standalone.OpenSnapshot();
        var whole = TreeDigest.Of(snapshot);
        using var digest = new TreeDigest(snapshot);
        byte[]? found;
        var steps = 0;
        for (found = null; found is null; steps++)
            found = digest.Step(3000);
        Assert.Equal(whole, found);
        Assert.True(steps > 100, $"The digest took only {steps} steps for 400 values of 3,000 bytes.");
        Assert.Equal(whole, await TreeDigest.OfAsync(snapshot, TimeProvider.System, CancellationToken.None));
    }

    [Fact]
    public async Task Digest_WhoseCallerGoesAway_Ends()
    {
        using var bench = Filled();
        using var snapshot = bench.Standalone.OpenSnapshot();
        using var caller = new CancellationTokenSource();
        await caller.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => TreeDigest.OfAsync(snapshot, TimeProvider.System, caller.Token));
    }

    /// <summary>A store with so many changed pages that a checkpoint of many writes has started and is pausing.</summary>
    private StoreBench Filled()
    {
        var bench = new StoreBench(options: Options);
        bench.Open();
        // The first checkpoint after an open also syncs the meta page that was found.
        bench.Checkpoint();
        bench.Disk.Refuse = (operation, path) =>
        {
            if (path == Data)
            {
                _writes += operation == "Write" ? 1 : 0;
                _syncs += operation == "Sync" ? 1 : 0;
            }
            return null;
        };
        for (var index = 0; index < 400; index++)
            Put(bench, index, together: true);
        bench.RunUntilIdle();
        Assert.True(_writes > 0, "No checkpoint has started.");
        return bench;
    }

    /// <summary>A store that begins a checkpoint for a mebibyte of runs.</summary>
    private static StoreBench WithRuns(PageStoreOptions pages)
    {
        var bench = new StoreBench(options: StoreBench.SmallOptions with
        {
            CheckpointRunBytes = 1 << 20, CheckpointBytesPerSecond = 64 << 10, SegmentBytesMin = 1 << 20, SegmentBytesMax = 4 << 20, Pages = pages,
        });
        bench.Open();
        bench.Checkpoint();
        return bench;
    }

    private static void PutSmall(StoreBench bench) => Assert.Equal(WriteOutcome.Applied, bench.Write(static request =>
    {
        for (var key = 0; key < 1_000; key++)
            request.Put(StoreBench.Text($"small-{key:D4}"), new byte[1_000]);
    }).Outcome);

    private static void PutRuns(StoreBench bench, int count)
    {
        for (var key = 0; key < count; key++)
        {
            var name = StoreBench.Text($"large-{key:D2}");
            Assert.Equal(WriteOutcome.Applied, bench.Write(request => request.Put(name, new byte[100_000])).Outcome);
        }
        bench.RunUntilIdle();
    }

    private static void PutAndCommit(ReplicaBench bench, string key, int bytes)
    {
        _ = bench.Put(key, new string('x', bytes));
        bench.Commit(bench.Store.Log.Last.Etag);
        bench.Run();
    }

    private static void Pass(ReplicaBench bench, TimeSpan time)
    {
        const int Steps = 100;
        for (var step = 0; step < Steps; step++)
        {
            bench.Time.Advance(time / Steps);
            bench.Run();
        }
    }

    private static void Put(StoreBench bench, int index, bool together = false)
    {
        var answer = bench.Submit(request => request.Put(StoreBench.Text($"key-{index:000}"), new byte[3000]));
        if (!together)
            bench.RunUntilIdle();
        Assert.True(together || answer.IsCompletedSuccessfully);
    }
}
