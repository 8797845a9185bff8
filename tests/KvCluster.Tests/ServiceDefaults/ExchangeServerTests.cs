using System.Collections.Concurrent;
using System.Threading.Channels;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.ServiceDefaults.Exchanges;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>The server's end of one exchange, without a server: when calls are started, and how the stream ends.</summary>
public sealed class ExchangeServerTests
{
    private readonly Channel<MessageBytes> _messages = Channel.CreateUnbounded<MessageBytes>();
    private readonly CallMemory _memory = new(CallMemory.MebibytesMin);
    private readonly Responses _responses = new();
    private readonly Handler _handler = new();

    [Fact]
    public async Task Stream_WhoseCallerHasCompletedItsSide_EndsWhenEveryCallIsAnswered()
    {
        var running = Run(CancellationToken.None);
        Send(1, 2);
        _messages.Writer.Complete();
        await Eventually.TrueAsync(() => _handler.Open.Count == 2, "the calls are started");
        Assert.True(_handler.Answer(2, [7]));
        await Eventually.TrueAsync(() => _responses.Replies.Count == 1, "the reply is written");
        Assert.False(running.IsCompleted);
        _handler.Refuse(1);
        await running.WaitAsync(Eventually.Limit);
        Assert.Equal([(2ul, 0), (1ul, (int)StatusCode.Aborted)], _responses.Replies.Select(static reply => (reply.Id, reply.Code)));
        Assert.Equal((byte)7, Assert.Single(_responses.Replies.First().Response.ToByteArray()));
    }

    /// <summary>
    /// A stream whose caller had completed its side and then gone away lasted until its calls had ended, each as long as its shard was stuck.
    /// </summary>
    [Fact]
    public async Task Stream_WhoseCallerIsGone_DoesNotWaitForItsCalls()
    {
        using var caller = new CancellationTokenSource();
        var running = Run(caller.Token);
        Send(1);
        _messages.Writer.Complete();
        await Eventually.TrueAsync(() => _handler.Open.Count == 1, "the call is started");
        await caller.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => running.WaitAsync(Eventually.Limit));
        // Its outcome is told to nobody.
        Assert.True(_handler.Answer(1, [7]));
        Assert.Empty(_responses.Replies);
    }

    [Fact]
    public async Task Calls_WhileRepliesAreNotWritten_AreNotStarted()
    {
        _handler.ResponseAtOnce = new byte[(ExchangeLimits.WaitingBytesMax / 2) + 1];
        var running = Run(CancellationToken.None);
        Send(1, 2, 3, 4);
        _messages.Writer.Complete();
        await Eventually.TrueAsync(() => _handler.Open.Count >= 2, "two calls are started");
        await Task.Yield();
        Assert.Equal(2, _handler.Open.Count);
        _responses.MayGo.SetResult();
        await running.WaitAsync(Eventually.Limit);
        Assert.Equal([1ul, 2ul, 3ul, 4ul], _responses.Replies.Select(static reply => reply.Id));
    }

    /// <summary>
    /// The rest of a message was started without any bound when nobody could read the replies any more. One message may have eight million calls.
    /// </summary>
    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public async Task Calls_OfAStreamThatHasEnded_AreNotStarted(bool isCallerGone)
    {
        using var caller = new CancellationTokenSource();
        _handler.Started = id =>
        {
            if (id == 2 && isCallerGone)
                caller.Cancel();
            else if (id == 2)
                _handler.Replies.Break(new InvalidOperationException("broken"));
        };
        var running = Run(caller.Token);
        Send(1, 2, 3, 4);
        var failure = await Assert.ThrowsAnyAsync<Exception>(() => running.WaitAsync(Eventually.Limit));
        Assert.True(isCallerGone ? failure is OperationCanceledException : failure is InvalidOperationException);
        Assert.Equal([1ul, 2ul], _handler.Open.Keys.Order());
    }

    [Fact]
    public async Task Caller_WhoDoesNotReadWhileMemoryIsShort_IsEnded()
    {
        _handler.ResponseAtOnce = [7];
        _memory.Replies.Take(_memory.Replies.LargeBytesMax);
        var running = Run(CancellationToken.None);
        Send(1);
        var failure = await Assert.ThrowsAsync<RpcException>(() => running.WaitAsync(Eventually.Limit));
        Assert.Equal(StatusCode.ResourceExhausted, failure.StatusCode);
    }

    /// <summary>The first reply was sent by itself, by a thread that was woken for it.</summary>
    [Fact]
    public async Task Replies_ToCallsThatAreAnsweredTogether_AreOneMessage()
    {
        var running = Run(CancellationToken.None);
        ulong[] ids = [.. Enumerable.Range(1, 20).Select(static id => (ulong)id)];
        Send(ids);
        _messages.Writer.Complete();
        await Eventually.TrueAsync(() => _handler.Open.Count == ids.Length, "the calls are started");
        HeldSending.While(handler => Assert.All(ids, id => Assert.True(handler.Answer(id, [7]))), _handler);
        await running.WaitAsync(Eventually.Limit);
        Assert.Equal((ids.Length, 1), (_responses.Replies.Count, _responses.Messages));
    }

    [Fact]
    public async Task Stream_ThatBreaks_EndsWithTheFirstReason()
    {
        var running = Run(CancellationToken.None);
        _handler.Replies.Break(new InvalidOperationException("first"));
        _handler.Replies.Break(new InvalidOperationException("second"));
        Assert.Equal("first", (await Assert.ThrowsAsync<InvalidOperationException>(() => running.WaitAsync(Eventually.Limit))).Message);
    }

    private Task Run(CancellationToken caller)
    {
        if (_handler.ResponseAtOnce is null)
            _responses.MayGo.SetResult();
        _handler.Replies = new ExchangeReplies(_handler, new ExchangePlaces(_memory.Requests), _memory, _responses, caller);
        return new ExchangeServer(_handler, _handler.Replies).RunAsync(new Reader(_messages.Reader));
    }

    private void Send(params ulong[] ids)
    {
        var request = new ExchangeRequest { Calls = { ids.Select(static id => new Call { Id = id, Method = V1.Method.Get }) } };
        var message = MessageBytes.Rent();
        message.Append(request.ToByteArray());
        _messages.Writer.TryWrite(message);
    }

    private sealed class Handler : IExchangeHandler
    {
        public ExchangeReplies Replies { get; set; } = null!;

        public ConcurrentDictionary<ulong, CallPlace> Open { get; } = new();

        /// <summary>The response to each call, which is answered when it is started.</summary>
        public byte[]? ResponseAtOnce { get; set; }

        /// <summary>Called with the id of each call that was started.</summary>
        public Action<ulong>? Started { get; set; }

        public Google.Rpc.Status RepliesWait => new() { Code = (int)StatusCode.Unavailable };

        public Google.Rpc.Status NotRead => new() { Code = (int)StatusCode.ResourceExhausted };

        public void Arrived()
        {
        }

        public void Start(scoped in CallHead head)
        {
            Assert.Equal(PlaceOutcome.Taken, Replies.TryOpen(head.Shard, isChange: false, head.Request.Length, out var place));
            Open[head.Id] = place;
            if (ResponseAtOnce is { } response)
                Answer(head.Id, response);
            Started?.Invoke(head.Id);
        }

        public void Cancel(ulong id) => Refuse(id);

        public bool Answer(ulong id, byte[] response) => Replies.TryAnswer(id, Open[id], new EncodedAnswer(response));

        public void Refuse(ulong id) => Replies.Refuse(id, Open[id], new Google.Rpc.Status { Code = (int)StatusCode.Aborted });
    }

    private sealed class Reader(ChannelReader<MessageBytes> messages) : IAsyncStreamReader<MessageBytes>
    {
        public MessageBytes Current { get; private set; } = null!;

        public async Task<bool> MoveNext(CancellationToken cancellationToken)
        {
            if (!await messages.WaitToReadAsync(cancellationToken))
                return false;
            Current = await messages.ReadAsync(cancellationToken);
            return true;
        }
    }

    private sealed class Responses : IServerStreamWriter<MessageBytes>
    {
        public ConcurrentQueue<Reply> Replies { get; } = new();

        public int Messages { get; private set; }

        /// <summary>Nothing is written before.</summary>
        public TaskCompletionSource MayGo { get; } = new(TaskCreationOptions.RunContinuationsAsynchronously);

        public WriteOptions? WriteOptions { get; set; }

        public Task WriteAsync(MessageBytes message, CancellationToken cancellationToken) => WriteAsync(message);

        public async Task WriteAsync(MessageBytes message)
        {
            await MayGo.Task;
            Messages++;
            foreach (var reply in ExchangeResponse.Parser.ParseFrom(message.Written).Replies)
                Replies.Enqueue(reply);
            message.Return();
        }
    }
}
