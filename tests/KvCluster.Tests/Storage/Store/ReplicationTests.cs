using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>The operations of a store that replication uses: append, commit, truncate, lead and step down.</summary>
public sealed class ReplicationTests : IDisposable
{
    private readonly ReplicaBench _leader = new(new(1));
    private readonly ReplicaBench _follower = new(new(2));

    public void Dispose()
    {
        _leader.Dispose();
        _follower.Dispose();
    }

    /// <summary>
    /// A leader made a state for each record of its prepared tail, and each state copied the pages on the path to its change. After a power loss, a
    /// store with a full journal needed gigabytes.
    /// </summary>
    [Fact]
    public void Lead_LongPreparedTail_TakesTheMemoryOfOneState()
    {
        const int Keys = 500, Records = 2_000;
        using var bench = new ReplicaBench(new(1));
        bench.Lead(1);
        var random = new Random(1);
        for (var index = 0; index < Keys; index++)
            _ = bench.Put($"key-{index:0000}", new string('x', 100));
        bench.Commit(bench.Store.Log.Last.Etag);
        var done = bench.Store.Checkpoints.RequestAsync();
        bench.Run();
        Assert.True(done.IsCompletedSuccessfully);
        for (var index = 0; index < Records; index++)
            _ = bench.Put($"key-{random.Next(Keys):0000}", $"{index}");
        bench.Reopen();
        Assert.True(bench.Store.Log.Last.Change >= Keys + Records, "The tail is prepared.");
        var before = bench.Store.Statistics.ScratchBytes;
        bench.Store.Writes.Lead(2);
        Assert.InRange(bench.Store.Statistics.ScratchBytes - before, 1, 4 * bench.Store.Statistics.DataBytes);
        bench.Store.Writes.AppendEpochOpen(ReplicaBench.WallTime);
        bench.Run();
        bench.Commit(bench.Store.Log.Last.Etag);
        Assert.Equal(bench.Store.Log.Last.Etag, bench.Store.Pages.Roots.PublishedEtag);
        Assert.Equal(Keys, (int)bench.Store.Statistics.Keys);
    }

    [Fact]
    public void RetainedJournal_AfterCheckpoints_ReachesBackAsFarAsItsBoundAndNotMuchFarther()
    {
        const int Records = 200;
        const int RecordBytes = 8 << 10;
        const int RetainedBytes = 512 << 10;
        using var leader = new ReplicaBench(new(1), StoreBench.SmallOptions with { RetainedJournalBytes = RetainedBytes });
        leader.Lead(3);
        for (var index = 0; index < Records; index++)
        {
            _ = leader.Put($"key-{index}", new string('x', RecordBytes - 1024));
            leader.Commit(leader.Store.Log.Last.Etag);
            if (index % 20 == 19)
                Checkpoint(leader);
        }
        // Two checkpoints, because journal that only the older meta page needs is kept as well.
        Checkpoint(leader);
        Checkpoint(leader);
        var last = leader.Store.Log.Last.Etag;
        var within = last with { Change = last.Change - (RetainedBytes / RecordBytes / 2) };
        Assert.Equal(RetainedBytes / RecordBytes / 2, leader.BodiesAfter(within).Count);
        Assert.True(leader.Store.Reader.TryFind(within, out _));
        var beyond = last with { Change = last.Change - (2 * RetainedBytes / RecordBytes) };
        Assert.Equal(-1, leader.Store.Reader.ReadBodies(beyond, int.MaxValue, []));
        Assert.InRange(leader.Store.Statistics.JournalBytes, RetainedBytes / 2, 2 * RetainedBytes);
        // Journal kept for followers survives a restart.
        leader.Reopen();
        Assert.Equal(RetainedBytes / RecordBytes / 2, leader.BodiesAfter(within).Count);
        Assert.Equal(-1, leader.Store.Reader.ReadBodies(beyond, int.MaxValue, []));
    }

    [Fact]
    public void Commit_OfMoreThanAStep_LeavesTheRestToApplyMore()
    {
        const int Records = 30;
        _leader.Lead(3);
        for (var index = 0; index < Records; index++)
            _ = _leader.Put($"key-{index}", new string('x', 200 << 10));
        _leader.Commit(_leader.Store.Log.Last.Etag);
        _follower.Follow(_leader);
        var committed = _leader.Store.Log.Last.Etag;
        _follower.Commit(committed);
        Assert.True(_follower.Store.Committed.IsApplying);
        Assert.Equal(Etag.None, _follower.Store.Pages.Roots.PublishedEtag);
        _ = _leader.Put("later", "1");
        _follower.Follow(_leader);
        Assert.Equal(_leader.Store.Log.Last, _follower.Store.Durable.Last);
        var steps = 1;
        while (_follower.Store.Follower.ApplyMore())
            steps++;
        Assert.InRange(steps, 3, Records);
        Assert.Equal(committed, _follower.Store.Pages.Roots.PublishedEtag);
        Assert.False(_follower.Store.Committed.IsApplying);
        Assert.Equal(_leader.Digest(), _follower.Digest());
    }

    [Fact]
    public void Lead_WhileCommittedRecordsWaitToBeApplied_PublishesThemFirst()
    {
        _leader.Lead(3);
        for (var index = 0; index < 30; index++)
            _ = _leader.Put($"key-{index}", new string('x', 200 << 10));
        _follower.Follow(_leader);
        var committed = _leader.Store.Log.Last.Etag.Predecessor;
        _follower.Commit(committed);
        _follower.Store.Follower.ApplyMore();
        Assert.True(_follower.Store.Committed.IsApplying);
        _follower.Lead(7);
        Assert.Equal(committed, _follower.Store.Pages.Roots.PublishedEtag);
        _follower.Commit(_follower.Store.Log.Last.Etag);
        Assert.Equal(30ul, _follower.Store.Statistics.Keys);
        Assert.False(_follower.Store.Follower.ApplyMore());
    }

    [Fact]
    public void Commit_OnLeaderAndFollower_GivesEqualTrees()
    {
        _leader.Lead(3);
        _leader.Put("a", "1");
        _leader.Put("b", "2");
        _follower.Follow(_leader);
        Assert.Equal(_leader.Store.Log.Last, _follower.Store.Log.Last);
        Assert.Equal(_follower.Store.Log.Last, _follower.DurableTold[^1]);
        Assert.Null(_follower.Read("b"));
        foreach (var replica in (ReplicaBench[])[_leader, _follower])
            replica.Commit(_leader.Store.Log.Last.Etag);
        Assert.Equal(("1", "2"), (_follower.Read("a"), _follower.Read("b")));
        Assert.Equal(_leader.Digest(), _follower.Digest());
    }

    [Fact]
    public void Commit_ByLeader_AnswersInOrderAndNotBefore()
    {
        _leader.Lead(1);
        var first = _leader.Put("a", "1");
        var second = _leader.Put("b", "2");
        var read = _leader.Submit(request => request.AddCondition("a"u8, ConditionKind.Absent));
        Assert.False(_leader.Store.Writes.TryAppendBatch(ReplicaBench.WallTime, out _));
        _leader.Run();
        Assert.False(first.IsCompleted || second.IsCompleted || read.IsCompleted);
        _leader.AnswersReads = false;
        _leader.Commit(_leader.Store.Log.Last.Etag.Predecessor);
        _leader.Run();
        Assert.Equal((true, false, false), (first.IsCompleted, second.IsCompleted, read.IsCompleted));
        _leader.Commit(_leader.Store.Log.Last.Etag);
        _leader.Run();
        Assert.Equal((true, false), (second.IsCompleted, read.IsCompleted));
        _leader.Store.Writes.ReleaseReadAnswers(_leader.Store.Writes.HeldReadAnswers);
        _leader.Run();
        Assert.Equal(new WriteResult(WriteOutcome.ConditionFailed, StoreBench.Answer(second).Etag, 0, 0), StoreBench.Answer(read));
    }

    // A failed condition that arrived after a heartbeat round was sent was answered with that round's confirmation. A deposed leader could answer it
    // from old state.
    [Fact]
    public void ReleaseReadAnswers_HeldAfterTheConfirmationWasAskedFor_StaysHeld()
    {
        _leader.Lead(1);
        _leader.AnswersReads = false;
        _leader.Put("a", "1");
        var early = _leader.Submit(request => request.AddCondition("a"u8, ConditionKind.Absent));
        Assert.False(_leader.Store.Writes.TryAppendBatch(ReplicaBench.WallTime, out _));
        _leader.Run();
        _leader.Commit(_leader.Store.Log.Last.Etag);
        var asked = _leader.Store.Writes.HeldReadAnswers;
        var late = _leader.Submit(request => request.AddCondition("a"u8, ConditionKind.Absent));
        Assert.False(_leader.Store.Writes.TryAppendBatch(ReplicaBench.WallTime, out _));
        _leader.Run();
        _leader.Store.Writes.ReleaseReadAnswers(asked);
        _leader.Run();
        Assert.Equal((true, false), (early.IsCompleted, late.IsCompleted));
    }

    [Fact]
    public void TryAppendBatch_TwoWritesInFlight_WaitsForASlot()
    {
        _leader.Lead(1);
        foreach (var key in (string[])["a", "b"])
        {
            _leader.Submit(request => request.Put(StoreBench.Text(key), "1"u8));
            Assert.True(_leader.Store.Writes.TryAppendBatch(ReplicaBench.WallTime, out _));
        }
        _leader.Submit(request => request.Put("c"u8, "1"u8));
        Assert.False(_leader.Store.Writes.CanAppend);
        Assert.False(_leader.Store.Writes.TryAppendBatch(ReplicaBench.WallTime, out _));
        var told = _leader.WorkTold;
        _leader.Run();
        Assert.True(_leader.WorkTold > told);
        Assert.True(_leader.Store.Writes.TryAppendBatch(ReplicaBench.WallTime, out var record));
        Assert.Equal(new Etag(1, 4), record.Etag);
    }

    // A leader with a slow disk appended no further batch until its own two writes had ended, even when a majority of the others had them. With 10 ms
    // a write, 25.2 k puts per second became 5.5 k. Commits, answers and reads did not wait for the disk.
    [Fact]
    public void TryAppendBatch_OwnWritesInFlightButCommitted_AppendsAnswersAndPublishes()
    {
        _leader.Lead(1);
        var durable = _leader.Store.Durable.Last.Etag;
        for (var number = 0; number < 20; number++)
        {
            var put = _leader.Submit(request => request.Put(StoreBench.Text($"key {number}"), "1"u8));
            Assert.True(_leader.Store.Writes.TryAppendBatch(ReplicaBench.WallTime, out var record));
            // The disk has written nothing so far.
            _leader.Commit(record.Etag);
            _leader.Answer();
            Assert.Equal(record.Etag, _leader.Store.Pages.Roots.PublishedEtag);
            Assert.Equal(durable, _leader.Store.Durable.Last.Etag);
            Assert.Equal("1", _leader.Read($"key {number}"));
            Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(put).Outcome);
        }

        _leader.Run();
        Assert.Equal(_leader.Store.Log.Last.Etag, _leader.Store.Durable.Last.Etag);
    }

    // With 64 shards and 256 callers a record had 1.3 to 1.7 puts. Each put made a record of its own while the one before it waited for the others' disks.
    [Fact]
    public void CanAppend_FewWaitBehindARecordWhileTheWriterIsBehind_TheyGatherUntilItIsCommitted()
    {
        _leader.Lead(1);
        _leader.Commit(_leader.Store.Log.Last.Etag);
        _leader.IsWriterBehind = true;
        // Nothing is before the first one.
        var first = _leader.Put("a", "1");
        var gathered = (Task<WriteResult>[])[Submit("b"), Submit("c")];
        _leader.Run();
        Assert.False(_leader.Store.Writes.CanAppend);
        Assert.False(_leader.AppendBatch());
        Assert.False(first.IsCompleted);

        var before = _leader.Store.Log.Last.Etag;
        _leader.Commit(before);
        Assert.True(_leader.AppendBatch());
        Assert.True(_leader.Store.Requests.Queue.IsEmpty);
        Assert.Single(_leader.BodiesAfter(before));
        _leader.Commit(_leader.Store.Log.Last.Etag);
        _leader.Run();
        Assert.All((Task<WriteResult>[])[first, .. gathered], put => Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(put).Outcome));

        Task<WriteResult> Submit(string key) => _leader.Submit(request => request.Put(StoreBench.Text(key), "1"u8));
    }

    [Theory]
    [InlineData(31, 1, false)]
    [InlineData(32, 1, true)]
    [InlineData(1, 32 << 10, true)]
    public void CanAppend_SoMuchWaitsWhileTheWriterIsBehind_MuchWaitsForNoCommit(int requests, int valueBytes, bool isMuch)
    {
        _leader.Lead(1);
        _leader.Commit(_leader.Store.Log.Last.Etag);
        _leader.IsWriterBehind = true;
        _ = _leader.Put("a", "1");
        for (var number = 0; number < requests; number++)
            _ = _leader.Submit(request => request.Put(StoreBench.Text($"key {number}"), new byte[valueBytes]));
        _leader.Run();
        Assert.Equal(isMuch, _leader.Store.Writes.CanAppend);
    }

    // A store whose owner commits when its own disk has a record, as the embedded one does, has no turn in which it would look for them.
    [Fact]
    public void TellWork_RequestsGatheredAndTheWriterIsNoLongerBehind_AreToldWithTheNextThatTheDiskHasWritten()
    {
        _leader.Lead(1);
        _leader.Commit(_leader.Store.Log.Last.Etag);
        _leader.IsWriterBehind = true;
        _ = _leader.Put("a", "1");
        _ = _leader.Submit(request => request.Put("b"u8, "1"u8));
        _leader.Run();
        var told = _leader.WorkTold;
        _leader.IsWriterBehind = false;
        _leader.Store.Log.WriteControl(_leader.Store.Durable.Control with { Generation = 7 });
        _leader.Run();
        Assert.True(_leader.WorkTold > told);
    }

    // A leader filled its batches however long that took. With 10 million keys and cold pages, a batch of 1 MiB took seconds. Heartbeats and their
    // answers waited behind it, and shards elected new leaders without a fault.
    [Fact]
    public void TryAppendBatch_SlowRequests_ClosesTheBatchEarly()
    {
        _leader.Lead(1);
        var puts = Enumerable.Range(0, 200).Select(number => _leader.Submit(request => request.Put(StoreBench.Text($"key {number}"), "1"u8))).ToArray();
        _leader.Time.PerLook = StoreBench.SmallOptions.StepTimeMax;
        var batches = 0;
        while (!_leader.Store.Requests.Queue.IsEmpty)
        {
            Assert.True(_leader.Store.Writes.TryAppendBatch(ReplicaBench.WallTime, out var record));
            _leader.Commit(record.Etag);
            batches++;
        }

        _leader.Run();
        Assert.InRange(batches, 10, 20);
        Assert.All(puts, put => Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(put).Outcome));
    }

    // Each batch that left requests posted a notice, although the caller takes the next batch in the same turn.
    [Fact]
    public void TryAppendBatch_RequestsLeft_PostsNothingWhileTheCallerContinues()
    {
        _leader.Lead(1);
        for (var number = 0; number < 40; number++)
            _ = _leader.Submit(request => request.Put(StoreBench.Text($"key {number}"), "1"u8));
        _leader.Run();
        _leader.Time.PerLook = StoreBench.SmallOptions.StepTimeMax;
        var told = _leader.WorkTold;
        while (!_leader.Store.Requests.Queue.IsEmpty && _leader.Store.Writes.TryAppendBatch(ReplicaBench.WallTime, out var record))
            _leader.Commit(record.Etag);
        Assert.True(_leader.Store.Requests.Queue.IsEmpty);
        _leader.Run();
        Assert.Equal(told, _leader.WorkTold);
    }

    // A follower applied all committed records in one step, and its answers to heartbeats waited behind that.
    // Small records may delete large ranges.
    [Theory]
    [InlineData(100 << 10)]
    [InlineData(1)]
    public void ApplyMore_SlowRecords_TakesSmallerSteps(int valueBytes)
    {
        const int Records = 40;
        _leader.Lead(1);
        for (var number = 0; number < Records; number++)
            _ = _leader.Put($"key {number}", new string('x', valueBytes));
        _leader.Commit(_leader.Store.Log.Last.Etag);
        _follower.Follow(_leader);
        _follower.Time.PerLook = 2 * StoreBench.SmallOptions.StepTimeMax;
        _follower.Commit(_leader.Store.Log.Last.Etag);
        var steps = 0;
        for (var before = _follower.Store.Pages.Roots.PublishedEtag; _follower.Store.Follower.ApplyMore(); before = _follower.Store.Pages.Roots.PublishedEtag)
        {
            Assert.True(_follower.Store.Pages.Roots.PublishedEtag > before, "Not even one record was applied.");
            steps++;
        }

        Assert.InRange(steps, Records / 2, Records);
        Assert.Equal(_leader.Digest(), _follower.Digest());
    }

    [Fact]
    public void StopLeading_WithUncommittedTail_AnswersUnknownAndKeepsTheTailPrepared()
    {
        _leader.Lead(1);
        _leader.Commit(_leader.Store.Log.Last.Etag);
        var appended = _leader.Put("a", "1");
        var failed = _leader.Submit(request => request.AddCondition("a"u8, ConditionKind.Absent));
        Assert.False(_leader.Store.Writes.TryAppendBatch(ReplicaBench.WallTime, out _));
        var queued = _leader.Submit(request => request.Put("b"u8, "1"u8));
        _leader.Store.Writes.StopLeading();
        _leader.Run();
        Assert.Equal(WriteOutcome.OutcomeUnknown, StoreBench.Answer(appended).Outcome);
        Assert.Equal(WriteOutcome.NotLeader, StoreBench.Answer(failed).Outcome);
        Assert.Equal(WriteOutcome.NotLeader, StoreBench.Answer(queued).Outcome);
        Assert.Null(_leader.Read("a"));
        // The tail may still turn out to be committed.
        _leader.Commit(_leader.Store.Log.Last.Etag);
        Assert.Equal("1", _leader.Read("a"));
    }

    [Fact]
    public void Lead_WithPreparedTail_EvaluatesOnTopOfIt()
    {
        _leader.Lead(1);
        _leader.Put("a", "1");
        _follower.Follow(_leader);
        _follower.Lead(2);
        var answer = _follower.Submit(request =>
        {
            request.AddCondition("a"u8, ConditionKind.ValueEquals, value: "1"u8);
            request.Put("a"u8, "2"u8);
        });
        Assert.True(_follower.Store.Writes.TryAppendBatch(ReplicaBench.WallTime, out var record));
        Assert.Null(_follower.Read("a"));
        _follower.Run();
        _follower.Commit(record.Etag);
        _follower.Run();
        Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome);
        Assert.Equal("2", _follower.Read("a"));
    }

    [Fact]
    public void Append_DamagedOrUnchainedBody_IsRefused()
    {
        _leader.Lead(1);
        _leader.Put("a", "1");
        _leader.Put("b", "2");
        var bodies = _leader.BodiesAfter(Etag.None);
        Assert.False(_follower.Store.TryAppend(bodies[1], out _));
        var damaged = bodies[0].ToArray();
        damaged[70] ^= 1;
        Assert.False(_follower.Store.TryAppend(damaged, out _));
        Assert.False(_follower.Store.TryAppend(default, out _));
        Assert.True(_follower.Store.TryAppend(bodies[0], out _));
        Assert.False(_follower.Store.TryAppend(bodies[0], out _));
        Assert.True(_follower.Store.TryAppend(bodies[1], out _));
    }

    [Fact]
    public void Truncate_PowerLostAfterIt_KeepsTheTailAside()
    {
        _leader.Lead(1);
        var common = _leader.Store.Log.Last;
        _leader.Put("a", new string('t', 5000));
        _leader.Store.Writes.StopLeading();
        _leader.Store.Committed.Truncate(common.Etag);
        _leader.Run();
        Assert.Equal([common], _leader.CutsTold);
        _leader.Store.Dispose();
        _leader.Disk.Restart(UnsyncedWrites.Dropped);
        var kept = Assert.Single(_leader.Disk.List(ReplicaBench.DirectoryPath + "/aside"));
        Assert.InRange(_leader.Disk.ReadAll($"{ReplicaBench.DirectoryPath}/aside/{kept}").Length, 5000, 6000);
    }

    [Fact]
    public void Truncate_DivergedTail_IsReplacedAndKeptAsideAndGoneAfterReopen()
    {
        _leader.Lead(1);
        _leader.Put("a", "1");
        _follower.Follow(_leader);
        _follower.Commit(_leader.Store.Log.Last.Etag);
        var common = _leader.Store.Log.Last;
        // The old leader continues alone; the follower has a new leader.
        _leader.Put("a", "old");
        _leader.Put("b", "old");
        _leader.Store.Writes.StopLeading();
        _follower.Lead(2);
        _follower.Put("a", "new");

        _leader.Store.Committed.Truncate(common.Etag);
        Assert.Equal(common, _leader.Store.Log.Last);
        Assert.Equal(common, _leader.Store.Durable.Last);
        _leader.Follow(_follower);
        Assert.Equal([common], _leader.CutsTold);
        Assert.Single(_leader.Disk.List(ReplicaBench.DirectoryPath + "/aside"));
        _leader.Reopen();
        Assert.Equal(_follower.Store.Log.Last, _leader.Store.Log.Last);
        _leader.Commit(_leader.Store.Log.Last.Etag);
        _follower.Commit(_follower.Store.Log.Last.Etag);
        Assert.Equal(("new", null), (_leader.Read("a"), _leader.Read("b")));
        Assert.Equal(_follower.Digest(), _leader.Digest());
    }

    [Fact]
    public void Truncate_WhileTheTailIsBeingWritten_ReportsNoTruncatedRecord()
    {
        _leader.Lead(1);
        _leader.Put("a", "1");
        _leader.Put("b", "2");
        var bodies = _leader.BodiesAfter(Etag.None);
        Assert.True(_follower.Store.TryAppend(bodies[0], out var first));
        Assert.True(_follower.Store.TryAppend(bodies[1], out _));
        _follower.Store.Committed.Truncate(first.Etag);
        Assert.True(_follower.Store.TryAppend(bodies[1], out var again));
        _follower.Run();
        Assert.Equal([first, again], _follower.DurableTold.Distinct());
        Assert.Equal([first], _follower.CutsTold);
        Assert.Equal(again, _follower.Store.Durable.Last);
    }

    [Fact]
    public void Truncate_ToTheVeryBeginning_StartsTheJournalAgain()
    {
        _leader.Lead(1);
        _leader.Put("a", "1");
        _follower.Follow(_leader);
        _follower.Store.Committed.Truncate(Etag.None);
        _follower.Run();
        _follower.Reopen();
        Assert.Equal(default, _follower.Store.Log.Last.Etag);
        _follower.Follow(_leader);
        _follower.Commit(_leader.Store.Log.Last.Etag);
        Assert.Equal("1", _follower.Read("a"));
    }

    [Fact]
    public void Open_RecordsBehindCommitted_StayPrepared()
    {
        _leader.Lead(1);
        _leader.Put("a", "1");
        var committed = _leader.Store.Log.Last;
        _leader.Put("b", "2");
        _leader.Store.Log.WriteControl(_leader.Store.Durable.Control with { Committed = committed.Etag });
        _leader.Run();
        Assert.Equal(committed.Etag, _leader.ControlTold[^1].Committed);
        _leader.Reopen();
        Assert.Equal(("1", null), (_leader.Read("a"), _leader.Read("b")));
        Assert.Equal(committed.Etag, _leader.Store.Pages.Roots.PublishedEtag);
        Assert.Equal(committed.Change + 1, _leader.Store.Log.Last.Change);
    }

    [Fact]
    public void ReadBodies_BeyondMemoryAndBeyondTheJournal_ReadsSegmentsOrReportsTheGap()
    {
        using var small = new ReplicaBench(new(3), StoreBench.SmallOptions with { RecentBodyBytesMax = 500 });
        small.Lead(1);
        for (var index = 0; index < 60; index++)
            small.Put($"key-{index}", new string('v', 100));
        small.Commit(small.Store.Log.Last.Etag);
        var bodies = small.BodiesAfter(Etag.None);
        Assert.Equal(61, bodies.Count);
        Assert.All(bodies, body => Assert.True(RecordBody.TryVerify(body.Span, out _)));
        var some = new List<ReadOnlyMemory<byte>>();
        Assert.Equal(2, small.Store.Reader.ReadBodies(new Etag(1, 10), (2 * bodies[20].Length) + 1, some));
        Assert.Equal(bodies[10].ToArray(), some[0].ToArray());
        for (var round = 0; round < 2; round++)
        {
            small.Put("more", "x");
            small.Commit(small.Store.Log.Last.Etag);
            _ = small.Store.Checkpoints.RequestAsync();
            small.Run();
        }
        Assert.Equal(-1, small.Store.Reader.ReadBodies(Etag.None, 100, some));
        Assert.True(small.Store.Reader.TryFindAtOrBefore(small.Store.Log.Last.Etag with { Epoch = small.Store.Log.Last.Epoch + 1 }, out var last));
        Assert.Equal(small.Store.Log.Last, last);
    }

    [Fact]
    public void Commit_RecordWithUnknownOperation_StopsTheReplica()
    {
        _leader.Lead(1);
        var body = RecordBody.Encode(_leader.Store.Log.Last, RecordFlags.None, 1, 1, 0, [5, 0], out _);
        _follower.Follow(_leader);
        Assert.True(_follower.Store.TryAppend(body, out var record));
        _follower.Run();
        _follower.Commit(record.Etag);
        _follower.Run();
        Assert.IsType<UnreadableRecordException>(_follower.FailureTold);
        Assert.Throws<StoreStoppedException>(() => _follower.Store.OpenSnapshot());
    }

    [Fact]
    public void Operations_ReadBack_EqualTheWrittenOnes()
    {
        var payload = new ByteBuffer(16);
        Operations.Put(payload, "key"u8, "value"u8, new KeyLife(77, default));
        Operations.Delete(payload, "gone"u8);
        Operations.DeleteRange(payload, "a"u8, "bc"u8);
        Operations.SetMember(payload, OperationCode.SetAdd, "s"u8, "one"u8);
        Operations.SetMember(payload, OperationCode.SetRemove, "s"u8, "two"u8);
        Assert.Equal(
            "01036B657901" + "4D" + "0576616C7565" + "0204676F6E65" + "080161026263" + "030173036F6E65" + "0401730374776F",
            Convert.ToHexString(payload.Written));
        var reader = new OperationReader(payload.Written);
        Assert.True(reader.MoveNext());
        Assert.Equal(new KeyLife(77, default), reader.Life);
        Assert.True(reader.MoveNext());
        Assert.Equal(OperationCode.Delete, reader.Code);
        Assert.True(reader.MoveNext());
        Assert.Equal(OperationCode.DeleteRange, reader.Code);
        Assert.True(reader.Key.SequenceEqual("a"u8) && reader.KeyEnd.SequenceEqual("bc"u8));
        Assert.True(reader.MoveNext());
        Assert.Equal(OperationCode.SetAdd, reader.Code);
        Assert.True(reader.Key.SequenceEqual("s"u8) && reader.Member.SequenceEqual("one"u8));
        Assert.True(reader.MoveNext());
        Assert.Equal(OperationCode.SetRemove, reader.Code);
        Assert.True(reader.Key.SequenceEqual("s"u8) && reader.Member.SequenceEqual("two"u8));
        Assert.False(reader.MoveNext());
    }

    [Theory]
    [InlineData(0)]
    [InlineData(2_049)]
    public void Request_KeyOrMemberOfASetBeyondItsLimits_IsRefused(int bytes)
    {
        var request = WriteRequest.Rent();
        Assert.Throws<ArgumentOutOfRangeException>(() => request.SetAdd("key"u8, new byte[bytes]));
        Assert.Throws<ArgumentOutOfRangeException>(() => request.SetAdd(new byte[bytes], "member"u8));
        Assert.Throws<ArgumentOutOfRangeException>(() => request.SetRemove("key"u8, new byte[bytes]));
        Assert.Throws<ArgumentOutOfRangeException>(() => request.SetRemove(new byte[bytes], "member"u8));
        Assert.Throws<ArgumentOutOfRangeException>(() => request.SetDelete(new byte[bytes]));
        Assert.Equal(0, request.OperationCount);
        request.Return();
    }

    /// <summary>Adding what is there and removing what is not take changes, and change nothing else: not even the etag of the set.</summary>
    [Fact]
    public void Commit_SetOperationsOnLeaderAndFollower_GivesEqualTrees()
    {
        _leader.Lead(3);
        for (var round = 0; round < 6; round++)
        {
            var first = round;
            _leader.Submit(request =>
            {
                for (var member = 0; member < 40; member++)
                {
                    request.SetAdd("set"u8, StoreBench.Text($"member-{first * member}-{new string('m', 30)}"));
                    request.SetRemove("set"u8, StoreBench.Text($"member-{member * 7}-{new string('m', 30)}"));
                }
                request.SetAdd("other"u8, "same"u8);
            }, thenAppend: true);
            _leader.Run();
        }
        _follower.Follow(_leader);
        foreach (var replica in (ReplicaBench[])[_leader, _follower])
            replica.Commit(_leader.Store.Log.Last.Etag);
        Assert.Equal(_leader.Digest(), _follower.Digest());
        using var snapshot = _follower.Store.OpenSnapshot();
        Assert.True(snapshot.TryGetSet("set"u8, out var set) && set.Count > 60 && set.IsPromoted);
        Assert.True(snapshot.TryGetSet("other"u8, out var other) && other.Count == 1);
        Assert.True(other.Etag < set.Etag && other.Etag.Change <= 82, $"The set has the etag {other.Etag}.");
    }

    private static void Checkpoint(ReplicaBench bench)
    {
        var done = bench.Store.Checkpoints.RequestAsync();
        bench.Run();
        Assert.True(done.IsCompletedSuccessfully);
    }
}
