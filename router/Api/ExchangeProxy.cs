// The calls of one exchange through a router. Each call is forwarded by its own key (Forwarding). The streams to the nodes are shared by all callers and always
// read, so what one caller does not read is limited here: ExchangeReplies drops a reply for which there is no room, and refuses its read, and large replies are
// fetched only when there is room for them (ReplyBudget). Reads that may not be sent yet wait beside the stream, shard by shard (ReadsInFlight).
using System.Diagnostics.CodeAnalysis;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Client.Routing;
using KvCluster.Client.Transport;
using KvCluster.ServiceDefaults.Exchanges;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Wire;
using Microsoft.Extensions.Logging;

namespace KvCluster.Router.Api;

/// <summary>Routes and forwards the calls of one exchange. Started by one thread; replies arrive on any.</summary>
internal sealed class ExchangeProxy : IExchangeHandler, IDisposable
{
    // A call that is answered makes room, so the wait is about as long as a call takes.
    private static readonly Google.Rpc.Status Busy = StatusDetails.WithWait(
        CallStatus.Create(
            StatusCode.Unavailable, KvReasons.Busy, "The shard has reached the router's limit of open calls for one shard; nothing was applied. Try again.",
            StatusDetails.NotApplied),
        TimeSpan.FromMilliseconds(20));

    private static readonly Google.Rpc.Status Unread = CallStatus.Create(
        StatusCode.ResourceExhausted,
        CallStatus.NotRead,
        "The caller does not read the replies that it requested. Unanswered calls of the stream may have been applied.",
        StatusDetails.MaybeApplied);

    private readonly Forwarding _forwarding;
    private readonly RouterOptions _options;
    private readonly ILogger _log;
    private readonly string _peer;
    private readonly Lock _gate = new();
    private readonly ReadsInFlight _reads;
    private readonly ExchangeReplies _replies;
    private readonly ReplyBudget _large;
    private readonly Dictionary<ulong, ExchangeCall> _open = [];
    private readonly Stack<ExchangeCall> _pool = new();

    private long _arrivedMs;
    private bool _isWaitingForMap;
    private bool _isBroken;

    /// <param name="forwarding">Forwards its calls.</param>
    /// <param name="options">Have the time of calls whose callers allow none.</param>
    /// <param name="process">The places of all exchanges.</param>
    /// <param name="memory">The memory of all calls.</param>
    /// <param name="log">Gets bugs.</param>
    /// <param name="responses">Where replies are written.</param>
    /// <param name="peer">The caller's address and port.</param>
    /// <param name="cancellationToken">The caller has gone.</param>
    public ExchangeProxy(
        Forwarding forwarding, RouterOptions options, ExchangePlaces process, CallMemory memory, ILogger log, IServerStreamWriter<MessageBytes> responses,
        string peer, CancellationToken cancellationToken)
    {
        (_forwarding, _options, _log, _peer) = (forwarding, options, log, peer);
        _replies = new ExchangeReplies(this, process, memory, responses, cancellationToken);
        _large = new ReplyBudget(_gate, () => _replies.WaitingBytes);
        // On other threads, because a read that ends at once lets the next one go.
        _reads = new ReadsInFlight(read => ThreadPool.UnsafeQueueUserWorkItem(
            static work => _ = work.Exchange.ForwardAsync(work.Read), (Exchange: this, Read: read), preferLocal: true));
    }

    public Google.Rpc.Status RepliesWait => KvProxy.RepliesWait;

    public Google.Rpc.Status NotRead => Unread;

    /// <summary>Runs until the caller has completed its side and every reply is written, or until the stream breaks.</summary>
    public Task RunAsync(IAsyncStreamReader<MessageBytes> requests) => new ExchangeServer(this, _replies).RunAsync(requests);

    // Ends what is still in progress when the stream broke.
    public void Dispose()
    {
        _replies.BreakWithoutCaller();
        lock (_gate)
        {
            _isBroken = true;
            foreach (var read in _reads.WithdrawAll())
                EndLocked(read, reply: null);
            foreach (var call in _open.Values)
                call.GiveUp();
        }
    }

    public void Arrived() => _arrivedMs = Environment.TickCount64;

    public void Written()
    {
        lock (_gate)
            _large.LetHoldsIn();
    }

    public void Start(scoped in CallHead head)
    {
        if (TryOpen(head, out var open))
            _ = ForwardAsync(open);
    }

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

    // Returns false if the call has been answered or waits for others. Its object takes a hundred bytes, and is made only once it has its place.
    private bool TryOpen(scoped in CallHead head, [NotNullWhen(true)] out ExchangeCall? open)
    {
        open = null;
        var route = _forwarding.RouteOf(head.Method, head.Request);
        var (isRead, shard, requestBytes) = (head.Method.IsRead(), route.Place.Shard, head.Request.Length + route.Parts.ObjectBytes);
        var outcome = _replies.TryOpen(shard, !isRead, requestBytes, out var place);
        if (outcome != PlaceOutcome.Taken)
        {
            _forwarding.RefusedAsBusy(head.Method);
            _replies.Refuse(head.Id, place, outcome == PlaceOutcome.ShardIsFull ? Busy : KvProxy.RequestsWait);
            return false;
        }
        lock (_gate)
        {
            var call = _pool.TryPop(out var pooled) ? pooled : new ExchangeCall(_large);
            // If the caller uses one id for two open calls, which it must not, the second can be cancelled only with the stream.
            call.Begin(head, route, _arrivedMs, place, _open.TryAdd(head.Id, call) ? null : _replies.Broken);
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
            if (!await _forwarding.WaitForMapAsync(_replies.Broken).ConfigureAwait(false))
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

    // Never throws.
    private async Task ForwardAsync(ExchangeCall call)
    {
        var waitMs = call switch
        {
            { TimeoutMs: 0 } => (long)_options.Timeout.TotalMilliseconds,
            // The caller is still to get the refusal of a read.
            { IsRead: true } => Deadlines.WaitMs(call.TimeoutMs),
            _ => call.TimeoutMs,
        };
        RoutedReply? reply = null;
        try
        {
            var routed = await _forwarding.CallAsync(
                call.Request, call.Route, call.Traceparent, call.ArrivedMs + waitMs, _peer, call, call.Token).ConfigureAwait(false);
            reply = routed.IsCancelled ? call.Cancelled() : routed;
        }
        catch (OperationCanceledException) when (!_replies.Broken.IsCancellationRequested)
        {
            reply = call.Cancelled();
        }
        catch (Exception failure) when (failure is OperationCanceledException or ObjectDisposedException)
        {
            // The stream has ended, or the router ends.
            _replies.Break(failure);
        }
        catch (Exception failure)
        {
            // A bug. Only the call's own caller is told; the stream's other calls are unaffected.
            RouterLog.Failed(_log, call.Route.Method, failure);
            reply = call.Failed(failure);
        }
        Close(call, reply);
    }

    private void Close(ExchangeCall call, RoutedReply? reply)
    {
        lock (_gate)
        {
            if (call.IsRead)
                _reads.End(call, reply?.Response.Length ?? 0);
            // From here on the reply is counted instead.
            _large.GiveBack(call);
            EndLocked(call, reply);
            _large.LetHoldsIn();
            _reads.SendWaiting();
        }
    }

    private void EndLocked(ExchangeCall call, RoutedReply? reply)
    {
        Invariant.CheckHeld(_gate);
        if (_open.TryGetValue(call.Id, out var found) && found == call)
            _open.Remove(call.Id);
        if (reply is not { } told)
            _replies.EndUnanswered(call.Place);
        else if (told.Error is { } error)
            _replies.Refuse(call.Id, call.Place, error);
        else if (call.IsRead)
            _replies.TryAnswer(call.Id, call.Place, new EncodedAnswer(told.Response.Span));
        else
            _replies.AnswerChange(call.Id, call.Place, new EncodedAnswer(told.Response.Span));
        if (call.TryReset())
            _pool.Push(call);
    }
}
