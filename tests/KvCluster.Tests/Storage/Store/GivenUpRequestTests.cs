using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>Requests whose callers stopped waiting. They used to keep their place in the queue and were applied anyway, however much later.</summary>
public sealed class GivenUpRequestTests : IDisposable
{
    private readonly ReplicaBench _bench = new(new(1));

    public void Dispose() => _bench.Dispose();

    [Fact]
    public async Task GiveUp_InTheQueue_IsAnsweredAtOnceAndNeverApplied()
    {
        _bench.Lead(3);
        var before = Submit("before", out _);
        var change = Submit("k", out var answer);
        var behind = Submit("behind", out _);
        change.GiveUp();
        Assert.Equal(WriteResult.Of(WriteOutcome.GivenUp), await answer.WaitAsync(Eventually.Limit));
        Commit();
        Assert.Null(_bench.Read("k"));
        Assert.Equal(("v", "v"), (_bench.Read("before"), _bench.Read("behind")));
        Assert.NotEqual(before.Request, behind.Request);
    }

    [Fact]
    public async Task GiveUp_AllWaitingRequests_AppendsNoRecord()
    {
        _bench.Lead(3);
        var last = _bench.Store.Log.Last;
        var change = Submit("k", out var answer);
        change.GiveUp();
        await answer.WaitAsync(Eventually.Limit);
        Assert.False(_bench.AppendBatch());
        Assert.Equal(last, _bench.Store.Log.Last);
        Assert.True(_bench.Store.Requests.Queue.IsEmpty);
    }

    /// <summary>Its record may already be on its way to other replicas, so the answer is its outcome.</summary>
    [Fact]
    public void GiveUp_RequestTakenByTheWriter_ChangesNothing()
    {
        _bench.Lead(3);
        var change = Submit("k", out var answer);
        Assert.True(_bench.AppendBatch());
        change.GiveUp();
        Assert.False(answer.IsCompleted);
        _bench.Commit(_bench.Store.Log.Last.Etag);
        _bench.Run();
        Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome);
        Assert.Equal("v", _bench.Read("k"));
    }

    /// <summary>Request objects are reused. Giving up too late must not affect the next request in the same object.</summary>
    [Fact]
    public async Task GiveUp_AfterTheAnswer_DoesNotAffectTheNextRequestInTheObject()
    {
        _bench.Lead(3);
        var earlier = new Dictionary<WriteRequest, QueuedChange>();
        // The pool hands out everything that other tests left in it before the first object comes back.
        for (var (round, again) = (0, 0); again < 50; round++)
        {
            var changes = Enumerable.Range(0, 64).Select(number => (Change: Submit($"k{number}", out var answer), Answer: answer)).ToList();
            foreach (var (change, _) in changes)
            {
                if (earlier.TryGetValue(change.Request, out var late))
                {
                    late.GiveUp();
                    again++;
                }
                earlier[change.Request] = change;
            }
            // Objects return to the pool through the queue or the answer, whichever is later.
            var givenUp = changes.Where((_, number) => number % 8 < 2).ToList();
            givenUp.ForEach(static change => change.Change.GiveUp());
            if (round % 2 == 0)
                await Task.WhenAll(givenUp.Select(static change => change.Answer)).WaitAsync(Eventually.Limit);
            Commit();
            var results = await Task.WhenAll(changes.Select(static change => change.Answer)).WaitAsync(Eventually.Limit);
            Assert.Equal(
                changes.Select((_, number) => number % 8 < 2 ? WriteOutcome.GivenUp : WriteOutcome.Applied), results.Select(static result => result.Outcome));
        }
    }

    /// <summary>Nothing was recorded under its sequence number, so a repetition is executed, and so is a different change.</summary>
    [Fact]
    public async Task GiveUp_OfAnIdentifiedChange_LeavesItsSequenceOpen()
    {
        _bench.Lead(3);
        var session = _bench.OpenSession(1);
        var change = Submit("k", out var answer, request => request.Identify(session, 1, 1));
        change.GiveUp();
        Assert.Equal(WriteOutcome.GivenUp, (await answer.WaitAsync(Eventually.Limit)).Outcome);
        var again = Submit("k", out var second, request => request.Identify(session, 1, 1));
        var next = Submit("l", out var third, request => request.Identify(session, 2, 1));
        Commit();
        Assert.Equal((WriteOutcome.Applied, WriteOutcome.Applied), (StoreBench.Answer(second).Outcome, StoreBench.Answer(third).Outcome));
        Assert.Equal(("v", "v"), (_bench.Read("k"), _bench.Read("l")));
        again.GiveUp();
        next.GiveUp();
    }

    /// <summary>As for a unary call, where only the closed connection shows that the caller has gone.</summary>
    [Fact]
    public async Task GiveUpWith_CallerCancels_GivesUpTheWaitingRequest()
    {
        _bench.Lead(3);
        using var caller = new CancellationTokenSource();
        var change = Submit("k", out var answer);
        using var registration = change.GiveUpWith(caller.Token);
        await caller.CancelAsync();
        Assert.Equal(WriteOutcome.GivenUp, (await answer.WaitAsync(Eventually.Limit)).Outcome);
        Assert.False(_bench.AppendBatch());
    }

    /// <summary>Places in the queue are free at once. A caller that gives up all its requests fills neither a blocked queue nor memory.</summary>
    [Fact]
    public async Task GiveUp_MoreThanTheQueueHolds_KeepsTheOthersQueued()
    {
        const int Places = 8;
        using var bench = new ReplicaBench(new(1), StoreBench.SmallOptions with { QueueCountMax = Places });
        bench.Lead(3);
        var dropped = await GiveUpAllAsync(Fill("first"));
        Assert.All(dropped, static outcome => Assert.Equal(WriteOutcome.GivenUp, outcome));
        var second = Fill("second");
        second.ForEach(static change => change.Change.GiveUp());
        var refused = WriteRequest.Rent();
        refused.Put("refused"u8, "v"u8);
        Assert.False(bench.Store.Requests.TrySubmit(refused));
        refused.Return();
        Assert.DoesNotContain(second, static change => change.Answer.IsCompleted);
        bench.AppendBatch();
        bench.Commit(bench.Store.Log.Last.Etag);
        bench.Run();
        Assert.All(second, static change => Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(change.Answer).Outcome));
        // Everything once more: nothing was left in the queue.
        dropped = await GiveUpAllAsync(Fill("third"));
        Assert.All(dropped, static outcome => Assert.Equal(WriteOutcome.GivenUp, outcome));
        Assert.False(bench.AppendBatch());
        Assert.Equal(("v", null), (bench.Read("second0"), bench.Read("third0")));

        List<(QueuedChange Change, Task<WriteResult> Answer)> Fill(string key) => [.. Enumerable.Range(0, Places).Select(number =>
        {
            QueuedChange change = default;
            var answer = bench.Submit(request =>
            {
                change = new QueuedChange(request, request.Life);
                request.Put(StoreBench.Text($"{key}{number}"), "v"u8);
            });
            return (change, answer);
        })];

        static async Task<WriteOutcome[]> GiveUpAllAsync(List<(QueuedChange Change, Task<WriteResult> Answer)> changes)
        {
            changes.ForEach(static change => change.Change.GiveUp());
            return [.. (await Task.WhenAll(changes.Select(static change => change.Answer)).WaitAsync(Eventually.Limit))
                .Select(static result => result.Outcome)];
        }
    }

    /// <summary>The writer or the caller may take the request first. The answer is always its real outcome.</summary>
    [Fact]
    public async Task GiveUp_WhileTheWriterTakesTheRequest_HasOneOutcome()
    {
        _bench.Lead(3);
        for (var round = 0; round < 50; round++)
        {
            var changes = Enumerable.Range(0, 40)
                .Select(index => (Key: $"k{round}-{index}", Change: Submit($"k{round}-{index}", out var answer), Answer: answer)).ToList();
            var givingUp = Task.Run(() => changes.ForEach(static change => change.Change.GiveUp()));
            Commit();
            await givingUp;
            Commit();
            foreach (var (key, _, answer) in changes)
            {
                var outcome = (await answer.WaitAsync(Eventually.Limit)).Outcome;
                Assert.Equal(outcome switch { WriteOutcome.Applied => "v", WriteOutcome.GivenUp => null, _ => outcome.ToString() }, _bench.Read(key));
            }
        }
        Assert.True(_bench.Store.Requests.Queue.IsEmpty);
    }

    private QueuedChange Submit(string key, out Task<WriteResult> answer, Action<WriteRequest>? prepare = null)
    {
        QueuedChange? submitted = null;
        answer = _bench.Submit(request =>
        {
            submitted = new QueuedChange(request, request.Life);
            prepare?.Invoke(request);
            request.Put(StoreBench.Text(key), "v"u8);
        });
        return submitted!.Value;
    }

    private void Commit()
    {
        _bench.AppendBatch();
        _bench.Commit(_bench.Store.Log.Last.Etag);
        _bench.Run();
    }
}
