using KvCluster.Disk;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Transactions;
using KvCluster.Tests.Storage.Store;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>A shard whose journal threads may be busy with others. The test runs the threads.</summary>
public sealed class SharedLanesTests : IDisposable
{
    private readonly StepExecutor _writer = new();
    private readonly StepExecutor[] _journals = [new(), new()];
    private readonly StepExecutor _rest = new();
    private readonly SimulatedDisk _disk = new();
    private readonly StandaloneStore _store;

    public SharedLanesTests()
    {
        var context = new StoreContext(
            _disk, _writer, _journals, _rest, new ManualTime(), NullLogger.Instance, new StoreOptions { ReserveBytes = 4096 }, _rest)
        {
            SharesJournalLanes = true,
        };
        _store = StandaloneStore.Open(context, "/shard");
        Drain(_writer, _journals[0], _journals[1], _rest);
    }

    public void Dispose()
    {
        _store.Dispose();
        _disk.Dispose();
    }

    /// <summary>With many busy shards the second record waited for others' writes, and the next requests were a third one.</summary>
    [Fact]
    public void SecondRecord_WhileTheOtherThreadIsBusy_WaitsForTheFirstAndTakesAllRequests()
    {
        _journals[0].Post(new WorkAction(static () => { }));
        var answers = new List<Task<WriteResult>> { Put() };
        var first = _store.Store.Log.Last;
        for (var put = 0; put < 3; put++)
            answers.Add(Put());
        Assert.Equal(first.Etag, _store.Store.Log.Last.Etag);
        Drain(_journals[1]);
        Drain(_writer);
        var second = _store.Store.Log.Last;
        Assert.Equal((first.Etag, first.Etag.Change + 3), (second.Previous, second.Etag.Change));
        Drain(_writer, _journals[0], _journals[1], _rest);
        Assert.All(answers, static answer => Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome));
    }

    /// <summary>A single shard keeps the device busy.</summary>
    [Fact]
    public void SecondRecord_WhileTheOtherThreadIsIdle_FollowsAtOnce()
    {
        _ = Put();
        var first = _store.Store.Log.Last;
        _ = Put();
        Assert.Equal(first.Etag, _store.Store.Log.Last.Previous);
        Drain(_writer, _journals[0], _journals[1], _rest);
    }

    /// <summary>Four callers of a shard made three records: one on its way to the followers, one that was written here, and one that waited.</summary>
    [Fact]
    public void SecondRecord_WhileTheFirstIsDurableAndTheThreadsAreBusy_WaitsForTheCommit()
    {
        using var bench = new ReplicaBench(new(1), sharesJournalLanes: true);
        bench.Lead(1);
        bench.Commit(bench.Store.Log.Last.Etag);
        var answer = bench.Put("key", "value");
        Assert.Equal((0, true), (bench.Store.Durable.UnsettledCount, bench.Store.Writes.CanAppend));
        // Another shard's write.
        bench.Context.Writer.Post(new WorkAction(static () => { }));
        Assert.False(bench.Store.Writes.CanAppend);
        var large = bench.Submit(static request => request.Put([1], new byte[GroupCommit.WholeRecordBytes]));
        Assert.True(bench.Store.Writes.CanAppend);
        Assert.True(bench.AppendBatch());
        bench.Context.Writer.Post(new WorkAction(static () => { }));
        Assert.False(bench.Store.Writes.CanAppend);
        bench.Commit(bench.Store.Log.Last.Etag);
        Assert.True(bench.Store.Writes.CanAppend);
        bench.Run();
        Assert.All((Task<WriteResult>[])[answer, large], static answered => Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(answered).Outcome));
    }

    private Task<WriteResult> Put()
    {
        var request = WriteRequest.Rent();
        request.Put([1], [2]);
        var answer = _store.TryWrite(request)!.Value.AsTask();
        Drain(_writer);
        return answer;
    }

    private static void Drain(params StepExecutor[] executors)
    {
        while (executors.Any(static executor => executor.RunOne()))
        {
        }
    }
}
