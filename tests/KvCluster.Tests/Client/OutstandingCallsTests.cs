using System.Collections.Concurrent;
using System.Threading.Channels;
using Google.Protobuf;
using KvCluster.Client.Transport;
using KvCluster.V1;
using Xunit.Abstractions;

namespace KvCluster.Tests.Client;

/// <summary>
/// The places of a connection to a node. Calls to a stuck shard used to take all of them, cancelled ones until their deadline, so other calls got
/// none.
/// </summary>
public sealed class OutstandingCallsTests
{
    private const int Places = 64;

    /// <summary>Three quarters of the places are not reserved for callers with few. Of these, one shard's calls of a kind leave half.</summary>
    private const int Share = 24;

    private readonly ITestOutputHelper _output;
    private readonly ConcurrentQueue<ulong> _givenUp = [];
    private readonly OutstandingCalls _open;

    public OutstandingCallsTests(ITestOutputHelper output)
    {
        _output = output;
        _open = new OutstandingCalls(Places, _givenUp.Enqueue);
    }

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
        Assert.Equal(Share, Fill(shard: 1, Method.Put, out var calls));
        var first = calls[0];
        if (isSent)
            Assert.True(first.Progress.TrySend());
        var waiting = _open.TakePlaceAsync(Waits(out var call), CancellationToken.None);
        Assert.False(waiting.IsCompleted);
        _open.Cancel(first.Id);
        Assert.Equal(new CallAnswer(null, isSent, "cancelled", false), await first.Answer);
        // An unsent call still has an entry in the stream's queue, which keeps the place until its turn comes.
        if (!isSent)
        {
            Assert.False(waiting.IsCompleted);
            Assert.False(first.Progress.TrySend());
            _open.Withdraw(first.Id);
        }
        Assert.Null(await waiting);
        _open.Add(call);
        // A late reply finds no call.
        Assert.True(call.Progress.TrySend());
        _open.Complete(new Reply { Id = first.Id });
        Assert.True(call.Progress.IsOpen);
        Assert.False(_open.TryTakePlace(Call(1, Method.Put)));
    }

    /// <summary>
    /// Places of calls that had passed their deadline unsent went to new calls, whose entries joined theirs in the queue. Behind a node that does not read, the
    /// queue grew without bound.
    /// </summary>
    [Fact]
    public void Expire_OfUnsentCalls_KeepsTheirPlacesUntilTheSenderHasSeenThem()
    {
        Assert.Equal(Share, Fill(shard: 1, Method.Put, out var calls, deadlineMs: 1));
        _open.Expire(nowMs: 2);
        Assert.All(calls, call => Assert.False(call.Progress.IsOpen));
        Assert.False(_open.TryTakePlace(Call(1, Method.Put)));
        foreach (var call in calls)
            _open.Withdraw(call.Id);
        Assert.Equal(Share, Fill(shard: 1, Method.Put));
    }

    [Fact]
    public void Complete_OfACallThatWasNotSent_IsIgnored()
    {
        var call = Added(1, Method.Put);
        _open.Complete(new Reply { Id = call.Id });
        Assert.True(call.Progress.TrySend());
        _open.Complete(new Reply { Id = call.Id });
        Assert.False(call.Progress.IsOpen);
        call.Return();
    }

    /// <summary>The node was not told of calls given up by their callers, and kept their places.</summary>
    [Fact]
    public void GivenUpCalls_AlreadySent_AreReportedToTheNode()
    {
        var calls = new[] { 1L, 1, long.MaxValue, long.MaxValue }.Select(deadlineMs => Added(1, Method.Get, deadlineMs)).ToArray();
        Assert.True(calls[0].Progress.TrySend());
        Assert.True(calls[2].Progress.TrySend());
        _open.Expire(nowMs: 2);
        _open.Cancel(calls[2].Id);
        _open.Cancel(calls[3].Id);
        Assert.Equal([calls[0].Id, calls[2].Id], _givenUp);
    }

    /// <summary>
    /// The stream's sender and receiver, the caller's cancellation, the deadline sweep and the end of the stream race for each call. Answering a call twice
    /// throws. A call that is used again too early would be sent with another's request.
    /// </summary>
    [Fact]
    public async Task Calls_ThatManyRaceFor_AreAnsweredOnceAndFreeTheirPlaces()
    {
        const int Callers = 32;
        const int Turns = 500;
        var random = Seeds.Next(_output);
        var queue = Channel.CreateUnbounded<PendingCall>();
        var sent = Channel.CreateUnbounded<ulong>();
        var isDone = false;
        var sweeping = Task.Run(() =>
        {
            while (!Volatile.Read(ref isDone))
            {
                _open.Expire(nowMs: 1);
                _open.FailImpatient("no connection");
                Thread.Sleep(1);
            }
        });
        var sending = Task.Run(async () =>
        {
            await foreach (var call in queue.Reader.ReadAllAsync())
            {
                if (!call.Progress.TrySend())
                {
                    _open.Withdraw(call.Id);
                    continue;
                }
                Assert.Equal((byte)call.Shard.Value, call.Request.Span[0]);
                await sent.Writer.WriteAsync(call.Id);
            }
        });
        var replying = Task.Run(async () =>
        {
            await foreach (var id in sent.Reader.ReadAllAsync())
                _open.Complete(new Reply { Id = id });
        });
        var calling = Task.WhenAll(Enumerable.Range(1, Callers).Select(caller => CallAsync((uint)caller, new Random(random.Next()))));
        // If one of the others has failed, the callers wait for ever.
        await await Task.WhenAny(calling, sweeping, sending, replying);
        Volatile.Write(ref isDone, true);
        queue.Writer.Complete();
        await sending;
        sent.Writer.Complete();
        await Task.WhenAll(sweeping, replying);
        Assert.Equal(Share, Fill(shard: 1, Method.Put));

        async Task CallAsync(uint shard, Random chance)
        {
            for (var turn = 0; turn < Turns; turn++)
            {
                var call = PendingCall.Rent(Method.Put, ByteString.CopyFrom((byte)shard), new(shard), 1, chance.Next(4) == 0 ? 1 : long.MaxValue);
                call.IsPatient = chance.Next(4) != 0;
                while (!_open.TryTakePlace(call))
                    await Task.Yield();
                _open.Add(call);
                await queue.Writer.WriteAsync(call);
                if (chance.Next(4) == 0)
                    _open.Cancel(call.Id);
                var answer = await call.Answer;
                if (answer.Reply is not null)
                    call.Return();
            }
        }
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
        _open.Add(first);
        Assert.True(first.Progress.TrySend());
        _open.Complete(new Reply { Id = first.Id });
        Assert.Null(await waiting);
    }

    [Fact]
    public async Task TakePlaceAsync_GivenUp_TakesNoPlace()
    {
        Fill(shard: 1, Method.Put, out var calls);
        using var givesUp = new CancellationTokenSource();
        var waiting = _open.TakePlaceAsync(Waits(out _), givesUp.Token);
        await givesUp.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => waiting);
        var late = Call(1, Method.Put, deadlineMs: Environment.TickCount64);
        Assert.False(_open.TryTakePlace(late));
        Assert.NotNull(await _open.TakePlaceAsync(late, CancellationToken.None));
        foreach (var call in calls)
            _open.Withdraw(call.Id);
        Assert.Equal(Share, Fill(shard: 1, Method.Put));
    }

    [Fact]
    public async Task TakePlaceAsync_DeadlinePassed_TellsHowLongThoseBeforeItStillTake()
    {
        Fill(shard: 1, Method.Put, out var calls);
        var first = _open.TakePlaceAsync(Waits(out _), CancellationToken.None);
        var second = _open.TakePlaceAsync(Waits(out _), CancellationToken.None);
        var late = Call(1, Method.Put, deadlineMs: Environment.TickCount64 + 400);
        Assert.False(_open.TryTakePlace(late));
        // Nobody was served in 300 ms, and it is the third.
        var wait = await _open.TakePlaceAsync(late, CancellationToken.None);
        Assert.InRange(wait!.Value, TimeSpan.FromMilliseconds(400), TimeSpan.FromSeconds(10));
        Assert.False(first.IsCompleted);
        Assert.False(second.IsCompleted);
        foreach (var call in calls)
            _open.Withdraw(call.Id);
        Assert.Null(await first);
        Assert.Null(await second);
    }

    /// <summary>
    /// The calls that got their places were those with the next deadlines, and were sent too late to be answered. Those that gave up at once were each told the
    /// time of the first one.
    /// </summary>
    [Fact]
    public async Task TakePlaceAsync_SeveralInVain_GiveUpWhileThereIsTimeForAnAnswer_AndAreToldToComeOneAfterTheOther()
    {
        Fill(shard: 1, Method.Put, out var calls);
        var deadlineMs = Environment.TickCount64 + 4_000;
        var late = Enumerable.Range(0, 3).Select(_ => Call(1, Method.Put, deadlineMs)).ToList();
        Assert.All(late, call => Assert.False(_open.TryTakePlace(call)));
        var waits = await Task.WhenAll(late.Select(call => _open.TakePlaceAsync(call, CancellationToken.None)));
        Assert.InRange(Environment.TickCount64, deadlineMs - 2_000, deadlineMs - 1);
        // Nobody was served in three seconds.
        for (var index = 0; index < waits.Length; index++)
            Assert.InRange(waits[index]!.Value, TimeSpan.FromSeconds(2 * (index + 1)), TimeSpan.FromSeconds(10));
        foreach (var call in calls)
            _open.Withdraw(call.Id);
        Assert.Equal(Share, Fill(shard: 1, Method.Put));
    }

    private static PendingCall Call(uint shard, Method method, long deadlineMs = long.MaxValue) =>
        PendingCall.Rent(method, ByteString.Empty, new(shard), 1, deadlineMs);

    private PendingCall Waits(out PendingCall call)
    {
        call = Call(1, Method.Put);
        Assert.False(_open.TryTakePlace(call));
        return call;
    }

    private PendingCall Added(uint shard, Method method, long deadlineMs = long.MaxValue)
    {
        var call = Call(shard, method, deadlineMs);
        Assert.True(_open.TryTakePlace(call));
        _open.Add(call);
        return call;
    }

    private int Fill(uint shard, Method method) => Fill(shard, method, out _);

    private int Fill(uint shard, Method method, out List<PendingCall> calls, long deadlineMs = long.MaxValue)
    {
        calls = [];
        for (var call = Call(shard, method, deadlineMs); _open.TryTakePlace(call); call = Call(shard, method, deadlineMs))
        {
            _open.Add(call);
            calls.Add(call);
        }
        return calls.Count;
    }
}
