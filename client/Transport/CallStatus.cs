using System.Globalization;
using Grpc.Core;
using Method = KvCluster.V1.Method;
using Status = Google.Rpc.Status;

namespace KvCluster.Client.Transport;

/// <summary>
/// Errors of calls as google.rpc.Status, created here when no node could answer, and read from nodes' answers. <see cref="CallAttempts"/> decides which it is;
/// of operators' calls <see cref="OperatorOutcomes"/>.
/// </summary>
internal static class CallStatus
{
    /// <summary>The reason of a call that names keys of several shards. Which shard has a key may change between the map and the call.</summary>
    public const string ShardsDiffer = KvReasons.ShardsDiffer;

    /// <summary>The reason of a scan or page whose snapshot is not kept any more.</summary>
    public const string SnapshotTooOld = KvReasons.SnapshotTooOld;

    /// <summary>The reason of a stream that was ended because its caller did not read it.</summary>
    public const string NotRead = KvReasons.NotRead;

    /// <summary>The change was sent and not answered.</summary>
    /// <remarks>
    /// The code is UNKNOWN, because proxies and generic retry policies repeat other codes, above all UNAVAILABLE, and would apply the change twice.
    /// </remarks>
    public static Status OutcomeUnknown(string detail) => Create(
        StatusCode.Unknown,
        "OUTCOME_UNKNOWN",
        $"The change was sent, but its outcome is unknown ({detail}). Read the key, or repeat the change if that is harmless.",
        StatusDetails.MaybeApplied);

    /// <summary>No node could serve the call; nothing was applied.</summary>
    public static Status Unavailable(string detail) => Create(
        StatusCode.Unavailable, "NO_LEADER", $"No leader of the key's shard could be reached ({detail}). Nothing was applied; try again.",
        StatusDetails.NotApplied);

    /// <summary>The caller's deadline passed, and no leader could be reached before it; nothing was applied.</summary>
    public static Status NoLeaderInTime(string detail) => Create(
        StatusCode.DeadlineExceeded,
        "NO_LEADER", $"The deadline passed before a leader of the key's shard answered ({detail}). Nothing was applied; try again.",
        StatusDetails.NotApplied);

    /// <summary>The caller's deadline passed before a node that could be reached answered; nothing was applied.</summary>
    public static Status DeadlinePassed(string detail) => Create(
        StatusCode.DeadlineExceeded,
        "DEADLINE_PASSED", $"No answer came before the deadline ({detail}). Nothing was applied; try again, or allow more time.",
        StatusDetails.NotApplied);

    /// <summary>The caller's deadline passed while nodes refused the call because they had too much to do; nothing was applied.</summary>
    /// <param name="detail">What the last one said.</param>
    /// <param name="wait">How long it asked to wait; zero if it did not.</param>
    public static Status BusyUntilDeadline(string detail, TimeSpan wait)
    {
        var status = Create(
            StatusCode.DeadlineExceeded, KvReasons.Busy,
            $"The deadline passed while the call was refused ({detail}). Nothing was applied; try again later, or allow more time.", StatusDetails.NotApplied);
        return wait > TimeSpan.Zero ? StatusDetails.WithWait(status, wait) : status;
    }

    /// <summary>The call was not sent, because this client had too much under way; nothing was applied.</summary>
    /// <param name="detail">What was too much.</param>
    /// <param name="wait">After what time it would probably be sent.</param>
    public static Status Busy(string detail, TimeSpan wait)
    {
        var status = Create(
            StatusCode.Unavailable, KvReasons.Busy,
            $"The call waited until too little of its time was left, and was not sent ({detail}). Nothing was applied. "
            + $"Try again in {Math.Ceiling(wait.TotalSeconds * 10) / 10:0.0} s, have fewer or smaller requests under way, or allow more time.",
            StatusDetails.NotApplied);
        return StatusDetails.WithWait(status, wait);
    }

    /// <summary>No endpoint can be used, for reasons that waiting does not change; nothing was applied.</summary>
    public static Status EndpointUnusable(string detail) => Create(
        StatusCode.Unavailable,
        "ENDPOINT_UNUSABLE", $"No endpoint can be used ({detail}). Nothing was applied; correct the endpoints, the certificates or the credentials.",
        StatusDetails.NotApplied);

    /// <summary>The client was closed while the call was in progress; nothing was applied.</summary>
    public static Status Closed => Create(
        StatusCode.Unavailable, "CLIENT_CLOSED", "The client was closed while the call was in progress. Nothing was applied.", StatusDetails.NotApplied);

    /// <summary>The caller has stopped waiting, so that nobody reads this.</summary>
    public static readonly Status CallerGone =
        Create(StatusCode.Cancelled, "CANCELLED", "The caller has given up the call; a change may still be applied.", StatusDetails.MaybeApplied);

    /// <summary>The snapshot of a scan that wants no other cannot be continued.</summary>
    public static Status SnapshotLost(string detail) => Create(
        StatusCode.Aborted, SnapshotTooOld,
        $"The snapshot of the scan is not kept any more ({detail}). What was received is correct; begin the scan anew, or allow a newer snapshot.",
        StatusDetails.NotApplied);

    /// <summary>A request that exceeds every limit and is refused before it is sent.</summary>
    public static Status TooLarge(Method method, int requestBytes) => Invalid(
        method == Method.Put ? "VALUE_TOO_LARGE" : method == Method.Write ? "WRITE_TOO_LARGE" : "BAD_REQUEST",
        $"The request has {requestBytes:N0} bytes, but a value may have at most {KvLimits.ValueBytesMax >> 20} MiB and a write {KvLimits.WriteBytesMax >> 20} "
        + "MiB. Nothing was applied.");

    /// <summary>A request that is refused for what it is, whatever the state; nothing was applied.</summary>
    public static Status Invalid(string reason, string message) => Create(StatusCode.InvalidArgument, reason, message, StatusDetails.NotApplied);

    /// <summary>An error with its reason.</summary>
    public static Status Create(StatusCode code, string reason, string message, string applied) =>
        StatusDetails.Create(code, message, StatusDetails.Info(reason, applied));

    /// <summary>The stable reason. A status without one does not come from a node, and its code tells what happened on the way.</summary>
    public static string ReasonOf(Status status) => StatusDetails.InfoOf(status)?.Reason ?? ReasonOf((StatusCode)status.Code);

    /// <summary>The reason of a status that has only a code.</summary>
    public static string ReasonOf(StatusCode code) => code switch
    {
        StatusCode.Unavailable => "NODE_UNREACHABLE",
        StatusCode.DeadlineExceeded => "DEADLINE_PASSED",
        StatusCode.ResourceExhausted => NotRead,
        _ => KvCluster.Telemetry.Spans.NameOf(code),
    };

    /// <summary>How long a failure asks its caller to wait; zero if it does not.</summary>
    public static TimeSpan RetryDelayOf(Status? failure) => failure is null ? TimeSpan.Zero
        : StatusDetails.RetryOf(failure)?.RetryDelay?.ToTimeSpan() ?? TimeSpan.Zero;

    /// <summary>A read's response is larger than the call allows.</summary>
    public static Status ReplyLarge(long bytes)
    {
        var info = StatusDetails.Info(StatusDetails.ReplyLarge, StatusDetails.NotApplied);
        info.Metadata[StatusDetails.ReplyBytesKey] = Math.Min(bytes, int.MaxValue).ToString(CultureInfo.InvariantCulture);
        return StatusDetails.Create(StatusCode.ResourceExhausted, $"The response has {bytes:N0} bytes, more than the call allows.", info);
    }

    /// <summary>The response's size if that was the reason of the error, otherwise 0.</summary>
    public static int LargeReplyBytes(Status status) =>
        status.Code == (int)StatusCode.ResourceExhausted && StatusDetails.InfoOf(status) is { Reason: StatusDetails.ReplyLarge } info
        && info.Metadata.TryGetValue(StatusDetails.ReplyBytesKey, out var text)
        && int.TryParse(text, NumberStyles.None, CultureInfo.InvariantCulture, out var bytes) ? bytes : 0;

    /// <summary>
    /// Whether the shard did not know the session of an identified change and therefore did not execute it. If a whole call ended with this status, no
    /// attempt was executed: a call with an attempt of unknown outcome ends with that outcome.
    /// </summary>
    public static bool IsSessionExpired(Status status) => ReasonOf(status) == "SESSION_EXPIRED";

    /// <summary>Whether the call named a position or a session of another history of the cluster's data. It was not executed.</summary>
    public static bool IsLineageChanged(Status status) => ReasonOf(status) == "LINEAGE_CHANGED";

    /// <summary>
    /// Whether the shard refused this attempt of an identified change, and will refuse every other one under the identity. It was not executed, which says
    /// nothing of earlier ones.
    /// </summary>
    public static bool IsNotExecuted(Status status) => ReasonOf(status) is "SESSION_EXPIRED" or "SEQUENCE_CLOSED" or "LINEAGE_CHANGED";

    /// <summary>Whether the outcome of a change is unknown after this status.</summary>
    public static bool IsUnknown(Status status) =>
        StatusDetails.InfoOf(status)?.Metadata.TryGetValue(StatusDetails.AppliedKey, out var applied) == true && applied == StatusDetails.MaybeApplied;
}
