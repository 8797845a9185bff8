using System.Diagnostics;
using System.Runtime.CompilerServices;
using Google.Protobuf;
using KvCluster.Client.Routing;
using KvCluster.Client.Runtime;
using KvCluster.Client.Telemetry;
using KvCluster.Telemetry;
using KvCluster.V1;
using Polly;
using Polly.Retry;
using Status = Google.Rpc.Status;
using StatusCode = Grpc.Core.StatusCode;

namespace KvCluster.Client.Transport;

/// <summary>
/// Sends a call to the leader of its key's shard, or a read to any replica if its mode allows that. It finds the shard, has <see cref="ReplicaChoice"/>, or
/// <see cref="GatewayChoice"/>, choose the node, sends, updates the map from the answer of a wrong node, and repeats until the caller's deadline.
/// <see cref="CallAttempts"/> decides what may be repeated. Used by the client library and the router. Thread-safe.
/// </summary>
internal sealed class CallRouter : IAsyncDisposable
{
    /// <summary>
    /// The maximum size of a response on <see cref="ReplyLane.Small"/>. Sending a thousand of these takes as long as sending eight of the largest values.
    /// </summary>
    public const int SmallReplyBytes = 64 << 10;

    // The limit of a Write plus the encoding around its keys and values. A node would end the whole stream over a larger message.
    private const int RequestBytesMax = KvLimits.WriteBytesMax + (1 << 20);
    // A wait without limit checks at this interval, because a timer cannot be set for longer than some weeks.
    private const int MapWaitMs = 1_000;
    // For the metrics, as the reason of an attempt at another replica.
    private const string Hedged = "HEDGED";
    // The longest wait before the next attempt of a call when the retry budget was empty.
    private const int NewsWaitMs = 1_000;
    private readonly KvClientOptions _options;
    private readonly ClientRuntime _runtime;
    private readonly NodeConnections _connections;
    private readonly NodeConnections _large;
    private readonly ShardMapWatcher _watch;

    // The endpoint to ask without a map; null: the map comes first.
    private readonly string? _askedFirst;
    private readonly RetryBudget _budget;
    private readonly Func<CallAttempts, CancellationToken, ValueTask<Attempt>> _try;
    private readonly AwakeClock? _awake;
    private readonly CancellationTokenSource _closing = new();
    private ResiliencePipeline<Attempt>? _retries;
    private bool _closed;

    /// <param name="options">How the cluster is reached. Its TLS files have been read by the connector.</param>
    /// <param name="connector">Makes the connections to nodes.</param>
    /// <param name="runtime">Time and randomness for waits and deadlines.</param>
    public CallRouter(KvClientOptions options, INodeConnector connector, ClientRuntime runtime)
    {
        _options = options;
        _runtime = runtime;
        // Nothing stands still in simulated time.
        _awake = runtime.Time == TimeProvider.System ? new AwakeClock(runtime.Time) : null;
        Table = new RouteTable(runtime);
        _budget = new RetryBudget(runtime);
        _connections = new NodeConnections(connector);
        _large = new NodeConnections(connector);
        // Several endpoints may belong to different clusters, which only their maps tell. In gateway mode nobody waits for the map.
        _askedFirst = options is { IsForOneRead: true, Gateway: false, EndpointsInUse: [var endpoint] } ? endpoint : null;
        _watch = new ShardMapWatcher(Table, options.EndpointsInUse, connector, runtime, options.Log, whenNeeded: _askedFirst is not null);
        Destinations = options.Gateway ? new GatewayChoice(options, Table, connector, runtime, _connections) : new ReplicaChoice(Table, _connections);
        _try = TryAsync;
    }

    /// <summary>The shard map and the nodes of the cluster.</summary>
    public RouteTable Table { get; }

    /// <summary>Chooses where calls are sent: the nodes of their shards, or the endpoints in gateway mode.</summary>
    public IDestinations Destinations { get; }

    /// <summary>Why the shard map could not be loaded, for an error message.</summary>
    public string MapFailure => _watch.Failure;

    /// <summary>The error of a call that needs the shard map, when there is none in time.</summary>
    public Status MapError => LastingError ?? CallStatus.Unavailable(MapFailure);

    /// <summary>The error of all calls while no endpoint can be used and waiting does not change that; otherwise null.</summary>
    public Status? LastingError => _watch.PermanentFailure is { } permanent ? CallStatus.EndpointUnusable(permanent) : null;

    /// <summary>Time and randomness for waits and deadlines.</summary>
    public ClientRuntime Runtime => _runtime;

    /// <summary>The time in which this process ran, in milliseconds, by which whoever hears nothing gives up. See <see cref="AwakeClock"/>.</summary>
    public long AwakeMs => _awake?.NowMs ?? _runtime.NowMs;

    /// <summary>Cancelled when the client is closed, for streams without a deadline.</summary>
    public CancellationToken Closing => _closing.Token;

    // Made for the first call that is repeated, because that takes long: Polly checks its options by reflection. Two calls at once may both make one, and
    // either will do.
    private ResiliencePipeline<Attempt> Retries => _retries ??= RetriesOf(_runtime);

    /// <summary>The deadline of a call that begins now.</summary>
    /// <param name="timeout">Its maximum time; null means that of the options.</param>
    public long DeadlineFromNow(TimeSpan? timeout = null) => _runtime.NowMs + (long)(timeout ?? _options.Timeout).TotalMilliseconds;

    /// <summary>Makes a call on a key. <paramref name="request"/> must not change until the call is answered.</summary>
    /// <param name="method">The method to call.</param>
    /// <param name="key">Routes it.</param>
    /// <param name="request">The encoded request message.</param>
    /// <param name="deadlineMs"><see cref="ClientRuntime.NowMs"/> at which to give up.</param>
    /// <param name="cancellationToken">Stops waiting; a change may still be applied.</param>
    /// <param name="isIdentified">The request is a change with a RequestId, so repeating it is harmless.</param>
    /// <param name="atAnyReplica">The request is a read that any replica may serve.</param>
    /// <param name="parent">The span that the call belongs to; default means the current one of the caller's flow, if there is one.</param>
    /// <param name="way">How a read's response is to be sent. On the large lane there is one attempt, because the caller must not keep room for a response
    /// while the shard cannot answer.</param>
    /// <param name="isQuiet">A cancelled call returns <see cref="RoutedReply.Cancelled"/> instead of throwing, where it can. Each method that an exception
    /// passes on its way takes as long as a call, and a router may have many callers with short deadlines.</param>
    /// <param name="place">Where the key is, if it has been searched already.</param>
    /// <param name="noRetry">No attempt is repeated, except at the node that a redirection names.</param>
    /// <param name="hedgeAfter">How long a read at any replica waits before it is sent to another one as well; null: it never is. It has no effect on other
    /// calls, nor with <paramref name="noRetry"/>.</param>
    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    public async ValueTask<RoutedReply> CallAsync(
        Method method, ReadOnlyMemory<byte> key,
        ByteString request, long deadlineMs, CancellationToken cancellationToken, bool isIdentified = false, bool atAnyReplica = false,
        ActivityContext parent = default, ReplyWay way = default, bool isQuiet = false, KeyPlace place = default, bool noRetry = false,
        TimeSpan? hedgeAfter = null)
    {
        ThrowIfClosed();
        if (request.Length > RequestBytesMax)
            return new RoutedReply(ByteString.Empty, CallStatus.TooLarge(method, request.Length));
        if (parent == default && Activity.Current is { IdFormat: ActivityIdFormat.W3C } current)
            parent = current.Context;
        var began = ClientMetrics.WatchesRequests ? Stopwatch.GetTimestamp() : 0;
        var span = ClientMetrics.TakesSpans ? ClientMetrics.StartCall(method, parent) : null;
        var call = CallAttempts.Rent(_runtime, method, key, request, deadlineMs, isIdentified, atAnyReplica);
        (call.Traceparent, call.Way, call.Place) = (TraceparentOf(span, parent), way, place);
        (call.NoRetry, call.HedgeAfter) = (noRetry, atAnyReplica && !noRetry ? hedgeAfter : null);
        var (reason, status) = ("CANCELLED", StatusCode.Cancelled);
        try
        {
            var attempt = await TryAsync(call, cancellationToken).ConfigureAwait(false);
            // Begun with a cancelled token, a pipeline takes milliseconds for the stack trace of its exception. A router whose callers had short deadlines did
            // nothing else.
            if (attempt.MayRetry && way.Lane != ReplyLane.Large && !cancellationToken.IsCancellationRequested)
            {
                if (attempt.Pause(0, _runtime) is { } asked)
                    await _runtime.DelayAsync(asked, cancellationToken).ConfigureAwait(false);
                attempt = await Retries.ExecuteAsync(_try, call, cancellationToken).ConfigureAwait(false);
            }
            // This comes before the reason is noted, because the failure of a cancelled attempt is not a failure of the call.
            if (isQuiet && cancellationToken.IsCancellationRequested)
                return RoutedReply.Cancelled;
            cancellationToken.ThrowIfCancellationRequested();
            var error = call.WeakestOf(attempt.Error);
            (reason, status) = error is null ? (null, StatusCode.OK) : (CallStatus.ReasonOf(error), (StatusCode)error.Code);
            return new RoutedReply(attempt.Response, error);
        }
        finally
        {
            if (began != 0 || span is not null)
                End(call, began, span, reason, status);
            call.Return();
        }
    }

    public async ValueTask DisposeAsync()
    {
        if (Interlocked.Exchange(ref _closed, true))
            return;
        await _runtime.CancelAsync(_closing).ConfigureAwait(false);
        await _watch.DisposeAsync().ConfigureAwait(false);
        await Destinations.DisposeAsync().ConfigureAwait(false);
        await _connections.DisposeAsync().ConfigureAwait(false);
        await _large.DisposeAsync().ConfigureAwait(false);
        Table.Dispose();
        _awake?.Dispose();
        // The source of the token is not disposed, because streams that are still ending may look at the token.
    }

    /// <exception cref="ObjectDisposedException">The client is closed.</exception>
    public void ThrowIfClosed()
    {
        // Names the type that the user has disposed.
        if (_closed)
            throw new ObjectDisposedException("KvCluster.Client.KvClient");
    }

    /// <summary>Waits for the first complete map. Returns false if the deadline passed, or no endpoint can be used and waiting will not change that.</summary>
    /// <exception cref="ObjectDisposedException">The client is closed.</exception>
    public async Task<bool> WaitForMapAsync(long deadlineMs, CancellationToken cancellationToken)
    {
        ThrowIfClosed();
        _watch.Begin();
        for (var change = Table.NextChange(); !Table.IsKnown; change = Table.NextChange())
        {
            var left = deadlineMs - _runtime.NowMs;
            ThrowIfClosed();
            if (left <= 0 || _watch.PermanentFailure is not null)
                return false;
            await Task.WhenAny(change, _runtime.DelayAsync(TimeSpan.FromMilliseconds(Math.Min(left, MapWaitMs)), cancellationToken)).ConfigureAwait(false);
            cancellationToken.ThrowIfCancellationRequested();
        }
        return true;
    }

    /// <summary>Whether a read that ended with this error may succeed if it is repeated.</summary>
    public static bool MayRepeat(Status error) => CallAttempts.IsRetried(CallStatus.ReasonOf(error));

    /// <summary>
    /// Waits before a read that failed on the large lane is repeated on the small one. It waits as long as between two attempts of a call, and takes a
    /// repetition from the budget as well.
    /// </summary>
    /// <param name="failure">An error for which <see cref="MayRepeat"/> is true.</param>
    /// <param name="turn">How often this has happened before.</param>
    /// <param name="deadlineMs"><see cref="ClientRuntime.NowMs"/> at which to give up.</param>
    /// <param name="cancellationToken">The caller has stopped waiting.</param>
    public Task PauseAsync(Status failure, int turn, long deadlineMs, CancellationToken cancellationToken)
    {
        var asked = CallStatus.RetryDelayOf(failure);
        var least = _budget.TryTake() ? TimeSpan.Zero : TimeSpan.FromMilliseconds(NewsWaitMs);
        var pause = Attempt.Failed(failure, mayRetry: true, (asked > least ? asked : least, _runtime.Left(deadlineMs))).Pause(turn, _runtime);
        return _runtime.DelayAsync(pause ?? least, cancellationToken);
    }

    private static ResiliencePipeline<Attempt> RetriesOf(ClientRuntime runtime) =>
        new ResiliencePipelineBuilder<Attempt> { TimeProvider = runtime.Time }
            .AddRetry(new RetryStrategyOptions<Attempt>
            {
                ShouldHandle = static arguments => ValueTask.FromResult(arguments.Outcome.Result is { MayRetry: true }),
                BackoffType = DelayBackoffType.Exponential,
                UseJitter = true,
                Delay = TimeSpan.FromMilliseconds(5),
                // A failover takes about a second. This interval is short enough to notice its end soon and costs a waiting caller little.
                MaxDelay = TimeSpan.FromMilliseconds(100),
                MaxRetryAttempts = int.MaxValue,
                DelayGenerator = arguments => ValueTask.FromResult(arguments.Outcome.Result.Pause(arguments.AttemptNumber, runtime)),
                Randomizer = runtime.Chance,
            })
            .Build();

    // The caller's own span is passed on even if nobody listens to ours: the spans of the nodes are then its children.
    private static string TraceparentOf(Activity? span, ActivityContext parent) => span?.Id
        ?? (parent.TraceFlags.HasFlag(ActivityTraceFlags.Recorded) ? $"00-{parent.TraceId}-{parent.SpanId}-01" : "");

    private static void End(CallAttempts call, long began, Activity? span, string? reason, StatusCode status)
    {
        // A read whose response is too large for its lane is repeated on another lane, and so is one that failed on the large lane. Only the repetition
        // counts as the call.
        var isAskedAgain = reason == StatusDetails.ReplyLarge || (call.Way.Lane == ReplyLane.Large && CallAttempts.IsRetried(reason));
        if (began != 0 && !isAskedAgain)
            ClientMetrics.RequestEnded(call.Method, Stopwatch.GetElapsedTime(began), reason);
        if (span is null)
            return;
        span.SetTag("kvcluster.attempts", call.Attempts);
        Spans.StopCall(span, Spans.NameOf(status), reason);
    }

    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    private async ValueTask<Attempt> TryAsync(CallAttempts call, CancellationToken cancellationToken)
    {
        if (_closed)
            return Attempt.Failed(CallStatus.Closed, mayRetry: false);
        if (call.IsCharged && !_budget.TryTake())
            await WaitForNewsAsync(call, cancellationToken).ConfigureAwait(false);
        if (_runtime.NowMs >= call.DeadlineMs)
            return call.TimedOut();
        if (!Table.IsKnown && _watch.PermanentFailure is not null)
            return Attempt.Failed(MapError, mayRetry: false);
        if (Destinations.NeedMap && !Table.IsKnown)
        {
            if (_askedFirst is not null && call is { Attempts: 0, AtAnyReplica: false, NoRetry: false } && call.Method.IsRead())
            {
                var first = await TryEndpointAsync(call, _askedFirst, cancellationToken).ConfigureAwait(false);
                // A redirection costs the cluster nothing, and the map says more.
                if (!first.MayRetry || call.IsCharged)
                    return first;
            }
            if (!await WaitForMapAsync(call.DeadlineMs, cancellationToken).ConfigureAwait(false))
                return Attempt.Failed(MapError, mayRetry: false);
        }
        var shard = Table.Find(call.Key.Span, call.Place);
        var turn = call.Way.Turn + call.Attempts++;
        if (turn > 0)
            ClientMetrics.Retried(call.Method, call.LastReason);
        var destination = Destinations.ForCall(shard, turn, call.AtAnyReplica);
        if (destination.Address is null)
            return call.Again(destination.Failure!);
        var attempt = call.HedgeAfter is { } hedgeAfter
            ? await TryHedgedAsync(call, hedgeAfter, shard, destination, cancellationToken).ConfigureAwait(false)
            : Judge(call, await SendAsync(call, shard, destination, cancellationToken).ConfigureAwait(false));
        // The pause before the next attempt would only make it later still.
        return attempt.MayRetry && _runtime.NowMs >= call.DeadlineMs ? call.TimedOut() : attempt;
    }

    // An endpoint that is a router serves the read, and so does a node that leads the shard. Another node redirects it. Without a map no other address is
    // known, so the read waits for the connection for as long as that takes.
    private async ValueTask<Attempt> TryEndpointAsync(CallAttempts call, string endpoint, CancellationToken cancellationToken)
    {
        call.Attempts++;
        call.IsAtEndpoint = true;
        var answer = await SendAsync(call, null, new Destination(endpoint, null) { IsSlow = true }, cancellationToken).ConfigureAwait(false);
        var attempt = Judge(call, answer);
        call.IsAtEndpoint = false;
        return attempt;
    }

    // An attempt whose first node does not answer in time is sent to a second one. The first answer that settles the call wins. The other one is cancelled,
    // which its node hears, and not waited for.
    private async ValueTask<Attempt> TryHedgedAsync(
        CallAttempts call, TimeSpan hedgeAfter, ShardRoute? shard, Destination destination, CancellationToken cancellationToken)
    {
        using var settled = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        try
        {
            var first = SendAsync(call, shard, destination, settled.Token).AsTask();
            await Task.WhenAny(first, _runtime.DelayAsync(hedgeAfter, settled.Token)).ConfigureAwait(false);
            var other = first.IsCompleted || cancellationToken.IsCancellationRequested ? default : Destinations.ForHedge(shard, destination.Address!);
            // Without budget it waits for the first node, because a cluster that is slow altogether gets no faster by twice as many reads.
            if (other.Address is null || !_budget.TryTake())
                return Judge(call, await first.ConfigureAwait(false));
            ClientMetrics.Retried(call.Method, Hedged);
            var second = SendAsync(call, shard, other, settled.Token).AsTask();
            var earlier = await Task.WhenAny(first, second).ConfigureAwait(false);
            var attempt = Judge(call, await earlier.ConfigureAwait(false));
            return attempt.MayRetry ? Judge(call, await (earlier == first ? second : first).ConfigureAwait(false)) : attempt;
        }
        catch (OperationCanceledException) when (cancellationToken.IsCancellationRequested)
        {
            // A call that waited for a place ends with an exception that names the token of both calls, which the caller does not know.
            throw new OperationCanceledException(cancellationToken);
        }
        finally
        {
            await _runtime.CancelAsync(settled).ConfigureAwait(false);
        }
    }

    private ValueTask<CallAnswer> SendAsync(CallAttempts call, ShardRoute? shard, Destination destination, CancellationToken cancellationToken)
    {
        // A connection's places are shared among the shards, even on a connection to a gateway, which finds the shard itself. Otherwise one stuck shard would
        // block the calls to all shards.
        var pending = PendingCall.Rent(call.Method, call.Request, shard?.ShardId ?? default, destination.Generation, call.AttemptDeadlineMs());
        pending.Traceparent = call.Traceparent;
        pending.IsPatient = destination.IsSlow || call.NoRetry;
        pending.ReplyBytesMax = call.Way switch
        {
            { Lane: ReplyLane.Any } => 0u,
            { Lane: ReplyLane.Large, BytesMax: > 0 and var bytesMax } => (uint)bytesMax,
            _ => SmallReplyBytes,
        };
        var connections = call.Way.Lane == ReplyLane.Large ? _large : _connections;
        return connections.To(destination.Address!).CallAsync(pending, cancellationToken);
    }

    // A leader may have been found meanwhile. Otherwise this is the interval at which such a call tries.
    private async Task WaitForNewsAsync(CallAttempts call, CancellationToken cancellationToken)
    {
        var wait = TimeSpan.FromMilliseconds(Math.Clamp(call.DeadlineMs - _runtime.NowMs, 0, NewsWaitMs) * (0.5 + (_runtime.Chance() / 2)));
        await Task.WhenAny(Table.NextChange(), _runtime.DelayAsync(wait, cancellationToken)).ConfigureAwait(false);
        cancellationToken.ThrowIfCancellationRequested();
    }

    private Attempt Judge(CallAttempts call, CallAnswer answer)
    {
        if (answer.Reply is not { } reply)
            return call.Unanswered(answer);
        if (reply.Code == 0)
            return new Attempt(reply.Response, null, false);
        var status = Status.Parser.ParseFrom(reply.Status);
        RouteHints.Fold(Table, status);
        return call.Refused(status);
    }
}
