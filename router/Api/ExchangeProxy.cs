// One Exchange stream through a router: each call is forwarded by its own key, answers gather in messages as they come. The streams to the nodes are shared
// by all callers and always read, so what one caller does not read has to stay out here: no further call is begun while replies wait to be written, reads
// go out in a number that grows while their answers are small, and an answer that there is no room for is dropped and its read refused.
using System.Threading.Channels;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client.Transport;
using KvCluster.Serving;
using KvCluster.Serving.Memory;
using KvCluster.V1;
using KvCluster.Wire;
using Method = KvCluster.V1.Method;

namespace KvCluster.Router.Api;

/// <summary>Runs the calls of one exchange. Started by one thread; answers come on any.</summary>
internal sealed class ExchangeProxy : IDisposable
{
    private const int OpenCallsMax = 4_096;
    private const int RepliesPerMessageMax = 512;

    /// <summary>Small replies go together until a message has so many bytes.</summary>
    private const int GatheredBytes = 256 << 10;

    /// <summary>A message with several replies has no more: what gRPC takes unless somebody says otherwise. A single reply may be larger.</summary>
    private const int MessageBytesMax = 4 << 20;

    /// <summary>Bytes of replies that are not written at which no further call is begun.</summary>
    private const int WaitingBytesMax = 2 * MessageBytesMax;

    /// <summary>Beyond this the replies to reads that were begun before are dropped. Two of the largest.</summary>
    private const int ReplyBytesMax = 32 << 20;

    /// <summary>Bytes of requests under way at which no further one is begun.</summary>
    private const int RequestBytesMax = 20 << 20;

    /// <summary>Refusals and answers to changes, which must be given, are smaller than this.</summary>
    private const int OutcomeBytesMax = 4 << 10;

    /// <summary>What a reply takes besides its response, as objects.</summary>
    private const int ReplyOverheadBytes = 128;

    /// <summary>Reads of a stream of which nothing is known yet; each small answer lets one more out.</summary>
    private const int FirstReads = 16;

    private readonly Forwarding _forwarding;
    private readonly RouterOptions _options;
    private readonly CallMemory _memory;
    private readonly IServerStreamWriter<MessageBytes> _responses;
    private readonly ServerCallContext _context;
    private readonly CancellationTokenSource _broken;
    private readonly Lock _gate = new();
    private readonly Channel<Reply> _replies = Channel.CreateUnbounded<Reply>(new UnboundedChannelOptions { SingleReader = true });
    private BudgetShare _requestBytes;
    private BudgetShare _replyBytes;
    private TaskCompletionSource? _room;
    private int _openCalls;
    private int _openReads;
    private int _readsMax = FirstReads;
    private bool _isBroken;

    public ExchangeProxy(Forwarding forwarding, RouterOptions options, CallMemory memory, IServerStreamWriter<MessageBytes> responses, ServerCallContext context)
    {
        _forwarding = forwarding;
        _options = options;
        _memory = memory;
        _responses = responses;
        _context = context;
        _requestBytes = new BudgetShare(memory.Requests);
        _replyBytes = new BudgetShare(memory.Replies);
        _broken = CancellationTokenSource.CreateLinkedTokenSource(context.CancellationToken);
    }

    /// <summary>Ends when the caller has completed its side and every answer is written, or when the stream breaks.</summary>
    public async Task RunAsync(IAsyncStreamReader<MessageBytes> requests)
    {
        var sending = SendAsync();
        try
        {
            while (await requests.MoveNext(_broken.Token).ConfigureAwait(false))
                await StartAllAsync(requests.Current).ConfigureAwait(false);
            await WaitAsync(static exchange => exchange._openCalls == 0).ConfigureAwait(false);
        }
        finally
        {
            _replies.Writer.TryComplete();
            await sending.ConfigureAwait(false);
        }
    }

    // Calls that are still under way when the stream broke look at the token later on, so it is cancelled and left to the collector.
    public void Dispose()
    {
        _broken.Cancel();
        lock (_gate)
        {
            _isBroken = true;
            _replyBytes.Free(_replyBytes.Used);
        }
    }

    private async Task StartAllAsync(MessageBytes message)
    {
        ExchangeRequest request;
        try
        {
            // The calls' requests are copied out of the message, so it can be given back.
            request = ExchangeRequest.Parser.ParseFrom(message.Written);
        }
        catch (InvalidProtocolBufferException failure)
        {
            throw new RpcException(new Status(StatusCode.InvalidArgument, failure.Message));
        }
        message.Return();
        var arrivedMs = Environment.TickCount64;
        foreach (var call in request.Calls)
        {
            if (IsRead(call))
                await WaitAsync(static exchange => exchange.HasRoomLocked() && exchange._openReads < exchange._readsMax).ConfigureAwait(false);
            else
                await WaitAsync(static exchange => exchange.HasRoomLocked()).ConfigureAwait(false);
            if (TryOpen(call))
                _ = ForwardAsync(call, arrivedMs);
        }
    }

    private static bool IsRead(Call call) => call.Method is Method.Get or Method.GetMany;

    private bool HasRoomLocked() =>
        _openCalls < OpenCallsMax && _requestBytes.Used < RequestBytesMax && _replyBytes.Used < (_memory.Replies.IsShort ? 1 : WaitingBytesMax);

    // Only the loop that reads waits.
    private async ValueTask WaitAsync(Func<ExchangeProxy, bool> isThere)
    {
        while (true)
        {
            Task changed;
            lock (_gate)
            {
                if (isThere(this))
                    return;
                _room = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
                changed = _room.Task;
            }
            await changed.WaitAsync(_broken.Token).ConfigureAwait(false);
        }
    }

    // False: it is answered.
    private bool TryOpen(Call call)
    {
        lock (_gate)
        {
            if (!_requestBytes.TryUse(call.Request.Length))
            {
                AddLocked(Refused(call.Id, "The router serves as many bytes of requests as it takes at a time; nothing was applied. Try again."));
                return false;
            }
            _openCalls++;
            if (IsRead(call))
                _openReads++;
            return true;
        }
    }

    // Never throws: a failure ends the stream, by way of the sender.
    private async Task ForwardAsync(Call call, long arrivedMs)
    {
        var waitMs = call.TimeoutMs == 0 ? (long)_options.Timeout.TotalMilliseconds : call.TimeoutMs;
        Reply? answer = null;
        try
        {
            var reply = await _forwarding.CallAsync(call.Method, call.Request, call.Traceparent, arrivedMs + waitMs, _context, _broken.Token).ConfigureAwait(false);
            answer = reply.Error is null
                ? new Reply { Id = call.Id, Response = reply.Response }
                : new Reply { Id = call.Id, Code = reply.Error.Code, Status = reply.Error.ToByteString() };
        }
        catch (Exception failure)
        {
            _replies.Writer.TryComplete(failure);
        }
        Close(call, answer);
    }

    private void Close(Call call, Reply? answer)
    {
        lock (_gate)
        {
            _requestBytes.Free(call.Request.Length);
            _openCalls--;
            if (IsRead(call))
                CloseReadLocked(answer?.Response.Length ?? 0);
            if (answer is not null && !_isBroken)
                AddLocked(answer);
            _room?.TrySetResult();
        }
    }

    // So many reads are let out that their answers, if they are like this one, fit what a stream may hold.
    private void CloseReadLocked(int responseBytes)
    {
        _openReads--;
        _readsMax = responseBytes <= ByteBudget.SmallBytes
            ? Math.Min(_readsMax + 1, OpenCallsMax)
            : Math.Clamp(ReplyBytesMax / 2 / responseBytes, 1, _readsMax);
    }

    private void AddLocked(Reply reply)
    {
        var bytes = BytesOf(reply);
        if (bytes <= OutcomeBytesMax)
        {
            _replyBytes.Use(bytes);
        }
        else if (!((_replyBytes.Used == 0 || bytes <= ByteBudget.SmallBytes || _replyBytes.Used + bytes <= ReplyBytesMax) && _replyBytes.TryUse(bytes)))
        {
            reply = Refused(reply.Id, "As many bytes of replies wait to be read as the router keeps at a time. Try again.");
            _replyBytes.Use(BytesOf(reply));
        }
        _replies.Writer.TryWrite(reply);
    }

    private static Reply Refused(ulong id, string message)
    {
        var status = CallStatus.Create(StatusCode.Unavailable, "BUSY", message, "no");
        return new Reply { Id = id, Code = status.Code, Status = status.ToByteString() };
    }

    private static int BytesOf(Reply reply) => reply.Response.Length + reply.Status.Length + ReplyOverheadBytes;

    private async Task SendAsync()
    {
        try
        {
            while (await _replies.Reader.WaitToReadAsync(_broken.Token).ConfigureAwait(false))
            {
                var bytes = 0;
                var message = Gather(ref bytes);
                if (!await StalledWrite.EndsAsync(_responses.WriteAsync(message), _memory.Replies).ConfigureAwait(false))
                {
                    throw CallStatus.Create(
                        StatusCode.ResourceExhausted, "NOT_READ", "The caller does not read what it asked for. Calls of the stream without an answer may have been applied.", "unknown").ToRpcException();
                }
                lock (_gate)
                {
                    if (!_isBroken)
                        _replyBytes.Free(bytes);
                    _room?.TrySetResult();
                }
            }
        }
        finally
        {
            // Whoever reads or waits for a place stops too.
            await _broken.CancelAsync().ConfigureAwait(false);
        }
    }

    private MessageBytes Gather(ref int bytes)
    {
        var gathered = new ExchangeResponse();
        while (bytes < GatheredBytes && gathered.Replies.Count < RepliesPerMessageMax && _replies.Reader.TryPeek(out var next))
        {
            if (bytes > 0 && bytes + BytesOf(next) > MessageBytesMax)
                break;
            _replies.Reader.TryRead(out _);
            gathered.Replies.Add(next);
            bytes += BytesOf(next);
        }
        var message = MessageBytes.Rent();
        gathered.WriteTo(message.Append(gathered.CalculateSize()));
        return message;
    }
}
