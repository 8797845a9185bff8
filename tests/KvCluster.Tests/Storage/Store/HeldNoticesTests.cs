using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>A caller's batch for many shards whose writer the test runs.</summary>
public sealed class HeldNoticesTests
{
    private const int Shards = 8;
    private readonly StepExecutor _writer = new();
    private readonly HeldNotices _held = new();
    private readonly RequestQueue[] _queues;

    /// <summary>For each notice, how many requests the shard found.</summary>
    private readonly List<int> _found = [];

    public HeldNoticesTests() => _queues = [.. Enumerable.Range(0, Shards).Select(Create)];

    /// <summary>The first request woke the writer, which often made a record of it alone.</summary>
    [Fact]
    public void Give_AfterABatchForManyShards_TellsEachShardOnceOfItsWholePart()
    {
        for (var request = 0; request < 3 * Shards; request++)
            Submit(request % Shards);
        Assert.Equal(0, _writer.Count);
        _held.Give();
        Assert.Equal(Shards, _writer.Count);
        Run();
        Assert.Equal(Enumerable.Repeat(3, Shards), _found);
        _held.Give();
        Assert.Equal(0, _writer.Count);
    }

    [Fact]
    public void Add_OfManyRequests_TellsTheWritersBeforeTheEnd()
    {
        for (var request = 1; request < HeldNotices.RequestsMax; request++)
            Submit(0);
        Assert.Equal(0, _writer.Count);
        Submit(1);
        Assert.Equal(2, _writer.Count);
    }

    /// <summary>The requests of one message filled a queue whose writer was not told, and the last were refused.</summary>
    [Fact]
    public void Add_OfALargeRequest_TellsTheWritersAtOnce()
    {
        Submit(0);
        var large = WriteRequest.Rent();
        large.Put([1], new byte[HeldNotices.BytesMax]);
        Assert.True(_queues[1].TryAdd(large, _held));
        Assert.Equal(2, _writer.Count);
        Submit(2);
        Assert.Equal(2, _writer.Count);
    }

    [Fact]
    public void Give_OfRequestsThatTheWriterHasTakenMeanwhile_TellsNobody()
    {
        Submit(0);
        Assert.True(_queues[0].TryTake(out _));
        _held.Give();
        Assert.Equal(0, _writer.Count);
    }

    private void Submit(int shard) => Assert.True(_queues[shard].TryAdd(WriteRequest.Rent(), _held));

    private RequestQueue Create(int shard) => new(
        countMax: 1_000, long.MaxValue, new MemoryAccount(long.MaxValue, TimeProvider.System), _writer, new WorkAction(() => OnNotice(shard)), prefetch: null);

    private void OnNotice(int shard)
    {
        _queues[shard].AcknowledgeNotice();
        var count = 0;
        while (_queues[shard].TryTake(out _))
            count++;
        _found.Add(count);
    }

    private void Run()
    {
        while (_writer.RunOne())
        {
        }
    }
}
