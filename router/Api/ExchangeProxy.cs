// One Exchange stream through a router. Each call is forwarded by its own key (Forwarding), and replies are gathered into messages as they arrive
// (ReplyWriter). The streams to the nodes are shared by all callers and always read, so the replies that one caller does not read are limited here
// (ReplyBudget): no further call is begun while replies wait to be written, and a reply for which there is no room is dropped and its read refused. Nothing
// else makes the stream wait. Shards share its places (CallPlaces), a call that finds none is refused as busy, and reads that may not be sent yet wait beside
// the stream, shard by shard (ReadsInFlight).
using System.Diagnostics.CodeAnalysis;
using Grpc.Core;
using KvCluster.Client.Routing;
using KvCluster.ServiceDefaults;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Router.Api;

/// <summary>Runs the calls of one exchange. Started by one thread; replies arrive on any.</summary>
internal sealed class ExchangeProxy : IExchangeCalls, IDisposable
{
    private readonly Forwarding _forwarding;
    private readonly RouterOptions _options;
    private readonly string _peer;
    private readonly CancellationTokenSource _broken;
    private readonly Lock _gate = new();
    private readonly CallPlaces<string> _places;
    private readonly ReadsInFlight _reads;
    private readonly ReplyBudget _replies;
    private readonly ReplyWriter _writer;
    private readonly Dictionary<ulong, ExchangeCall> _open = [];
    private readonly Stack<ExchangeCall> _pool = new();

    // What the reading loop waits for: a call has ended, or replies were written.
    private TaskCompletionSource? _changed;
    private long _arrivedMs;
    private bool _isWaitingForMap;
    private bool _isBroken;

    public ExchangeProxy(
        Forwarding forwarding,
        RouterOptions options, ExchangePlaces process, CallMemory memory, IServerStreamWriter<MessageBytes> responses, ServerCallContext context)
    {
        _forwarding = forwarding;
        _options = options;
        _peer = context.Peer;
        _broken = CancellationTokenSource.CreateLinkedTokenSource(context.CancellationToken);
        _places = new CallPlaces<string>(
            process,
            memory.Requests,
            isFull: "The shard has reached the router's limit of open calls for one shard; nothing was applied. Try again.",
            isShort: "The router has reached its limit of memory for requests; nothing was applied. Try again.");
        // On other threads, because a read that ends at once lets the next one go.
        _reads = new ReadsInFlight(read => ThreadPool.UnsafeQueueUserWorkItem(
            static work => _ = work.Exchange.ForwardAsync(work.Read), (Exchange: this, Read: read), preferLocal: true));
        _replies = new ReplyBudget(_gate, memory.Replies);
        _writer = new ReplyWriter(responses, memory.Replies, Written);
    }

    /// <summary>Runs until the caller has completed its side and every reply is written, or until the stream breaks.</summary>
    public async Task RunAsync(IAsyncStreamReader<MessageBytes> requests)
    {
        var sending = SendAsync();
        try
        {
            while (await requests.MoveNext(_broken.Token).ConfigureAwait(false))
                await StartAllAsync(requests.Current).ConfigureAwait(false);
            await WaitAsync(static exchange => exchange._places.Taken == 0).ConfigureAwait(false);
        }
        finally
        {
            _writer.Complete();
            await sending.ConfigureAwait(false);
        }
    }

    // Calls that are still in progress when the stream broke use the token later, so it is cancelled and not disposed.
    public void Dispose()
    {
        _broken.Cancel();
        lock (_gate)
        {
            _isBroken = true;
            _replies.Clear();
            foreach (var read in _reads.WithdrawAll())
                EndLocked(read, reply: null);
            foreach (var call in _open.Values)
                call.GiveUp();
        }
    }

    private async Task SendAsync()
    {
        try
        {
            await _writer.RunAsync(_broken.Token).ConfigureAwait(false);
        }
        finally
        {
            // The reader and those that wait for a place then stop too.
            await _broken.CancelAsync().ConfigureAwait(false);
        }
    }

    private void Written(long bytes)
    {
        lock (_gate)
        {
            if (!_isBroken)
                _replies.Written(bytes);
            _changed?.TrySetResult();
        }
    }

    // A call may take two bytes in the message but takes a hundred as an object, so the object is made only once it has its place.
    private async Task StartAllAsync(MessageBytes message)
    {
        _arrivedMs = Environment.TickCount64;
        for (var left = message.Count; left > 0;)
        {
            await WaitAsync(static exchange => exchange._replies.HasRoom).ConfigureAwait(false);
            ExchangeMessages.Start(this, message.Written, ref left);
        }
        message.Return();
    }

    /// <inheritdoc/>
    public bool Start(scoped in CallHead head)
    {
        if (TryOpen(head, out var open))
            _ = ForwardAsync(open);
        lock (_gate)
            return _replies.HasRoom;
    }

    // Only the reading loop waits here.
    private async ValueTask WaitAsync(Func<ExchangeProxy, bool> isThere)
    {
        while (true)
        {
            Task changed;
            lock (_gate)
            {
                if (isThere(this))
                    return;
                _changed = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
                changed = _changed.Task;
            }
            await changed.WaitAsync(_broken.Token).ConfigureAwait(false);
        }
    }

    // Returns false if the call has been answered or waits for others.
    private bool TryOpen(scoped in CallHead head, [NotNullWhen(true)] out ExchangeCall? open)
    {
        open = null;
        var route = _forwarding.RouteOf(head.Method, head.Request);
        var (isRead, shard, requestBytes) = (head.Method.IsRead(), route.Place.Shard, head.Request.Length + route.Parts.ObjectBytes);
        lock (_gate)
        {
            if (_places.TryTake(shard, !isRead, requestBytes, out var place) is { } refusal)
            {
                AddLocked(ExchangeCall.Refused(head.Id, refusal));
                return false;
            }
            var call = _pool.TryPop(out var pooled) ? pooled : new ExchangeCall(_replies);
            // If the caller uses one id for two open calls, which it must not, the second can be cancelled only with the stream.
            call.Begin(head, route, _arrivedMs, place, _open.TryAdd(head.Id, call) ? null : _broken.Token);
            if (!isRead || _reads.TryBegin(call, shard))
            {
                open = call;
                return true;
            }
            if (shard == RouteTable.NoShard && !_isWaitingForMap && !_forwarding.HasMap)
            {
                _isWaitingForMap = true;
                _ = RegroupAsync();
            }
            return false;
        }
    }

    // Without a map the shards of reads are unknown, so all of them wait as if they belonged to one shard.
    private async Task RegroupAsync()
    {
        try
        {
            if (!await _forwarding.WaitForMapAsync(_broken.Token).ConfigureAwait(false))
                return;
        }
        catch (OperationCanceledException)
        {
            return;
        }
        lock (_gate)
        {
            _isWaitingForMap = false;
            if (!_isBroken)
                _reads.Regroup(read => _forwarding.RouteOf(read.Route.Method, read.Request.Span).Place.Shard);
        }
    }

    /// <inheritdoc/>
    public void Cancel(ulong id)
    {
        lock (_gate)
        {
            if (!_open.TryGetValue(id, out var open))
                return;
            if (_reads.TryWithdraw(open))
                EndLocked(open, open.Cancelled());
            else
                open.GiveUp();
        }
    }

    // Never throws. A failure ends the stream through the sender.
    private async Task ForwardAsync(ExchangeCall call)
    {
        var waitMs = call switch
        {
            { TimeoutMs: 0 } => (long)_options.Timeout.TotalMilliseconds,
            // The caller is still to get the refusal of a read.
            { IsRead: true } => Deadlines.WaitMs(call.TimeoutMs),
            _ => call.TimeoutMs,
        };
        Reply? reply = null;
        try
        {
            var routed = await _forwarding.CallAsync(
                call.Request, call.Route, call.Traceparent, call.ArrivedMs + waitMs, _peer, call, call.Token).ConfigureAwait(false);
            reply = routed.IsCancelled ? call.Cancelled() : call.Answered(routed);
        }
        catch (OperationCanceledException) when (!_broken.IsCancellationRequested)
        {
            reply = call.Cancelled();
        }
        catch (Exception failure)
        {
            _writer.Complete(failure);
        }
        Close(call, reply);
    }

    private void Close(ExchangeCall call, Reply? reply)
    {
        lock (_gate)
        {
            if (call.IsRead)
                _reads.End(call, reply?.Response.Length ?? 0);
            // From here on the reply is counted instead.
            _replies.GiveBack(call);
            EndLocked(call, reply);
            _replies.LetHoldsIn();
            _reads.SendWaiting();
        }
    }

    private void EndLocked(ExchangeCall call, Reply? reply)
    {
        Invariant.CheckHeld(_gate);
        _places.Return(call.Place);
        if (_open.TryGetValue(call.Id, out var found) && found == call)
            _open.Remove(call.Id);
        if (reply is not null && !_isBroken)
            AddLocked(reply, isOutcome: !call.IsRead);
        if (call.TryReset())
            _pool.Push(call);
        _changed?.TrySetResult();
    }

    // The outcome of a change is told even if there is no room, because a refusal would say that it was not applied.
    private void AddLocked(Reply reply, bool isOutcome = false)
    {
        Invariant.CheckHeld(_gate);
        if (isOutcome)
        {
            _replies.Add(reply);
        }
        else if (!_replies.TryAdd(reply))
        {
            reply = ExchangeCall.Refused(reply.Id, "The router has reached its limit of memory for unread replies. Try again.");
            _replies.Add(reply);
        }
        _writer.Add(reply);
    }
}
