using Google.Protobuf;
using KvCluster.Client.Transport;
using KvCluster.V1;

namespace KvCluster.Tests.Client;

/// <summary>
/// The places of a connection to a node. Calls to a stuck shard used to take all of them, cancelled ones until their deadline, so other calls got
/// none.
/// </summary>
public sealed class OpenCallsTests
{
    private const int Places = 64;

    /// <summary>Three quarters of the places are not reserved for callers with few. Of these, one shard's calls of a kind leave half.</summary>
    private const int Share = 24;

    private readonly List<ulong> _givenUp = [];
    private readonly OpenCalls _open;

    public OpenCallsTests() => _open = new OpenCalls(Places, _givenUp.Add);

    [Fact]
    public void TryTakePlace_WithAShardStuck_LeavesPlacesForOthersAndForItsReads()
    {
        var stuck = Fill(shard: 1, Method.Put);
        Assert.Equal(Share, stuck);
        Assert.False(_open.TryTakePlace(Call(1, Method.Write)));
        Assert.True(_open.TryTakePlace(Call(1, Method.Get)));
        Assert.True(_open.TryTakePlace(Call(2, Method.Put)));
    }

    [Fact]
    public void TryTakePlace_WithManyShardsStuck_StillLeavesPlaces()
    {
        for (var shard = 1u; shard <= 7; shard++)
            Assert.True(Fill(shard, Method.Put) > 0);
        Assert.True(Fill(8, Method.Get) > 0);
    }

    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public async Task Cancel_OfACall_FreesItsPlace(bool isSent)
    {
        Assert.Equal(Share, Fill(shard: 1, Method.Put, out var ids));
        if (isSent)
            Assert.True(_open.TrySend(ids[0], out _));
        var waiting = _open.TakePlaceAsync(Waits(out var call), CancellationToken.None);
        Assert.False(waiting.IsCompleted);
        _open.Cancel(ids[0]);
        // An unsent call still has an entry in the stream's queue, which keeps the place until its turn comes.
        if (!isSent)
            Assert.False(_open.TrySend(ids[0], out _));
        Assert.True(await waiting);
        Assert.NotEqual(0ul, _open.Add(call));
        // A late reply finds no call.
        _open.Complete(new Reply { Id = ids[0] });
        Assert.False(_open.TryTakePlace(Call(1, Method.Put)));
    }

    /// <summary>The node was not told of calls given up by their callers, and kept their places.</summary>
    [Fact]
    public void GivenUpCalls_AlreadySent_AreReportedToTheNode()
    {
        var ids = new[] { 1L, 1, long.MaxValue, long.MaxValue }.Select(deadlineMs =>
        {
            var call = Call(1, Method.Get, deadlineMs);
            Assert.True(_open.TryTakePlace(call));
            return _open.Add(call);
        }).ToArray();
        Assert.True(_open.TrySend(ids[0], out _));
        Assert.True(_open.TrySend(ids[2], out _));
        _open.Expire(nowMs: 2);
        _open.Cancel(ids[2]);
        _open.Cancel(ids[3]);
        Assert.Equal([ids[0], ids[2]], _givenUp);
    }

    /// <summary>Only the node counted the bytes of requests, and it stopped reading. The large writes of one shard blocked everything behind them.</summary>
    [Fact]
    public async Task TryTakePlace_WithLargeRequests_LeavesBytesForOtherShards()
    {
        var large = UnsafeByteOperations.UnsafeWrap(new byte[8 << 20]);
        var first = PendingCall.Rent(Method.Put, large, new(1), 1, long.MaxValue);
        Assert.True(_open.TryTakePlace(first));
        Assert.True(_open.TryTakePlace(PendingCall.Rent(Method.Put, large, new(1), 1, long.MaxValue)));
        var third = PendingCall.Rent(Method.Put, large, new(1), 1, long.MaxValue);
        Assert.False(_open.TryTakePlace(third));
        Assert.True(_open.TryTakePlace(PendingCall.Rent(Method.Put, large, new(2), 1, long.MaxValue)));
        Assert.True(_open.TryTakePlace(Call(1, Method.Get)));
        var waiting = _open.TakePlaceAsync(third, CancellationToken.None);
        Assert.False(waiting.IsCompleted);
        _open.Complete(new Reply { Id = _open.Add(first) });
        Assert.True(await waiting);
    }

    [Fact]
    public async Task TakePlaceAsync_GivenUp_TakesNoPlace()
    {
        Fill(shard: 1, Method.Put, out var ids);
        using var givesUp = new CancellationTokenSource();
        var waiting = _open.TakePlaceAsync(Waits(out _), givesUp.Token);
        await givesUp.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => waiting);
        var late = Call(1, Method.Put, deadlineMs: Environment.TickCount64);
        Assert.False(_open.TryTakePlace(late));
        Assert.False(await _open.TakePlaceAsync(late, CancellationToken.None));
        foreach (var id in ids)
            _open.Complete(new Reply { Id = id });
        Assert.Equal(Share, Fill(shard: 1, Method.Put));
    }

    private static PendingCall Call(uint shard, Method method, long deadlineMs = long.MaxValue) => PendingCall.Rent(method, ByteString.Empty, new(shard), 1, deadlineMs);

    private PendingCall Waits(out PendingCall call)
    {
        call = Call(1, Method.Put);
        Assert.False(_open.TryTakePlace(call));
        return call;
    }

    private int Fill(uint shard, Method method) => Fill(shard, method, out _);

    private int Fill(uint shard, Method method, out List<ulong> ids)
    {
        ids = [];
        for (var call = Call(shard, method); _open.TryTakePlace(call); call = Call(shard, method))
            ids.Add(_open.Add(call));
        return ids.Count;
    }
}
