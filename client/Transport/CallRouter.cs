using System.Diagnostics;
using System.Diagnostics.CodeAnalysis;
using System.Runtime.CompilerServices;
using Google.Protobuf;
using Google.Rpc;
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
/// Sends a call to the leader of its key's shard, or a read to any replica if its mode allows that. It finds the route, sends, updates the map from the
/// answer of a wrong node, and repeats until the caller's deadline. It repeats what was certainly not applied, and identified changes whatever their outcome.
/// Used by the client library and the router. Thread-safe.
/// </summary>
internal sealed class CallRouter : IAsyncDisposable
{
    /// <summary>
    /// The maximum size of a response on <see cref="ReplyLane.Small"/>. A thousand of these leave in the time of eight of the largest values.
    /// </summary>
    public const int SmallReplyBytes = 64 << 10;

    // The limit of a Write plus the encoding around its keys and values. A node would end the whole stream over a larger message.
    private const int RequestBytesMax = 17 << 20;
    // A wait without limit checks at this interval, because a timer cannot be set for longer than some weeks.
    private const int MapWaitMs = 1_000;
    // The longest wait before the next attempt of a call that got no repetition from the budget.
    private const int NewsWaitMs = 1_000;
    // At a replica that may be cut off or behind, a read spends at most a third of its time, but at least this.
    private const int ReplicaWaitLeastMs = 500;
    private static readonly string[] NotExecutedReasons = ["SESSION_EXPIRED", "SEQUENCE_CLOSED"];
    private static readonly string[] RetriedReasons = ["NOT_LEADER", "WRONG_SHARD", "NO_LEADER", "BUSY", "STOPPING", ReplicaBehind];
    private const string ReplicaBehind = "REPLICA_BEHIND";
    private const string NoAnswer = "NO_ANSWER";
    private readonly KvClientOptions _options;
    private readonly ClientRuntime _runtime;
    private readonly NodeConnections _connections;
    private readonly NodeConnections _large;
    private readonly ShardMapWatcher _watch;
    private readonly RetryBudget _budget;
    private readonly ResiliencePipeline<Attempt> _retries;
    private int _spread;
    private bool _closed;

    /// <param name="options">How the cluster is reached. Its TLS files have been read by the connector.</param>
    /// <param name="connector">Makes the connections to nodes.</param>
    /// <param name="runtime">Time and randomness for waits and deadlines.</param>
    public CallRouter(KvClientOptions options, INodeConnector connector, ClientRuntime runtime)
    {
        _options = options;
        _runtime = runtime;
        Table = new RouteTable(runtime);
        _budget = new RetryBudget(runtime);
        _connections = new NodeConnections(connector);
        _large = new NodeConnections(connector);
        _watch = new ShardMapWatcher(Table, options.Endpoints, connector, runtime, options.Log);
        Gateways = new Gateways(options, Table, connector, runtime, address => _connections.To(address).IsPaused);
        _retries = new ResiliencePipelineBuilder<Attempt> { TimeProvider = runtime.Time }
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
    }

    /// <summary>The shard map and the nodes of the cluster.</summary>
    public RouteTable Table { get; }

    /// <summary>The endpoints that are called in gateway mode.</summary>
    public Gateways Gateways { get; }

    /// <summary>Why the shard map could not be loaded, for an error message.</summary>
    public string MapFailure => _watch.Failure;

    /// <summary>Time and randomness for waits and deadlines.</summary>
    public ClientRuntime Runtime => _runtime;

    /// <summary>The deadline of a call that begins now.</summary>
    public long DeadlineFromNow() => _runtime.NowMs + (long)_options.Timeout.TotalMilliseconds;

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
    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    public async ValueTask<RoutedReply> CallAsync(
        Method method, ReadOnlyMemory<byte> key, ByteString request, long deadlineMs, CancellationToken cancellationToken, bool isIdentified = false, bool atAnyReplica = false,
        ActivityContext parent = default, ReplyWay way = default)
    {
        // Names the type that the user has disposed.
        if (_closed)
            throw new ObjectDisposedException("KvCluster.Client.KvClient");
        if (request.Length > RequestBytesMax)
            return new RoutedReply(ByteString.Empty, CallStatus.TooLarge(method, request.Length));
        if (parent == default && Activity.Current is { IdFormat: ActivityIdFormat.W3C } current)
            parent = current.Context;
        var began = ClientMetrics.WatchesRequests ? Stopwatch.GetTimestamp() : 0;
        var span = ClientMetrics.TakesSpans ? ClientMetrics.StartCall(method, parent) : null;
        var work = new Work(this, method, key, request, deadlineMs, isIdentified, atAnyReplica) { Traceparent = TraceparentOf(span, parent), Way = way };
        var (reason, status) = ("CANCELLED", StatusCode.Cancelled);
        try
        {
            var attempt = await TryAsync(work, cancellationToken).ConfigureAwait(false);
            if (attempt.MayRetry && way.Lane != ReplyLane.Large)
            {
                if (attempt.Pause(0, _runtime) is { } asked)
                    await Task.Delay(asked, _runtime.Time, cancellationToken).ConfigureAwait(false);
                attempt = await _retries.ExecuteAsync(
                    static (work, cancellation) => work.Router.TryAsync(work, cancellation), work, cancellationToken).ConfigureAwait(false);
            }
            var error = work.WeakestOf(attempt.Error);
            (reason, status) = error is null ? (null, StatusCode.OK) : (CallStatus.ReasonOf(error), (StatusCode)error.Code);
            cancellationToken.ThrowIfCancellationRequested();
            return new RoutedReply(attempt.Response, error);
        }
        finally
        {
            if (began != 0 || span is not null)
                End(work, began, span, reason, status);
        }
    }

    public async ValueTask DisposeAsync()
    {
        if (Interlocked.Exchange(ref _closed, true))
            return;
        await _watch.DisposeAsync().ConfigureAwait(false);
        await Gateways.DisposeAsync().ConfigureAwait(false);
        await _connections.DisposeAsync().ConfigureAwait(false);
        await _large.DisposeAsync().ConfigureAwait(false);
        Table.Dispose();
    }

    /// <summary>Waits for the first complete map. Returns false if the deadline passed or the client is closed.</summary>
    public async Task<bool> WaitForMapAsync(long deadlineMs, CancellationToken cancellationToken)
    {
        for (var change = Table.NextChange(); !Table.IsKnown; change = Table.NextChange())
        {
            var left = deadlineMs - _runtime.NowMs;
            if (left <= 0 || _closed)
                return false;
            await Task.WhenAny(change, Task.Delay(TimeSpan.FromMilliseconds(Math.Min(left, MapWaitMs)), _runtime.Time, cancellationToken)).ConfigureAwait(false);
            cancellationToken.ThrowIfCancellationRequested();
        }
        return true;
    }

    /// <summary>Whether a read that ended with this error may succeed if it is repeated.</summary>
    public static bool MayRepeat(Status error) => RetriedReasons.Contains(CallStatus.ReasonOf(error));

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
        var asked = failure.GetDetail<RetryInfo>()?.RetryDelay?.ToTimeSpan() ?? TimeSpan.Zero;
        var least = _budget.TryTake() ? TimeSpan.Zero : TimeSpan.FromMilliseconds(NewsWaitMs);
        var pause = Attempt.Failed(failure, mayRetry: true, (asked > least ? asked : least, _runtime.Left(deadlineMs))).Pause(turn, _runtime);
        return Task.Delay(pause ?? least, _runtime.Time, cancellationToken);
    }

    /// <summary>
    /// The address at which to begin a stream, at a shard's leader or at any of its replicas, as far as known; in gateway mode the gateway's.
    /// </summary>
    /// <param name="route">The shard.</param>
    /// <param name="atAnyReplica">Every other attempt goes to one of the replicas in turn, and those between to the leader. Otherwise all go to the
    /// leader.</param>
    /// <param name="attempt">Counted from 0.</param>
    public string? AddressFor(ShardRoute? route, bool atAnyReplica, int attempt)
    {
        if (_options.Gateway)
            return Gateways.TryNext(out var gateway) ? gateway : null;
        if (route is null)
            return null;
        if (atAnyReplica && attempt % 2 == 0 && NextReplica(route) is { } replica)
            return replica;
        return Table.Nodes.TryGetValue(route.Leader, out var address) ? address : null;
    }

    // The caller's own span is passed on even if nobody listens to ours: the spans of the nodes are then its children.
    private static string TraceparentOf(Activity? span, ActivityContext parent) => span?.Id
        ?? (parent.TraceFlags.HasFlag(ActivityTraceFlags.Recorded) ? $"00-{parent.TraceId}-{parent.SpanId}-01" : "");

    private static void End(Work work, long began, Activity? span, string? reason, StatusCode status)
    {
        // A read whose response is too large for its lane is repeated on another lane, and so is one that failed on the large lane. Only the repetition
        // counts as the call.
        var isAskedAgain = reason == StatusDetails.ReplyLarge || (work.Way.Lane == ReplyLane.Large && RetriedReasons.Contains(reason));
        if (began != 0 && !isAskedAgain)
            ClientMetrics.RequestEnded(work.Method, Stopwatch.GetElapsedTime(began), reason);
        if (span is null)
            return;
        span.SetTag("kvcluster.attempts", work.Attempts);
        Spans.StopCall(span, Spans.NameOf(status), reason);
    }

    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    private async ValueTask<Attempt> TryAsync(Work work, CancellationToken cancellationToken)
    {
        if (_closed)
            return Attempt.Failed(CallStatus.Unavailable("the client is closed"), mayRetry: false);
        if (work.IsCharged && !_budget.TryTake())
            await WaitForNewsAsync(work, cancellationToken).ConfigureAwait(false);
        if (_runtime.NowMs >= work.DeadlineMs)
            return Attempt.Failed(work.Behind ?? CallStatus.DeadlinePassed(work.LastFailure), mayRetry: false);
        if (!_options.Gateway && !Table.IsKnown && !await WaitForMapAsync(work.DeadlineMs, cancellationToken).ConfigureAwait(false))
            return Attempt.Failed(CallStatus.Unavailable(MapFailure), mayRetry: false);
        // A gateway finds the shard by itself. Its places are nevertheless shared by shard here, because otherwise a stuck shard would block the calls to all
        // of them.
        var shard = Table.Find(work.Key.Span);
        var route = _options.Gateway ? null : shard;
        var chosen = ChooseAddress(route, work);
        if ((chosen ?? SlowAddress(route)) is not { } address)
            return work.Again(_options.Gateway ? $"none of the endpoints can be used: {Gateways.Failure}" : route is null ? "the shard map has no shard for the key" : $"none of the nodes of shard {route.Shard} can be reached");
        var call = PendingCall.Rent(work.Method, work.Request, shard?.Shard ?? 0, route?.Generation ?? 0, AttemptDeadline(work));
        call.Traceparent = work.Traceparent;
        call.IsPatient = chosen is null;
        call.ReplyBytesMax = work.Way switch
        {
            { Lane: ReplyLane.Any } => 0u,
            { Lane: ReplyLane.Large, BytesMax: > 0 and var bytesMax } => (uint)bytesMax,
            _ => SmallReplyBytes,
        };
        var answer = await (work.Way.Lane == ReplyLane.Large ? _large : _connections).To(address).CallAsync(call, cancellationToken).ConfigureAwait(false);
        return answer.Reply is { } reply ? Judge(work, reply) : JudgeSilence(work, answer);
    }

    // A leader may have been found meanwhile. Otherwise this is the interval at which such a call tries.
    private async Task WaitForNewsAsync(Work work, CancellationToken cancellationToken)
    {
        var wait = TimeSpan.FromMilliseconds(Math.Clamp(work.DeadlineMs - _runtime.NowMs, 0, NewsWaitMs) * (0.5 + (_runtime.Chance() / 2)));
        await Task.WhenAny(Table.NextChange(), Task.Delay(wait, _runtime.Time, cancellationToken)).ConfigureAwait(false);
        cancellationToken.ThrowIfCancellationRequested();
    }

    /// <summary>
    /// The leader. If none is known, or it has just been found unreachable, the shard's other nodes in turn, which will name the new leader. For a read at
    /// any replica, the replicas in turn, and the leader after a replica that did not serve it. Null if none of them can be reached now.
    /// </summary>
    private string? ChooseAddress(ShardRoute? route, Work work)
    {
        var turn = work.Way.Turn + work.Attempts++;
        if (turn > 0)
            ClientMetrics.Retried(work.Method, work.LastReason);
        if (_options.Gateway)
            return Gateways.TryNext(out var gateway) ? gateway : null;
        if (route is null)
            return null;
        if (work.AtAnyReplica && turn % 2 == 0)
            return NextReplica(route);
        if (TryReach(route.Leader, out var leader))
            return leader;
        for (var place = 0; place < route.Nodes.Count; place++)
        {
            if (TryReach(route.Nodes[(turn + place) % route.Nodes.Count], out var other))
                return other;
        }
        return null;
    }

    /// <summary>If no node or endpoint can be reached now: one whose connection is still being made, preferably the leader.</summary>
    private string? SlowAddress(ShardRoute? route)
    {
        if (_options.Gateway)
            return Gateways.Slow(address => _connections.To(address).IsSlow);
        if (route is null)
            return null;
        foreach (var node in route.Nodes.Prepend(route.Leader))
        {
            if (Table.Nodes.TryGetValue(node, out var address) && _connections.To(address).IsSlow)
                return address;
        }
        return null;
    }

    // Spreads the reads of one client evenly over the replicas.
    private string? NextReplica(ShardRoute route)
    {
        var turn = (uint)Interlocked.Increment(ref _spread);
        for (var place = 0u; place < route.Nodes.Count; place++)
        {
            if (TryReach(route.Nodes[(int)((turn + place) % (uint)route.Nodes.Count)], out var address))
                return address;
        }
        return null;
    }

    private long AttemptDeadline(Work work)
    {
        if (!work.AtAnyReplica)
            return work.DeadlineMs;
        var now = _runtime.NowMs;
        return Math.Min(work.DeadlineMs, now + Math.Max(ReplicaWaitLeastMs, (work.DeadlineMs - now) / 3));
    }

    private bool TryReach(uint node, [NotNullWhen(true)] out string? address) =>
        Table.Nodes.TryGetValue(node, out address) && !_connections.To(address).IsPaused;

    private Attempt Judge(Work work, Reply reply)
    {
        if (reply.Code == 0)
            return new Attempt(reply.Response, null, false);
        var status = Status.Parser.ParseFrom(reply.Status);
        if (status.GetDetail<RouteHint>() is { } hint)
            Table.Fold(hint);
        work.LastFailure = status.Message;
        var reason = CallStatus.ReasonOf(status);
        work.LastReason = reason;
        work.Behind = reason == ReplicaBehind ? status : work.Behind;
        if (!CallStatus.IsUnknown(status))
            return Attempt.Failed(status, RetriedReasons.Contains(reason), work.Left(status));
        if (NotExecutedReasons.Contains(reason))
            return Attempt.Failed(status, mayRetry: false);
        return work.Unknown(status);
    }

    private Attempt JudgeSilence(Work work, in CallAnswer answer)
    {
        var failure = answer.Failure ?? "no answer";
        if (answer.Sent && work.IsChange)
            return work.Unknown(CallStatus.OutcomeUnknown(failure));
        // If the deadline passed during the wait for a connection, the reason why there was none before is more useful.
        if (answer is { Sent: false, DeadlinePassed: true } && work.Attempts > 1)
            failure = work.LastFailure;
        return answer.DeadlinePassed && _runtime.NowMs >= work.DeadlineMs ? Attempt.Failed(CallStatus.DeadlinePassed(failure), mayRetry: false) : work.Again(failure);
    }

    /// <summary>The result of one attempt.</summary>
    private readonly record struct Attempt(ByteString Response, Status? Error, bool MayRetry)
    {
        private const double PauseMsMax = 100;

        /// <summary>The wait that the node asked for in RetryInfo, and the time left then.</summary>
        private (TimeSpan Asked, TimeSpan Left)? Wait { get; init; }

        public static Attempt Failed(Status error, bool mayRetry, (TimeSpan Asked, TimeSpan Left)? wait = null) => new(ByteString.Empty, error, mayRetry) { Wait = wait };

        /// <summary>
        /// How long to wait before the next attempt: at least as long as the node asked, increasing with each attempt, with jitter. Null means the default
        /// delay.
        /// </summary>
        public TimeSpan? Pause(int attempt, ClientRuntime runtime)
        {
            if (Wait is not var (asked, left))
                return null;
            var pause = Math.Max(asked.TotalMilliseconds, Math.Min(5 * Math.Pow(2, Math.Min(attempt, 8)), PauseMsMax));
            return TimeSpan.FromMilliseconds(Math.Min(pause * (1 + (runtime.Chance() / 2)), left.TotalMilliseconds));
        }
    }

    /// <summary>One call with all its attempts.</summary>
    private sealed class Work(
        CallRouter router, Method method, ReadOnlyMemory<byte> key, ByteString request, long deadlineMs, bool isIdentified, bool atAnyReplica)
    {
        private Status? _unknown;

        public bool IsChange => Method is Method.Put or Method.Delete or Method.Write;

        public CallRouter Router { get; } = router;

        public Method Method { get; } = method;

        public required string Traceparent { get; init; }

        public required ReplyWay Way { get; init; }

        public ReadOnlyMemory<byte> Key { get; } = key;

        public ByteString Request { get; } = request;

        public long DeadlineMs { get; } = deadlineMs;

        public bool AtAnyReplica { get; } = atAnyReplica;

        /// <summary>
        /// Whether the next attempt is charged to the budget. It is if it repeats one that failed, but not if it follows a node's redirection.
        /// </summary>
        public bool IsCharged => Attempts > 0 && LastReason is not ("NOT_LEADER" or "WRONG_SHARD");

        /// <summary>How long a refusal asks its caller to wait; null if it does not.</summary>
        public (TimeSpan Asked, TimeSpan Left)? Left(Status refusal) => refusal.GetDetail<RetryInfo>()?.RetryDelay is { } asked
            ? (asked.ToTimeSpan(), Router._runtime.Left(DeadlineMs))
            : null;

        /// <summary>The last refusal by a replica that did not catch up in time.</summary>
        public Status? Behind { get; set; }

        public int Attempts { get; set; }

        public string LastFailure { get; set; } = "no node has been asked yet";

        /// <summary>For metrics, which cannot hold the failure's text.</summary>
        public string LastReason { get; set; } = NoAnswer;

        public Attempt Again(string failure)
        {
            (LastFailure, LastReason) = (failure, NoAnswer);
            return Attempt.Failed(CallStatus.Unavailable(failure), mayRetry: true);
        }

        /// <summary>
        /// Records that an attempt may have been applied. It is repeated if the change is identified, which settles its outcome, or if it changes no key.
        /// </summary>
        public Attempt Unknown(Status status)
        {
            LastFailure = status.Message;
            if (IsChange)
                _unknown = status;
            return Attempt.Failed(status, isIdentified || !IsChange);
        }

        /// <summary>
        /// The error to return. After an attempt of unknown outcome only a recorded result settles the change: success or a failed condition. Any other error
        /// says that a later attempt was not executed, but nothing about the earlier one.
        /// </summary>
        public Status? WeakestOf(Status? last) =>
            last is null || _unknown is null || (isIdentified && CallStatus.ReasonOf(last) == "CONDITION_FAILED") ? last : _unknown;
    }
}
