using System.Collections.Concurrent;
using Google.Protobuf;
using KvCluster.Client.Routing;
using KvCluster.Client.Runtime;
using KvCluster.V1;
using Status = Google.Rpc.Status;
using StatusCode = Grpc.Core.StatusCode;

namespace KvCluster.Client.Transport;

/// <summary>
/// One call with all its attempts: what is asked, which attempts may be repeated, and what the call's outcome is after them: applied, not applied or unknown.
/// Rented by <see cref="CallRouter"/> for each call, which returns it, and used by one thread at a time.
/// </summary>
internal sealed class CallAttempts
{
    private const string ReplicaBehind = "REPLICA_BEHIND";
    private const string NoAnswer = "NO_ANSWER";
    private const string NobodyAsked = "no node has been asked yet";
    private const int PooledMax = 4096;

    // At a replica that may be cut off or behind, a read spends at most a third of its time, but at least this.
    private const int ReplicaWaitMinMs = 500;

    private static readonly string[] RetriedReasons = ["NOT_LEADER", "WRONG_SHARD", "NO_LEADER", KvReasons.Busy, "STOPPING", ReplicaBehind];
    private static readonly ConcurrentQueue<CallAttempts> Pool = new();

    private ClientRuntime _runtime = ClientRuntime.Machine;
    private bool _isIdentified;
    private Status? _unknown;

    // The last refusal by a replica that did not catch up in time. Without one, that by a node or router that waited for as long as it was allowed.
    private Status? _late;
    private string _lastFailure = NobodyAsked;

    // For how long the last refusal asked to wait; zero if it did not.
    private TimeSpan _waitAsked;

    // Whether the last attempt failed because there was no leader, or no connection to one. Otherwise a call that times out had a node that did not answer in
    // time.
    private bool _lacksLeader;

    public Method Method { get; private set; }

    public string Traceparent { get; set; } = "";

    public ReplyWay Way { get; set; }

    /// <summary>Where the key was when the call was made, if it has been searched.</summary>
    public KeyPlace Place { get; set; }

    /// <summary>No attempt is repeated, except at the node that a redirection names.</summary>
    public bool NoRetry { get; set; }

    /// <summary>How long an attempt waits before it is sent to another replica as well; null: it never is.</summary>
    public TimeSpan? HedgeAfter { get; set; }

    public ReadOnlyMemory<byte> Key { get; private set; }

    public ByteString Request { get; private set; } = ByteString.Empty;

    public long DeadlineMs { get; private set; }

    public bool AtAnyReplica { get; private set; }

    /// <summary>The present attempt, of a read, is made at an endpoint before any map is known.</summary>
    public bool IsAtEndpoint { get; set; }

    /// <summary>The number of attempts begun.</summary>
    public int Attempts { get; set; }

    /// <summary>The reason of the last failure, for metrics, which cannot hold its text.</summary>
    public string LastReason { get; private set; } = NoAnswer;

    /// <summary>
    /// Whether the next attempt is charged to the budget. It is if it repeats one that failed, but not if it follows a node's redirection.
    /// </summary>
    public bool IsCharged => Attempts > 0 && !IsRedirection(LastReason);

    private bool IsChange => Method.IsChangeOfKeys();

    // Whether the present attempt is made at a node that may be cut off or behind, where another one is not.
    private bool MayBeBetterElsewhere => AtAnyReplica || IsAtEndpoint;

    /// <summary>Begins a call.</summary>
    public static CallAttempts Rent(
        ClientRuntime runtime, Method method, ReadOnlyMemory<byte> key, ByteString request, long deadlineMs, bool isIdentified, bool atAnyReplica)
    {
        if (!Pool.TryDequeue(out var call))
            call = new CallAttempts();
        (call._runtime, call._isIdentified) = (runtime, isIdentified);
        (call.Method, call.Key, call.Request, call.DeadlineMs, call.AtAnyReplica) = (method, key, request, deadlineMs, atAnyReplica);
        return call;
    }

    /// <summary>Returns it to the pool. Called once, when the call has ended. An attempt for whose answer nobody waits any more does not refer to it.</summary>
    public void Return()
    {
        Clear();
        if (Pool.Count < PooledMax)
            Pool.Enqueue(this);
    }

    /// <summary>Forgets everything about its call.</summary>
    public void Clear()
    {
        _runtime = ClientRuntime.Machine;
        _isIdentified = _lacksLeader = NoRetry = AtAnyReplica = IsAtEndpoint = false;
        _unknown = _late = null;
        _lastFailure = NobodyAsked;
        _waitAsked = TimeSpan.Zero;
        LastReason = NoAnswer;
        Method = Method.Unspecified;
        Key = default;
        Request = ByteString.Empty;
        Traceparent = "";
        Way = default;
        Place = default;
        HedgeAfter = null;
        DeadlineMs = 0;
        Attempts = 0;
    }

    /// <summary>Whether a call that was refused for this reason may succeed if it is repeated.</summary>
    public static bool IsRetried(string? reason) => RetriedReasons.Contains(reason);

    // The node has not tried to serve the call.
    private static bool IsRedirection(string reason) => reason is "NOT_LEADER" or "WRONG_SHARD";

    /// <summary>When to give up an attempt that begins now.</summary>
    public long AttemptDeadlineMs()
    {
        if (!MayBeBetterElsewhere || NoRetry)
            return DeadlineMs;
        var now = _runtime.NowMs;
        return Math.Min(DeadlineMs, now + Math.Max(ReplicaWaitMinMs, (DeadlineMs - now) / 3));
    }

    /// <summary>The deadline passed between two attempts.</summary>
    public Attempt TimedOut() => Attempt.Failed(_late ?? InTime(_lastFailure), mayRetry: false);

    /// <summary>There was no node to send to, or a call that changes nothing got no answer.</summary>
    public Attempt Again(string failure, bool lacksLeader = true)
    {
        (_lastFailure, LastReason, _lacksLeader) = (failure, NoAnswer, lacksLeader);
        return Attempt.Failed(CallStatus.Unavailable(failure), mayRetry: !NoRetry);
    }

    /// <summary>A node answered with an error.</summary>
    public Attempt Refused(Status status)
    {
        _lastFailure = status.Message;
        var reason = CallStatus.ReasonOf(status);
        (LastReason, _waitAsked) = (reason, CallStatus.RetryDelayOf(status));
        _lacksLeader = reason is "NOT_LEADER" or "WRONG_SHARD" or "NO_LEADER" or "STOPPING";
        var code = (StatusCode)status.Code;
        var isLate = code == StatusCode.DeadlineExceeded;
        if (isLate && (reason == ReplicaBehind || _late is null))
            _late = status;
        // An attempt where another node may do better was given only a part of the call's time. Any other attempt was given all of it, so the time is over.
        // The endpoint may be a router that is being stopped, or one of an older version. But what is wrong with the request itself is so everywhere.
        var mayRepeat = isLate ? MayBeBetterElsewhere : IsRetried(reason) || (IsAtEndpoint && code != StatusCode.InvalidArgument);
        if (!CallStatus.IsUnknown(status))
            return Attempt.Failed(status, mayRepeat && (!NoRetry || IsRedirection(reason)), WaitAskedBy(status));
        if (CallStatus.IsNotExecuted(status))
            return Attempt.Failed(status, mayRetry: false);
        return Unknown(status);
    }

    /// <summary>The connection brought no answer.</summary>
    public Attempt Unanswered(in CallAnswer answer)
    {
        var failure = answer.Failure ?? "no answer";
        if (answer.PlaceAfter is { } placeAfter)
            return HadNoPlace(failure, placeAfter);
        if (answer.Sent && IsChange)
            return Unknown(CallStatus.OutcomeUnknown(failure));
        // If the deadline passed during the wait for a connection, the reason why there was none before is more useful.
        if (answer is { Sent: false, DeadlinePassed: true } && Attempts > 1)
            failure = _lastFailure;
        if (answer.Sent)
            _lacksLeader = false;
        return answer.DeadlinePassed && _runtime.NowMs >= DeadlineMs
            ? Attempt.Failed(_late ?? InTime(failure), mayRetry: false)
            : Again(failure, lacksLeader: !answer.DeadlinePassed);
    }

    // The line for places is this client's own, and no leader is looked for. A repetition would be the last of that line, with less time than before, so
    // whoever called is told for how long to wait. A read at any replica has waited for a part of its time only, and may ask another replica.
    private Attempt HadNoPlace(string failure, TimeSpan wait)
    {
        var status = CallStatus.Busy(failure, wait);
        (_lastFailure, LastReason, _lacksLeader, _waitAsked) = (status.Message, KvReasons.Busy, false, wait);
        return Attempt.Failed(status, mayRetry: AtAnyReplica && !NoRetry && _runtime.NowMs < DeadlineMs);
    }

    // Why a call has not succeeded by its deadline. On a cluster that is well it was too short, and that must not be called the lack of a leader.
    private Status InTime(string failure) => _lacksLeader ? CallStatus.NoLeaderInTime(failure)
        : LastReason == KvReasons.Busy ? CallStatus.BusyUntilDeadline(failure, _waitAsked)
        : CallStatus.DeadlinePassed(failure);

    /// <summary>
    /// The error to return. After an attempt of unknown outcome only a recorded result settles the change: success or a failed condition. Any other error
    /// says that a later attempt was not executed, but nothing about the earlier one.
    /// </summary>
    public Status? WeakestOf(Status? last) =>
        last is null || _unknown is null || (_isIdentified && CallStatus.ReasonOf(last) == "CONDITION_FAILED") ? last : _unknown;

    // An attempt may have been applied. It is repeated if the change is identified, which settles its outcome, or if it changes no key.
    private Attempt Unknown(Status status)
    {
        _lastFailure = status.Message;
        if (IsChange)
            _unknown = status;
        return Attempt.Failed(status, (_isIdentified || !IsChange) && !NoRetry);
    }

    private (TimeSpan Asked, TimeSpan Left)? WaitAskedBy(Status refusal) => StatusDetails.RetryOf(refusal)?.RetryDelay is { } asked
        ? (asked.ToTimeSpan(), _runtime.Left(DeadlineMs))
        : null;
}

/// <summary>The result of one attempt of a call, and whether another one may follow.</summary>
/// <param name="Response">The encoded response; empty if there is an error.</param>
/// <param name="Error">Null if it succeeded.</param>
/// <param name="MayRetry">Whether the call may be tried again.</param>
internal readonly record struct Attempt(ByteString Response, Status? Error, bool MayRetry)
{
    private const double PauseMsMax = 100;

    /// <summary>The wait that the node asked for in RetryInfo, and the time left then.</summary>
    private (TimeSpan Asked, TimeSpan Left)? Wait { get; init; }

    public static Attempt Failed(Status error, bool mayRetry, (TimeSpan Asked, TimeSpan Left)? wait = null) =>
        new(ByteString.Empty, error, mayRetry) { Wait = wait };

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
