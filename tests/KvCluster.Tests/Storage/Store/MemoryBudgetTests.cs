using KvCluster.Disk;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using Microsoft.Extensions.Logging.Abstractions;
using Xunit.Abstractions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>Stores on one budget: they slow, write checkpoints and go on, and together stay within it.</summary>
public sealed class MemoryBudgetTests : IDisposable
{
    private const int Stores = 40;
    private const int Keys = 400;
    private const long Budget = 16 << 20;

    /// <summary>A value that has a leaf for itself.</summary>
    private const int PageValueBytes = 6_000;

    private readonly ManualTime _time = new();
    private readonly SimulatedDisk _disk = new();
    private readonly StepExecutor _writer = new();
    private readonly StepExecutor _checkpoints = new();
    private readonly StepExecutor _completions = new();
    private readonly MemoryAccount _account;
    private readonly ITestOutputHelper _output;
    private readonly List<StandaloneStore> _stores = [];
    private bool _writesCheckpoints = true;

    public MemoryBudgetTests(ITestOutputHelper output)
    {
        _output = output;
        _account = new MemoryAccount(Budget, _time);
    }

    public void Dispose() => _stores.ForEach(static store => store.Dispose());

    // Each store kept to its own bounds, and 40 of them took 40 times as much as one.
    [Fact]
    public void ManyStores_UnderRandomPuts_StayWithinTheBudgetAndAnswerAll()
    {
        // A store by itself would begin a checkpoint at the budget of all.
        Open(Stores, new StoreOptions
        {
            CheckpointScratchBytes = Budget, SegmentBytesMin = 64 << 10, SegmentBytesMax = 256 << 10,
            RetainedJournalBytes = 0, ReserveBytes = 4096, CheckpointInterval = TimeSpan.FromDays(1)
        });
        var random = new Random(7);
        var answers = new List<Task<WriteResult>>();
        var most = 0L;
        for (var round = 0; round < 60; round++)
        {
            foreach (var store in _stores)
            {
                answers.Add(Put(store, random.Next(Keys), 2_000));
                answers.Add(Put(store, random.Next(Keys), 2_000));
            }
            for (var step = 0; step < 10; step++)
            {
                _time.Advance(TimeSpan.FromMilliseconds(20));
                Run(limit: 400);
                most = Math.Max(most, _account.Used);
            }
        }
        for (var step = 0; step < 3_000 && !answers.TrueForAll(static answer => answer.IsCompleted); step++)
        {
            _time.Advance(TimeSpan.FromMilliseconds(20));
            Run(limit: int.MaxValue);
        }
        Assert.All(answers, static answer => Assert.Equal(WriteOutcome.Applied, answer.Result.Outcome));
        Assert.InRange(most, Budget / 4, Budget);
    }

    [Fact]
    public void StoreThatFills_IsSlowedThenWritesACheckpointAndReturnsItsMemory()
    {
        Open(1, new StoreOptions { SegmentBytesMin = 64 << 10, RetainedJournalBytes = 0, ReserveBytes = 4096 });
        var store = _stores[0];
        // No checkpoint ends.
        _writesCheckpoints = false;
        var answers = new List<Task<WriteResult>>();
        for (var key = 0; !IsSlowed(answers) && key < 10_000; key++)
        {
            answers.Add(Put(store, key, PageValueBytes));
            Run(limit: int.MaxValue);
        }
        Assert.True(IsSlowed(answers), "A store that took all of the budget was never slowed.");
        Assert.InRange(_account.Used, Budget / 2, Budget);
        _writesCheckpoints = true;
        for (var step = 0; step < 500; step++)
        {
            _time.Advance(TimeSpan.FromMilliseconds(20));
            Run(limit: int.MaxValue);
        }
        Assert.All(answers, static answer => Assert.Equal(WriteOutcome.Applied, answer.Result.Outcome));
        Assert.InRange(_account.Used, 0, Budget * 3 / 8);
    }

    // Small records take more memory in the index than on the disk, as long as the journal keeps them for followers. A store that kept its bound in bytes
    // held the node near its budget for ever.
    [Fact]
    public void IndexOfAJournalThatIsOnlyKept_ShrinksWhenMemoryIsShort()
    {
        Open(1, new StoreOptions { SegmentBytesMin = 16 << 10, SegmentBytesMax = 16 << 10, RetainedJournalBytes = 64 << 20, ReserveBytes = 4096 });
        var store = _stores[0];
        for (var record = 0; record < 3_000; record++)
        {
            _ = Put(store, record % 10, 8);
            Run(limit: int.MaxValue);
        }
        for (var times = 0; times < 3; times++)
        {
            _ = Put(store, times, 8);
            var done = store.Store.Checkpoints.RequestAsync();
            Run(limit: int.MaxValue);
            Assert.True(done.IsCompleted);
        }
        var kept = _account.UsedFor(MemoryUse.Journal);
        var other = _account.Join(static () => { }, static () => false);
        // So many that the store's part of the index is a thousand records.
        var others = Enumerable.Range(0, 15).Select(_ => _account.Join(static () => { }, static () => false)).ToList();
        other.Set(MemoryUse.ChangedPages, Budget / 2);
        _time.Advance(TimeSpan.FromSeconds(1));
        for (var times = 0; times < 3; times++)
        {
            _ = Put(store, times, 8);
            Run(limit: int.MaxValue);
            _time.Advance(TimeSpan.FromSeconds(1));
            Run(limit: int.MaxValue);
        }
        Assert.InRange(_account.UsedFor(MemoryUse.Journal), 0, kept - (100 << 10));
        others.ForEach(static one => one.Dispose());
    }

    // Over many keys each put changes another page, so checkpoints of 256 MiB wrote every page again and again.
    [Fact]
    public void StoreWithManyChangedPages_WritesNoCheckpointUntilTheStoresHaveAQuarterOfTheBudget()
    {
        Open(1, new StoreOptions { CheckpointScratchBytes = 64 << 10, SegmentBytesMin = 64 << 10, RetainedJournalBytes = 0, ReserveBytes = 4096 });
        var store = _stores[0];
        var most = 0L;
        for (var key = 0; store.Store.Statistics.CheckpointCounts.Pages == 0 && key < 10_000; key++)
        {
            most = Math.Max(most, _account.UsedFor(MemoryUse.ChangedPages));
            _ = Put(store, key, PageValueBytes);
            Run(limit: int.MaxValue);
        }
        Assert.InRange(most, (Budget / 4) - (64 << 10), Budget / 4);
        Assert.Equal(0, new MemoryAccount(long.MaxValue, _time).ChangedPagesPlenty);
    }

    // Nothing returned them but the next batch, which a quiescent store never gets.
    [Fact]
    public void QuiescentStore_ReturnsWhatReadersHeldAndWhatIsFree()
    {
        Open(1, new StoreOptions { SegmentBytesMin = 64 << 10, ReserveBytes = 4096 });
        PutAll(_stores[0], 400);
        var snapshot = _stores[0].OpenSnapshot();
        PutAll(_stores[0], 400);
        Assert.True(_account.UsedFor(MemoryUse.ReaderPages) > 1 << 20, "The reader holds nothing.");
        Pass(TimeSpan.FromSeconds(30));
        var changed = _account.UsedFor(MemoryUse.ChangedPages);
        Assert.True(_account.UsedFor(MemoryUse.ReaderPages) > 1 << 20, "The reader's pages were returned while it reads.");
        snapshot.Dispose();
        Pass(TimeSpan.FromSeconds(30));
        Assert.Equal((0, 0), (_account.UsedFor(MemoryUse.ReaderPages), _account.UsedFor(MemoryUse.FreePages)));
        // It was returned, and not only counted as something else.
        Assert.InRange(_account.UsedFor(MemoryUse.ChangedPages), 0, changed);
    }

    [Fact]
    public void QuiescentStore_WithManyChangedPages_WritesACheckpointAndReturnsThem()
    {
        Open(1, new StoreOptions
        {
            SegmentBytesMin = 64 << 10, ReserveBytes = 4096, CheckpointQuiescentScratchBytes = 1 << 20, CheckpointQuiescentJournalBytes = long.MaxValue,
        });
        PutAll(_stores[0], 400);
        Assert.True(_account.UsedFor(MemoryUse.ChangedPages) > 1 << 20);
        Pass(TimeSpan.FromSeconds(30));
        Assert.Equal((0, 0), (_account.UsedFor(MemoryUse.ChangedPages), _account.UsedFor(MemoryUse.FreePages)));
    }

    // Such a checkpoint has nothing left to be returned in steps when it ends, so what it left free stayed until the next step of the store. 300 quiescent
    // stores held 33 MB in this way.
    [Fact]
    public void QuiescentStore_AfterACheckpointOfFewPages_ReturnsTheirMemory()
    {
        Open(1, new StoreOptions { SegmentBytesMin = 64 << 10, ReserveBytes = 4096 });
        PutAll(_stores[0], 20);
        Pass(TimeSpan.FromSeconds(30));
        Assert.InRange(_account.UsedFor(MemoryUse.ChangedPages), 1, 64 << 13);
        _ = _stores[0].Store.Checkpoints.RequestAsync();
        Pass(TimeSpan.FromSeconds(30));
        Assert.Equal((0, 0), (_account.UsedFor(MemoryUse.ChangedPages), _account.UsedFor(MemoryUse.FreePages)));
    }

    // A reader could hold as much as the bound of a store by itself, which may be more than the budget of all; then writers got the least until it ended.
    [Fact]
    public void ReaderThatHoldsItsPartOfTheBudget_IsAskedToEnd()
    {
        Open(1, new StoreOptions { SegmentBytesMin = 64 << 10, ReserveBytes = 4096 });
        PutAll(_stores[0], 1_200);
        using var snapshot = _stores[0].OpenSnapshot();
        Assert.False(snapshot.IsTooOld);
        for (var times = 0; times < 2; times++)
        {
            PutAll(_stores[0], 1_200);
            Pass(TimeSpan.FromSeconds(10));
        }
        Assert.True(
            snapshot.IsTooOld && snapshot.HoldsTooMuchMemory, $"A reader holds {_account.UsedFor(MemoryUse.ReaderPages)} bytes of a budget of {Budget}.");
    }

    /// <summary>
    /// F52: what readers held slowed writers, who could not return it by waiting. Four snapshots at the budget of a store took nine tenths of its puts, and 45
    /// nearly all. All are asked to end here, and none does.
    /// </summary>
    [Fact]
    public void HeldSnapshots_HoweverMany_SlowNoWriter()
    {
        Open(1, new StoreOptions { SegmentBytesMin = 64 << 10, RetainedJournalBytes = 0, ReserveBytes = 4096 });
        List<ReadSnapshot> snapshots = [];
        for (var round = 0; round < 12; round++)
        {
            for (var part = 0; part < 8; part++)
            {
                PutAll(_stores[0], 100, first: 100 * part);
                Pass(TimeSpan.FromMilliseconds(400));
            }
            snapshots.Add(_stores[0].OpenSnapshot());
        }
        Assert.True(_account.UsedFor(MemoryUse.ReaderPages) > Budget, $"Readers hold only {_account.UsedFor(MemoryUse.ReaderPages)} bytes.");
        Assert.Equal(TimeSpan.Zero, _account.HeldBack);
        Assert.True(snapshots[0].IsTooOld);
        Assert.False(_stores[0].Store.Pages.HasRoomForSnapshots);
        snapshots.ForEach(static snapshot => snapshot.Dispose());
        Pass(TimeSpan.FromSeconds(30));
        Assert.Equal(0, _account.UsedFor(MemoryUse.ReaderPages));
        Assert.True(_stores[0].Store.Pages.HasRoomForSnapshots);
    }

    // The oldest ended, however little it held.
    [Fact]
    public void Reader_ThatHoldsMost_EndsAndNoneThatHoldsLittle()
    {
        Open(1, new StoreOptions { SegmentBytesMin = 64 << 10, RetainedJournalBytes = 0, ReserveBytes = 4096 });
        PutAll(_stores[0], 10);
        using var old = _stores[0].OpenSnapshot();
        PutAll(_stores[0], 900, first: 10);
        using var greedy = _stores[0].OpenSnapshot();
        using var digest = _stores[0].Store.OpenSnapshot(forDigest: true);
        PutAll(_stores[0], 900, first: 10);
        // A checkpoint that began later would leave the memory of these pages to the reader that is open by then.
        var done = _stores[0].Store.Checkpoints.RequestAsync();
        Run(limit: int.MaxValue);
        Assert.True(done.IsCompleted);
        using var young = _stores[0].OpenSnapshot();
        PutAll(_stores[0], 10);
        Pass(TimeSpan.FromSeconds(1));
        Assert.True(greedy.HoldsTooMuchMemory);
        Assert.False(old.IsTooOld || young.IsTooOld || digest.IsTooOld);
        Assert.Equal(0, _account.UsedFor(MemoryUse.DigestPages));
        // What the digest reaches as well is its own now, which is more than digests may hold.
        greedy.Dispose();
        PutAll(_stores[0], 10);
        Pass(TimeSpan.FromSeconds(1));
        Assert.True(_account.UsedFor(MemoryUse.DigestPages) > Budget / 16);
        PutAll(_stores[0], 10);
        Assert.True(digest.HoldsTooMuchMemory);
        Assert.False(old.IsTooOld || young.IsTooOld);
    }

    // One that pauses between two pages of its answer ends later. All others were asked meanwhile, although the first one's end suffices.
    [Fact]
    public void ReaderThatWasAskedToEnd_CountsNoLonger()
    {
        Open(1, new StoreOptions { SegmentBytesMin = 64 << 10, RetainedJournalBytes = 0, ReserveBytes = 4096 });
        PutAll(_stores[0], 900);
        using var greedy = _stores[0].OpenSnapshot();
        PutAll(_stores[0], 900);
        PutAll(_stores[0], 10);
        Assert.True(greedy.HoldsTooMuchMemory);
        using var next = _stores[0].OpenSnapshot();
        PutAll(_stores[0], 100);
        PutAll(_stores[0], 100);
        Assert.True(_account.UsedFor(MemoryUse.ReaderPages) > Budget / 16 * 3);
        Assert.False(next.IsTooOld);
    }

    // Each store had a queue of its own, and that of one store could be half of the budget.
    [Fact]
    public void Queues_OfAllStores_AreBoundedTogether()
    {
        Open(2, new StoreOptions { SegmentBytesMin = 64 << 10, ReserveBytes = 4096 });
        var answers = new List<Task<WriteResult>>();
        while (answers.Count < 100 && TryPut(_stores[0], answers.Count, 1 << 20) is { } answer)
            answers.Add(answer);
        Assert.InRange(answers.Count, 2, 4);
        Assert.Null(TryPut(_stores[1], 1, 1 << 20));
        answers.Add(Put(_stores[1], 1, 1_000));
        Run(limit: int.MaxValue);
        answers.Add(Put(_stores[1], 1, 1 << 20));
        Pass(TimeSpan.FromSeconds(10));
        Assert.All(answers, static answer => Assert.Equal(WriteOutcome.Applied, answer.Result.Outcome));
        Assert.Equal(0, _account.UsedFor(MemoryUse.Requests));
    }

    // Their steps cost more than the longest pause, and the rest was forgiven. Forty followers passed the budget within two seconds.
    [Fact]
    [Trait("Turn", "5")]
    public void Followers_ThatCatchUpAtOnce_StayWithinTheBudgetAndArrive()
    {
        const int Followers = 40;
        var random = Seeds.Next(_output);
        using var leader = new ReplicaBench(new(1));
        leader.Lead(1);
        for (var first = 0; first < 3_000; first += 100)
            Change(leader, Enumerable.Range(first, 100), 300);
        var followers = Enumerable.Range(0, Followers)
            .Select(index => new ReplicaBench(new((ulong)index + 2), memory: _account, checkpoints: _checkpoints, time: _time)).ToList();
        foreach (var follower in followers)
        {
            CatchUp(follower);
            _ = follower.Store.Checkpoints.RequestAsync();
            RunAll();
        }
        for (var record = 0; record < 30; record++)
            Change(leader, Enumerable.Range(0, 60).Select(_ => random.Next(3_000)), 300);
        // No checkpoint is written for ten seconds.
        _writesCheckpoints = false;
        var most = 0L;
        for (var step = 0; step < 1_000; step++)
        {
            foreach (var follower in followers)
                CatchUp(follower);
            _time.Advance(TimeSpan.FromMilliseconds(10));
            RunAll();
            most = Math.Max(most, _account.Used);
        }
        Assert.InRange(most, Budget / 2, Budget);
        _writesCheckpoints = true;
        for (var step = 0; step < 3_000 && followers.Exists(follower => follower.Store.Pages.Roots.PublishedEtag < leader.Store.Log.Last.Etag); step++)
        {
            foreach (var follower in followers)
                CatchUp(follower);
            _time.Advance(TimeSpan.FromMilliseconds(10));
            RunAll();
            most = Math.Max(most, _account.Used);
        }
        Assert.All(followers, follower => Assert.Equal(leader.Digest(), follower.Digest()));
        Assert.InRange(most, Budget / 2, Budget);
        followers.ForEach(static follower => follower.Dispose());

        void RunAll()
        {
            do
            {
                foreach (var follower in followers)
                    follower.Run();
            }
            while (_writesCheckpoints && _checkpoints.RunOne());
        }

        void CatchUp(ReplicaBench follower)
        {
            foreach (var body in leader.BodiesAfter(follower.Store.Log.Last.Etag))
            {
                if (!follower.Store.Follower.HasRoom)
                    break;
                Assert.True(follower.Store.TryAppend(body, out _));
            }
            follower.Run();
            follower.Commit(follower.Store.Log.Last.Etag);
            follower.Store.Follower.ApplyMore();
        }
    }

    // The ends of idle sessions alone could fill the step that a slowed store may take, and its requests waited until all of them had ended.
    [Fact]
    public void IdleSessions_WhileTheStoreIsSlowed_EndAFewAtATimeAndRequestsGoOn()
    {
        using var bench = new ReplicaBench(new(1), memory: _account, time: _time);
        bench.Lead(1);
        for (var session = 1; session <= 200; session++)
            bench.OpenSession((UInt128)session);
        using var other = _account.Join(static () => { }, static () => false);
        other.Set(MemoryUse.ChangedPages, Budget);
        var answer = bench.Submit(request => request.Put(StoreBench.Text("key"), StoreBench.Text("value")));
        Assert.True(bench.AppendBatch(TimeSpan.FromHours(2)));
        bench.Commit(bench.Store.Log.Last.Etag);
        bench.Run();
        Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome);
        Assert.InRange(bench.SessionIds().Count(), 190, 199);
    }

    [Fact]
    public void ClosedStore_LeavesTheAccount()
    {
        Open(2, StoreBench.SmallOptions);
        _ = Put(_stores[0], 1, 5_000);
        Run(limit: int.MaxValue);
        Assert.True(_account.Used > 0);
        _stores.ForEach(static store => store.Dispose());
        Assert.Equal((0, 0), (_account.Used, _account.UsedFor(MemoryUse.FreePages)));
        _stores.Clear();
    }

    private static bool IsSlowed(List<Task<WriteResult>> answers) => answers.Count > 0 && !answers[^1].IsCompleted;

    private void Open(int count, StoreOptions options)
    {
        var context = new StoreContext(
            _disk, _writer, [_writer, _writer], _checkpoints, _time, NullLogger.Instance, options, _completions) { Memory = _account };
        for (var index = 0; index < count; index++)
            _stores.Add(StandaloneStore.Open(context, $"/shard-{index}"));
        Run(limit: int.MaxValue);
    }

    private static Task<WriteResult> Put(StandaloneStore store, int key, int bytes) => TryPut(store, key, bytes)!;

    private static Task<WriteResult>? TryPut(StandaloneStore store, int key, int bytes)
    {
        var request = WriteRequest.Rent();
        request.Put(StoreBench.Text($"key-{(key * 7919) % 10_007:D5}"), new byte[bytes]);
        return store.TryWrite(request)?.AsTask();
    }

    private void PutAll(StandaloneStore store, int keys, int first = 0)
    {
        for (var key = first; key < first + keys; key++)
        {
            var answer = Put(store, key, PageValueBytes);
            Run(limit: int.MaxValue);
            for (var step = 0; step < 1_000 && !answer.IsCompleted; step++)
                Pass(TimeSpan.FromMilliseconds(100));
            Assert.Equal(WriteOutcome.Applied, answer.Result.Outcome);
        }
    }

    private static void Change(ReplicaBench leader, IEnumerable<int> keys, int bytes)
    {
        leader.Append(request =>
        {
            foreach (var key in keys)
                request.Put(StoreBench.Text($"key-{key:D5}"), new byte[bytes]);
        });
    }

    private void Pass(TimeSpan time)
    {
        const int Steps = 20;
        for (var step = 0; step < Steps; step++)
        {
            _time.Advance(time / Steps);
            Run(limit: int.MaxValue);
        }
    }

    private void Run(int limit)
    {
        for (var left = limit; left > 0 && (_writer.RunOne() || _completions.RunOne() || (_writesCheckpoints && _checkpoints.RunOne())); left--)
        {
        }
    }
}
