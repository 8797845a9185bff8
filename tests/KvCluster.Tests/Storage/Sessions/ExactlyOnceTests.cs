using KvCluster.Storage.Encoding;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Sessions;

/// <summary>Identified requests are applied once. Repetitions get the first answer, across restart and failover, until the request is closed (F22).</summary>
public sealed class ExactlyOnceTests : IDisposable
{
    private readonly ReplicaBench _bench = new(new(1));

    public void Dispose() => _bench.Dispose();

    [Fact]
    public void RepeatedPut_IsAppliedOnce_AndGetsTheFirstEtag()
    {
        var session = Open();
        var first = Append(session, 1, 1, Put("k", "v"));
        _bench.Append(Put("k", "other"));
        var last = _bench.Store.Log.Last;
        var again = Submit(session, 1, 1, Put("k", "v"));
        Assert.False(_bench.AppendBatch());
        Assert.Equal(first, StoreBench.Answer(again));
        Assert.Equal(("other", last), (_bench.Read("k"), _bench.Store.Log.Last));
    }

    [Fact]
    public void RepeatedDelete_ReportsAgainThatTheKeyExisted()
    {
        var session = Open();
        _bench.Append(Put("k", "v"));
        var first = Append(session, 1, 1, Delete("k"));
        Assert.True(first.Existed);
        Assert.Equal(first, Repeat(session, 1, 1, Delete("k")));
    }

    [Fact]
    public void RepeatedFailedCondition_FailsAgain_ThoughItWouldHoldNow()
    {
        var session = Open();
        var first = Append(session, 1, 1, PutIfExists("k"));
        Assert.Equal(WriteOutcome.ConditionFailed, first.Outcome);
        _bench.Append(Put("k", "v"));
        Assert.Equal(first, Repeat(session, 1, 1, PutIfExists("k")));
        Assert.Equal("v", _bench.Read("k"));
    }

    [Fact]
    public void RepeatedInTheSameBatch_IsAppliedOnce()
    {
        var session = Open();
        var first = Submit(session, 1, 1, Put("k", "v"));
        var again = Submit(session, 1, 1, Put("k", "v"));
        var change = _bench.Store.Log.Last.Change;
        Assert.True(_bench.AppendBatch());
        Assert.Equal(change + 1, _bench.Store.Log.Last.Change);
        Commit();
        Assert.Equal(StoreBench.Answer(first), StoreBench.Answer(again));
    }

    [Fact]
    public void Duplicate_OfAnUncommittedRequest_IsAnsweredWhenThatIsCommitted()
    {
        var session = Open();
        var first = Submit(session, 1, 1, Put("k", "v"), thenAppend: true);
        var again = Submit(session, 1, 1, Put("k", "v"));
        Assert.False(_bench.AppendBatch());
        Assert.False(again.IsCompleted);
        Commit();
        Assert.Equal(StoreBench.Answer(first), StoreBench.Answer(again));
    }

    [Fact]
    public void FailedCondition_IsAnsweredWhenItsRecordIsCommitted_WithoutALease()
    {
        var session = Open();
        _bench.AnswersReads = false;
        var answer = Submit(session, 1, 1, PutIfExists("k"), thenAppend: true);
        Assert.False(answer.IsCompleted);
        Commit();
        Assert.Equal(WriteOutcome.ConditionFailed, StoreBench.Answer(answer).Outcome);
    }

    [Fact]
    public void UnknownSession_IsRefusedAndNotExecuted_ByAConfirmedLeader()
    {
        Open();
        _bench.AnswersReads = false;
        var answer = Submit(77, 1, 1, Put("k", "v"));
        Assert.False(_bench.AppendBatch());
        Assert.False(answer.IsCompleted);
        _bench.Store.Writes.ReleaseReadAnswers(_bench.Store.Writes.HeldReadAnswers);
        _bench.Run();
        Assert.Equal((WriteOutcome.SessionExpired, null), (StoreBench.Answer(answer).Outcome, _bench.Read("k")));
    }

    [Fact]
    public void BelowTheLowestOpen_IsRefused_AndTheResultsAreDropped()
    {
        var session = Open();
        for (var sequence = 1ul; sequence <= 200; sequence++)
            Append(session, sequence, 1, Put("k", $"{sequence}"));
        Assert.Equal(4 + 4, _bench.Sessions().Count);
        Append(session, 201, 200, Put("k", "201"));
        Assert.Equal(4 + 1, _bench.Sessions().Count);
        Assert.Equal(WriteOutcome.SequenceClosed, Repeat(session, 199, 199, Put("k", "199")).Outcome);
        Assert.Equal(WriteOutcome.Applied, Repeat(session, 200, 200, Put("k", "200")).Outcome);
        Assert.Equal("201", _bench.Read("k"));
    }

    [Fact]
    public void Sequences_OutOfOrderAndFarApart_AreEachAppliedOnce()
    {
        var session = Open();
        var results = new Dictionary<ulong, WriteResult>();
        foreach (var sequence in (ulong[])[4_096, 1, 64, 63, 65, 2_000])
            results.Add(sequence, Append(session, sequence, 1, Put($"k{sequence}", "v")));
        foreach (var (sequence, result) in results)
            Assert.Equal(result, Repeat(session, sequence, 1, Put($"k{sequence}", "v")));
    }

    [Theory]
    [InlineData(4_097ul, 1ul)]
    [InlineData(1ul, 2ul)]
    [InlineData(0ul, 0ul)]
    [InlineData(ulong.MaxValue, ulong.MaxValue)]
    public void Sequence_ThatNoClientMayUse_IsRefused(ulong sequence, ulong lowestOpen)
    {
        var request = WriteRequest.Rent();
        Assert.Throws<ArgumentOutOfRangeException>(() => request.Identify(1, sequence, lowestOpen));
        request.Return();
    }

    [Fact]
    public void Results_SurviveRestart_FromTheJournalAndFromACheckpoint()
    {
        var session = Open();
        var checkpointed = Append(session, 1, 1, Put("a", "v"));
        _ = _bench.Store.Checkpoints.RequestAsync();
        _bench.Run();
        var replayed = Append(session, 2, 1, Put("b", "v"));
        var failed = Append(session, 3, 1, PutIfExists("c"));
        _bench.Store.Log.WriteControl(_bench.Store.Durable.Control with { Committed = _bench.Store.Log.Last.Etag });
        _bench.Run();
        _bench.Reopen();
        _bench.Lead(4);
        Commit();
        Assert.Equal(checkpointed, Repeat(session, 1, 1, Put("a", "v")));
        Assert.Equal(replayed, Repeat(session, 2, 1, Put("b", "v")));
        Assert.Equal(failed, Repeat(session, 3, 1, PutIfExists("c")));
    }

    [Fact]
    public void Results_SurviveFailover_AndReplicasAgree()
    {
        using var follower = new ReplicaBench(new(2));
        var session = Open();
        var first = Append(session, 1, 1, Put("k", "v"));
        var failed = Append(session, 2, 1, PutIfExists("absent"));
        follower.Follow(_bench);
        follower.Commit(follower.Store.Log.Last.Etag);
        Assert.Equal(_bench.Digest(), follower.Digest());
        // Prepared only: the new leader has it in its journal, not yet committed.
        var unknown = Submit(session, 3, 1, Put("k", "third"), thenAppend: true);
        follower.Follow(_bench);
        _bench.Store.Writes.StopLeading();
        _bench.Run();
        Assert.Equal(WriteOutcome.OutcomeUnknown, StoreBench.Answer(unknown).Outcome);

        follower.Lead(4);
        follower.Commit(follower.Store.Log.Last.Etag);
        foreach (var (sequence, fill, expected) in (IEnumerable<(ulong, Action<WriteRequest>, WriteResult?)>)
                 [(1ul, Put("k", "v"), first), (2ul, PutIfExists("absent"), failed), (3ul, Put("k", "third"), null)])
        {
            var answer = follower.Submit(Identified(session, sequence, 1, fill));
            Assert.False(follower.AppendBatch());
            var result = StoreBench.Answer(answer);
            Assert.Equal(expected ?? result with { Outcome = WriteOutcome.Applied }, result);
        }
        Assert.Equal("third", follower.Read("k"));
        _bench.Follow(follower);
        _bench.Commit(_bench.Store.Log.Last.Etag);
        Assert.Equal(follower.Digest(), _bench.Digest());
    }

    [Fact]
    public void StepDown_AnswersUnknownForWritesAndNotLeaderForTheRest()
    {
        var session = Open();
        var put = Submit(session, 1, 1, Put("k", "v"));
        var duplicate = Submit(session, 1, 1, Put("k", "v"));
        var failed = Submit(session, 2, 1, PutIfExists("absent"));
        var expired = Submit(77, 1, 1, Put("k", "v"), thenAppend: true);
        _bench.Store.Writes.StopLeading();
        _bench.Run();
        Assert.Equal(
            [WriteOutcome.OutcomeUnknown, WriteOutcome.OutcomeUnknown, WriteOutcome.NotLeader, WriteOutcome.NotLeader],
            ((Task<WriteResult>[])[put, duplicate, failed, expired]).Select(answer => StoreBench.Answer(answer).Outcome));
    }

    [Fact]
    public void ResultOfADroppedRecord_IsForgotten_AndTheRequestExecutesAnew()
    {
        var session = Open();
        var committed = _bench.Store.Log.Last.Etag;
        Submit(session, 1, 1, Put("k", "dropped"), thenAppend: true);
        _bench.Store.Writes.StopLeading();
        _bench.Store.Committed.Truncate(committed);
        _bench.Run();
        _bench.Lead(4);
        Commit();
        var result = Append(session, 1, 1, Put("k", "kept"));
        Assert.Equal((4ul, "kept"), (result.Etag.Epoch, _bench.Read("k")));
    }

    [Fact]
    public void IdleSession_EndsByShardTime_InARecord()
    {
        var (idle, active) = (Open(), OpenAnother(2));
        Append(idle, 1, 1, Put("k", "v"));
        var hour = StoreBench.SmallOptions.SessionIdleMax;
        Assert.Equal(WriteOutcome.Applied, At(hour - TimeSpan.FromMinutes(2), Identified(active, 1, 1, Put("a", "v"))).Outcome);
        Assert.Equal(3 + 2 + 2, _bench.Sessions().Count);
        At(hour, Put("other", "v"));
        Assert.Equal(3 + 1 + 1, _bench.Sessions().Count);
        Assert.Equal(WriteOutcome.SessionExpired, At(hour, Identified(idle, 1, 1, Put("k", "again"))).Outcome);
        Assert.Equal(WriteOutcome.Applied, At(hour, Identified(active, 1, 1, Put("a", "v"))).Outcome);
        Assert.Equal("v", _bench.Read("k"));
    }

    /// <summary>
    /// A leader's wall clock was a year ahead. Its first record ended all sessions of the shard, and for a year afterwards no session aged, so a full
    /// table stayed full and nobody could open a session.
    /// </summary>
    [Theory]
    [InlineData(1)]
    [InlineData(365 * 24)]
    public void WallClockAhead_AndThenBack_EndsNoSessionAndStopsNoAgeing(int hoursAhead)
    {
        using var bench = new ReplicaBench(new(1), StoreBench.SmallOptions with { SessionsMax = 2 });
        bench.Lead(3);
        var (one, other) = (bench.OpenSession(1), bench.OpenSession(2));
        var ahead = ReplicaBench.WallTime + TimeSpan.FromHours(hoursAhead);
        for (var second = 1; second <= 20; second++)
        {
            bench.Time.Advance(TimeSpan.FromSeconds(1));
            Assert.Equal(WriteOutcome.Applied, AppendAt(ahead, Put("k", $"{second}")).Outcome);
        }
        Assert.Equal(WriteOutcome.Applied, AppendAt(ahead, Identified(one, 1, 1, Put("k", "v"))).Outcome);

        // A new leader has the right time. As time passes, the longest-idle session makes way for a new one.
        bench.Store.Writes.StopLeading();
        bench.Lead(4);
        bench.Commit(bench.Store.Log.Last.Etag);
        bench.Run();
        Assert.Equal(WriteOutcome.Applied, AppendAt(ReplicaBench.WallTime, Identified(other, 1, 1, Put("k", "v"))).Outcome);
        // A full table keeps sessions that were idle for less than a minute.
        var since = ReplicaBench.WallTime;
        for (var turn = 1; turn <= 8; turn++)
        {
            bench.Time.Advance(TimeSpan.FromSeconds(30));
            since += TimeSpan.FromSeconds(30);
            Assert.Equal(WriteOutcome.Applied, AppendAt(since, Identified(other, (ulong)turn + 1, 1, Put("k", "v"))).Outcome);
        }
        Assert.Equal(WriteOutcome.Applied, AppendAt(since, request => request.OpenSession(3, ReplicaBench.Owner)).Outcome);
        Assert.Equal(WriteOutcome.SessionExpired, AppendAt(since, Identified(one, 2, 1, Put("k", "w"))).Outcome);

        WriteResult AppendAt(DateTimeOffset wallTime, Action<WriteRequest> fill)
        {
            var answer = bench.Submit(fill);
            bench.AppendBatch(wallTime);
            bench.Commit(bench.Store.Log.Last.Etag);
            bench.Run();
            return StoreBench.Answer(answer);
        }
    }

    [Fact]
    public void Session_RequestRepeated_DoesNotExpire()
    {
        var session = Open();
        var first = Append(session, 1, 1, Put("k", "v"));
        // Activity of another session advances shard time. The session of the open request was idle for less than the limit.
        var later = At(StoreBench.SmallOptions.SessionIdleMax - TimeSpan.FromSeconds(1), Put("other", "v"));
        Assert.Equal(WriteOutcome.Applied, later.Outcome);
        Assert.Equal(first, At(StoreBench.SmallOptions.SessionIdleMax - TimeSpan.FromSeconds(1), Identified(session, 1, 1, Put("k", "v"))));
    }

    [Fact]
    public void TooManySessions_EndTheLongestIdle_AndOnlyThose()
    {
        using var bench = new ReplicaBench(new(1), StoreBench.SmallOptions with { SessionsMax = 3 });
        bench.Lead(3);
        var sessions = Enumerable.Range(0, 3).Select(number => bench.OpenSession((ulong)number + 1)).ToArray();
        WriteResult Open(TimeSpan later)
        {
            var answer = bench.Submit(request => request.OpenSession(4, ReplicaBench.Owner));
            bench.AppendBatch(later);
            bench.Commit(bench.Store.Log.Last.Etag);
            bench.Run();
            return StoreBench.Answer(answer);
        }

        Assert.Equal(WriteOutcome.SessionsFull, Open(TimeSpan.FromSeconds(5)).Outcome);
        var active = bench.Submit(Identified(sessions[1], 1, 1, Put("k", "v")));
        bench.AppendBatch(TimeSpan.FromSeconds(30));
        bench.Commit(bench.Store.Log.Last.Etag);
        bench.Run();
        Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(active).Outcome);
        Assert.Equal(WriteOutcome.Applied, Open(TimeSpan.FromSeconds(65)).Outcome);
        var ids = bench.Sessions().Where(entry => entry.StartsWith("01", StringComparison.Ordinal)).Select(entry => entry[2..34]).ToArray();
        Assert.Equal([$"{sessions[1]:X32}", $"{4:X32}"], ids);
    }

    [Fact]
    public void RepeatedRequest_WithResults_GetsThemAgain_OverRestartAndFailover()
    {
        using var follower = new ReplicaBench(new(2));
        var session = Open();
        _ = Append(Put("text", "x"));
        (Action<WriteRequest> Fill, WriteResult Result)[] requests =
            [.. new[] { Adding(5), Adding(-2), Reading(), Transacting() }.Select((fill, index) => (fill, Append(session, (ulong)index + 1, 1, fill)))];
        Assert.Equal(["5", "3"], requests[..2].Select(request => ModelOperation.ResultsOf(request.Result.Results!)[0].Split(' ')[4]));
        Assert.All(requests, request => Assert.Equal(WriteOutcome.Applied, request.Result.Outcome));
        Assert.Equal((0, 1), (requests[3].Result.FailedCondition, ModelOperation.ResultsOf(requests[3].Result.Results!).Count));
        CheckRepeated(_bench);
        Assert.Equal(WriteOutcome.SequenceReused, Repeat(session, 1, 1, Adding(6)).Outcome);
        Assert.Equal(WriteOutcome.SequenceReused, Repeat(session, 1, 1, request => request.Increment("n"u8, 5)).Outcome);

        follower.Follow(_bench);
        follower.Commit(follower.Store.Log.Last.Etag);
        Assert.Equal(_bench.Digest(), follower.Digest());
        _bench.Store.Log.WriteControl(_bench.Store.Durable.Control with { Committed = _bench.Store.Log.Last.Etag });
        _bench.Run();
        _bench.Reopen();
        foreach (var bench in (ReplicaBench[])[_bench, follower])
        {
            bench.Lead(4);
            bench.Commit(bench.Store.Log.Last.Etag);
            bench.Run();
            CheckRepeated(bench);
            Assert.Equal("3", bench.Read("n"));
        }

        void CheckRepeated(ReplicaBench bench)
        {
            for (var index = 0; index < requests.Length; index++)
            {
                var again = bench.Submit(Identified(session, (ulong)index + 1, 1, requests[index].Fill));
                Assert.False(bench.AppendBatch());
                Assert.Equal(requests[index].Result, StoreBench.Answer(again));
            }
        }

        static Action<WriteRequest> Reading() => static request =>
        {
            request.WantsResults = true;
            request.Get("n"u8);
        };

        static Action<WriteRequest> Transacting() => static request =>
        {
            request.WantsResults = true;
            request.AddCondition("n"u8, ConditionKind.Absent);
            request.Delete("n"u8);
            request.BeginFailureList();
            request.Put("other"u8, "v"u8);
        };
    }

    [Fact]
    public void RefusedIncrement_IsNoResult_AndMaySucceedLater()
    {
        var session = Open();
        _ = Append(Put("n", "x"));
        Assert.Equal(WriteOutcome.NotANumber, Repeat(session, 1, 1, Adding(1)).Outcome);
        _ = Append(Put("n", "7"));
        Assert.Equal(WriteOutcome.Applied, Append(session, 1, 1, Adding(1)).Outcome);
        Assert.Equal("8", _bench.Read("n"));
    }

    [Fact]
    public void ResultsOfOperations_AreDroppedWithTheOthers_AndAtTheEndOfTheirSession()
    {
        var session = Open();
        for (var sequence = 1ul; sequence <= 130; sequence++)
            Append(session, sequence, 1, Adding(1));
        Assert.Equal(130, Kept());
        Append(session, 131, 129, Adding(1));
        Assert.Equal(4, Kept());
        At(StoreBench.SmallOptions.SessionIdleMax, Put("other", "v"));
        At(StoreBench.SmallOptions.SessionIdleMax * 2, Put("other", "v"));
        Assert.Equal(["00"], _bench.Sessions().Select(static entry => entry[..2]));

        int Kept() => _bench.Sessions().Count(static entry => entry.StartsWith("06", StringComparison.Ordinal));
    }

    [Fact]
    public void Results_OfAnIdentifiedRequest_HaveASmallerBound()
    {
        var session = Open();
        _ = Append(request => request.Put("large"u8, new byte[KvLimits.KeptResultsBytesMax]));
        Action<WriteRequest> read = static request =>
        {
            request.WantsResults = true;
            request.Get("large"u8);
        };
        Assert.Equal(WriteOutcome.ResultsTooLarge, Repeat(session, 1, 1, read).Outcome);
        var answer = _bench.Submit(read);
        Assert.False(_bench.AppendBatch());
        Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome);
    }

    /// <summary>A client counted wrongly: its second change was acknowledged with the first one's etag and never applied.</summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public void AnotherRequest_UnderASequenceWithAResult_IsRefused_AndTheFirstAnswerStays(bool inTheSameBatch)
    {
        var session = Open();
        var first = Submit(session, 1, 1, Put("k", "v"), thenAppend: !inTheSameBatch);
        Task<WriteResult>[] others = [.. new[] { Put("k", "w"), Put("l", "v"), Delete("k"), PutIfExists("k") }.Select(fill => Submit(session, 1, 1, fill))];
        Assert.Equal(inTheSameBatch, _bench.AppendBatch());
        Commit();
        Assert.All(others, answer => Assert.Equal(WriteOutcome.SequenceReused, StoreBench.Answer(answer).Outcome));
        Assert.Equal(StoreBench.Answer(first), Repeat(session, 1, 1, Put("k", "v")));
        Assert.Equal("v", _bench.Read("k"));
    }

    /// <summary>One client could open as many sessions as a shard has and keep them all active, so nobody else got one.</summary>
    [Fact]
    public void SessionsOfOneOwner_FillTheShard_AndMakeRoomForOthersUpToEqualShares()
    {
        using var bench = new ReplicaBench(new(1), StoreBench.SmallOptions with { SessionsMax = 12 });
        bench.Lead(3);
        var greedy = new QuotaOwner(7, 1);
        for (var id = 1u; id <= 12; id++)
            Assert.Equal(WriteOutcome.Applied, bench.TryOpenSession(id, greedy));
        Assert.Equal(WriteOutcome.SessionsFull, bench.TryOpenSession(13, greedy));
        // Another connection from the same address, and callers from other addresses: the longest-idle session of the owner with the most sessions ends.
        Assert.Equal(WriteOutcome.Applied, bench.TryOpenSession(20, new QuotaOwner(7, 2)));
        for (var id = 30u; id < 37; id++)
            Assert.Equal(id < 36 ? WriteOutcome.Applied : WriteOutcome.SessionsFull, bench.TryOpenSession(id, new QuotaOwner(8, 1)));
        Assert.Equal(WriteOutcome.Applied, bench.TryOpenSession(21, new QuotaOwner(7, 2)));
        Assert.Equal(WriteOutcome.SessionsFull, bench.TryOpenSession(14, greedy));
        Assert.Equal(Enumerable.Range(9, 4).Concat([20, 21]).Concat(Enumerable.Range(30, 6)).Select(id => $"{id:X32}"), bench.SessionIds());
    }

    [Fact]
    public void SessionWithARequestInTheBatch_IsNotEvictedByIt()
    {
        using var bench = new ReplicaBench(new(1), StoreBench.SmallOptions with { SessionsMax = 3 });
        bench.Lead(3);
        for (var id = 1u; id <= 3; id++)
            bench.TryOpenSession(id, new QuotaOwner(7, 1));
        var written = bench.Submit(Identified(1, 1, 1, Put("k", "v")));
        Assert.Equal(WriteOutcome.Applied, bench.TryOpenSession(4, new QuotaOwner(8, 1)));
        Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(written).Outcome);
        Assert.Equal(new[] { 1, 3, 4 }.Select(id => $"{id:X32}"), bench.SessionIds());
    }

    private static Action<WriteRequest> Put(string key, string value) => request => request.Put(StoreBench.Text(key), StoreBench.Text(value));

    private static Action<WriteRequest> Delete(string key) => request => request.Delete(StoreBench.Text(key));

    private static Action<WriteRequest> PutIfExists(string key) => request =>
    {
        request.AddCondition(StoreBench.Text(key), ConditionKind.Exists);
        request.Put(StoreBench.Text(key), StoreBench.Text("conditional"));
    };

    private static Action<WriteRequest> Adding(long by) => request =>
    {
        request.WantsResults = true;
        request.Increment("n"u8, by);
    };

    private static Action<WriteRequest> Identified(UInt128 session, ulong sequence, ulong lowestOpen, Action<WriteRequest> fill) => request =>
    {
        request.Identify(session, sequence, lowestOpen);
        fill(request);
    };

    private UInt128 Open()
    {
        _bench.Lead(3);
        return _bench.OpenSession(1);
    }

    private UInt128 OpenAnother(ulong id) => _bench.OpenSession(id);

    private WriteResult Append(Action<WriteRequest> fill) => _bench.Append(fill);

    private WriteResult Append(UInt128 session, ulong sequence, ulong lowestOpen, Action<WriteRequest> fill) =>
        Append(Identified(session, sequence, lowestOpen, fill));

    private Task<WriteResult> Submit(UInt128 session, ulong sequence, ulong lowestOpen, Action<WriteRequest> fill, bool thenAppend = false) =>
        _bench.Submit(Identified(session, sequence, lowestOpen, fill), thenAppend);

    /// <summary>Submits a request that produces no record.</summary>
    private WriteResult Repeat(UInt128 session, ulong sequence, ulong lowestOpen, Action<WriteRequest> fill)
    {
        var answer = Submit(session, sequence, lowestOpen, fill);
        Assert.False(_bench.AppendBatch());
        return StoreBench.Answer(answer);
    }

    private WriteResult At(TimeSpan later, Action<WriteRequest> fill)
    {
        var answer = _bench.Submit(fill);
        _bench.AppendBatch(later);
        Commit();
        return StoreBench.Answer(answer);
    }

    private void Commit()
    {
        _bench.Commit(_bench.Store.Log.Last.Etag);
        _bench.Run();
    }
}
