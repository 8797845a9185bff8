using KvCluster.Disk;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Transactions;
using KvCluster.Tests.Storage.Store;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>What a journal thread reports to a writer thread. The test runs both.</summary>
public sealed class HeldPostsTests : IDisposable
{
    private const int Shards = 8;
    private readonly StepExecutor _writer = new();
    private readonly StepExecutor _journal = new();
    private readonly StepExecutor _rest = new();
    private readonly ManualTime _time = new();
    private readonly SimulatedDisk _disk = new();
    private readonly HeldPosts _posts;
    private readonly HeldPosts _wakeUps;
    private readonly HeldPosts _looks;
    private readonly List<StandaloneStore> _stores = [];

    private int _passesLooked;

    public HeldPostsTests()
    {
        _posts = new HeldPosts(_journal, _writer.Post);
        _wakeUps = new HeldPosts(_writer, static wakeUp => wakeUp.Execute());
        _looks = new HeldPosts(_writer, look =>
        {
            _passesLooked++;
            look.Execute();
        });
    }

    public void Dispose()
    {
        _stores.ForEach(static store => store.Dispose());
        _disk.Dispose();
    }

    /// <summary>Each write of each shard woke the writer thread, which took a turn and sent an acknowledgement for it alone.</summary>
    [Fact]
    public void RecordsOfManyShards_WrittenInOnePass_AreReportedTogether()
    {
        var answers = PutInEachShard();
        Drain(_journal);
        Assert.Equal(1, _writer.Count);
        var passesLooked = _passesLooked;
        Drain(_writer, _journal, _rest);
        Assert.Equal(passesLooked + 1, _passesLooked);
        Assert.All(answers, static answer => Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome));
    }

    [Fact]
    public void CheckpointRequest_OfARecordThatBecomesDurable_IsTakenUpAtTheEndOfThePass()
    {
        using var leader = new ReplicaBench(new(1));
        leader.Lead(1);
        leader.Append(static request => request.Put([1], [2]));
        using var follower = new ReplicaBench(new(2), looksOnceAPass: true);
        foreach (var body in leader.BodiesAfter(Etag.None))
            Assert.True(follower.Store.TryAppend(body, out _));
        follower.Commit(leader.Store.Log.Last.Etag);
        var covered = follower.Store.Checkpoints.RequestAsync();
        follower.Run();
        Assert.Equal(leader.Store.Log.Last.Etag, StoreBench.Answer(covered).Etag);
    }

    [Fact]
    public void RecordsOfManyShards_WhoseWritesTakeLong_DoNotWaitForEachOther()
    {
        var answers = PutInEachShard();
        _disk.DuringWrite = _ => _time.Advance(TimeSpan.FromMilliseconds(1));
        for (var written = 1; written <= Shards; written++)
        {
            Assert.True(_journal.RunOne());
            Assert.Equal(written, _writer.Count);
        }
        Drain(_writer, _journal, _rest);
        Assert.All(answers, static answer => Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome));
    }

    /// <summary>The journal thread was woken by the first record, wrote it and slept again before the next shard had its turn.</summary>
    [Fact]
    public void LanesOfManyShards_WhoseStepsAreShort_WakeTheirThreadAtTheEndOfThePass()
    {
        var journal = new CountingExecutor();
        var lanes = Enumerable.Range(0, Shards).Select(_ => new JournalLane(journal, static _ => { }, wakeUps: _wakeUps) { IsShort = true }).ToList();
        _writer.Post(new WorkAction(() => lanes.ForEach(static lane => lane.PostInPass())));
        Assert.True(_writer.RunOne());
        Assert.Equal((0, Shards, 0), (journal.Posted, journal.PostedQuietly, journal.Woken));
        Drain(_writer);
        Assert.NotEqual(0, journal.Woken);
        lanes[0].IsShort = false;
        lanes[0].PostInPass();
        Assert.Equal((1, Shards), (journal.Posted, journal.PostedQuietly));
    }

    /// <summary>The wake-up was the last of as many as are held, and a checkpoint could begin in the middle of the append.</summary>
    [Fact]
    public void Append_WhileManyLooksAreHeld_RunsNoneOfThem()
    {
        OpenShards();
        var passesLooked = _passesLooked;
        var answer = Put(_stores[0]);
        for (var held = 1; held < HeldPosts.CountMax; held++)
        {
            var look = new WorkAction(static () => { });
            _looks.Hold(() => look);
        }
        // The put's notice, with which the record is appended.
        Assert.True(_writer.RunOne());
        Assert.Equal((1, passesLooked), (_journal.Count, _passesLooked));
        Drain(_writer, _journal, _rest);
        Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome);
    }

    /// <summary>The next record of a shard, which is made in the same step, sent the answers of the one before by themselves.</summary>
    [Fact]
    public void AnswersOfARecord_BeforeTheNextRecordOfTheShard_WaitForTheEndOfThePass()
    {
        var completions = new StepExecutor();
        var context = new StoreContext(
            _disk, _writer, [_journal], _rest, _time, NullLogger.Instance, new StoreOptions { SegmentBytesMin = 256 << 10, ReserveBytes = 4096 }, completions)
        {
            AnswerPosts = new HeldPosts(_writer, completions.Post),
        };
        var store = StandaloneStore.Open(context, "/shard");
        _stores.Add(store);
        Drain(_writer, _journal, _rest);
        var first = Put(store);
        Drain(_writer);
        var second = Put(store);
        Drain(_writer);
        Drain(_journal);
        // The report: the first record is committed, and the second one made.
        Assert.True(_writer.RunOne());
        Assert.Equal((0, 1), (completions.Count, _journal.Count));
        Drain(_writer);
        Assert.Equal(1, completions.Count);
        Drain(_writer, _journal, _rest, completions);
        Assert.All((Task<WriteResult>[])[first, second], static answer => Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome));
    }

    [Fact]
    public void Hold_OfManyPosts_GivesThemBeforeTheEndOfThePass()
    {
        _journal.Post(new WorkAction(() =>
        {
            for (var post = 0; post < HeldPosts.CountMax; post++)
            {
                var item = new WorkAction(static () => { });
                _posts.Hold(() => item);
            }
        }));
        Assert.True(_journal.RunOne());
        Assert.Equal(1, _writer.Count);
    }

    /// <summary>A writer thread's report would wait for all long writes of the other's shards that are queued.</summary>
    [Fact]
    public void Give_AfterALongItem_PostsForTheOtherWriterToo()
    {
        var other = new StepExecutor();
        List<HeldPosts> all = [];
        var (own, others) = (new HeldPosts(_journal, _writer.Post, all), new HeldPosts(_journal, other.Post, all));
        _journal.Post(new WorkAction(() => others.Hold(static () => new WorkAction(static () => { }))));
        Assert.True(_journal.RunOne());
        Assert.Equal(0, other.Count);
        own.Give();
        Assert.Equal(1, other.Count);
    }

    [Fact]
    public void Hold_OfWhatWasPostedMeanwhile_PostsNothing()
    {
        _journal.Post(new WorkAction(() => _posts.Hold(static () => null)));
        Drain(_journal);
        Assert.Equal(0, _writer.Count);
    }

    private List<Task<WriteResult>> PutInEachShard()
    {
        OpenShards();
        var answers = _stores.Select(Put).ToList();
        Drain(_writer);
        return answers;
    }

    private void OpenShards()
    {
        var context = new StoreContext(
            _disk, _writer, [_journal], _rest, _time, NullLogger.Instance, new StoreOptions { SegmentBytesMin = 256 << 10, ReserveBytes = 4096 }, _rest)
        {
            JournalPosts = [_posts],
            WakeUps = _wakeUps,
            PassEnd = _looks,
        };
        for (var shard = 0; shard < Shards; shard++)
            _stores.Add(StandaloneStore.Open(context, $"/shard-{shard}"));
        Drain(_writer, _journal, _rest);
    }

    private static Task<WriteResult> Put(StandaloneStore store)
    {
        var request = WriteRequest.Rent();
        request.Put([1], [2]);
        return store.TryWrite(request)!.Value.AsTask();
    }

    private sealed class CountingExecutor : ISerialExecutor
    {
        public int Posted { get; private set; }

        public int PostedQuietly { get; private set; }

        public int Woken { get; private set; }

        public bool IsIdle => true;

        public void Post(IWorkItem item) => Posted++;

        public void PostQuietly(IWorkItem item) => PostedQuietly++;

        public void WakeUp() => Woken++;
    }

    private static void Drain(params StepExecutor[] executors)
    {
        while (executors.Any(static executor => executor.RunOne()))
        {
        }
    }
}
