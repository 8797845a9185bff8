using System.Globalization;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Node.Hosting;
using KvCluster.ServiceDefaults.Programs;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Sessions;
using KvCluster.V1;
using KvCluster.Wire;
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Node.Api.Errors;

/// <summary>
/// The errors with which the services of this node refuse calls. The only place where outcomes are mapped to statuses. What a server refuses before a service
/// sees it has its text where it is refused, for example a call beyond the limit of open calls in <c>CallMemory</c>; a router's are beside
/// <c>KvProxy</c>.
/// </summary>
internal static class ApiErrors
{
    /// <summary>The shortest lifetime of a session: several times what a KeepAlive may take on a busy machine.</summary>
    public const int LifetimeMsMin = 1_000;

    /// <summary>The longest: a day.</summary>
    public const int LifetimeMsMax = 86_400_000;

    private const string Unknown = "OUTCOME_UNKNOWN";

    public static readonly ApiError KeyEmpty = new(StatusCode.InvalidArgument, "KEY_EMPTY", "A key has at least one byte.");

    public static readonly ApiError BoundTooLong = new(
        StatusCode.InvalidArgument, "KEY_TOO_LONG", $"The start or end of a range has at most {Text(KvLimits.BoundBytesMax)} bytes: a key and one more.");

    public static readonly ApiError KeyTooLong = new(StatusCode.InvalidArgument, "KEY_TOO_LONG", $"A key has at most {Text(KvLimits.KeyBytesMax)} bytes.");

    public static readonly ApiError ValueTooLarge =
        new(StatusCode.InvalidArgument, "VALUE_TOO_LARGE", $"A value has at most {Text(KvLimits.ValueBytesMax)} bytes.");

    public static readonly ApiError MemberEmpty = new(StatusCode.InvalidArgument, "MEMBER_EMPTY", "A member of a set has at least one byte.");

    public static readonly ApiError MemberBoundTooLong = new(
        StatusCode.InvalidArgument, "MEMBER_TOO_LONG",
        $"The start of a range of members has at most {Text(KvLimits.MemberBoundBytesMax)} bytes: a member and one more.");

    public static readonly ApiError MemberTooLong =
        new(StatusCode.InvalidArgument, "MEMBER_TOO_LONG", $"A member of a set has at most {Text(KvLimits.MemberBytesMax)} bytes.");

    public static readonly ApiError WriteTooLarge =
        new(StatusCode.InvalidArgument, "WRITE_TOO_LARGE", $"A write has at most {Text(KvLimits.WriteBytesMax)} bytes.");

    public static readonly ApiError TooManyOperations = new(
        StatusCode.InvalidArgument, "TOO_MANY_OPERATIONS", $"A request names at most {Text(KvLimits.KeysMax)} keys, members or conditions.");

    public static readonly ApiError TooManyResults = new(
        StatusCode.InvalidArgument, "TOO_MANY_OPERATIONS",
        $"A write that returns a result for each operation, and each list of a transaction, has at most {Text(KvLimits.ResultsMax)} operations.");

    public static readonly ApiError TooManyRanges = new(
        StatusCode.InvalidArgument, "TOO_MANY_OPERATIONS",
        $"A request has at most {Text(KvLimits.RangeConditionsMax)} conditions on ranges. Nothing was applied.");

    public static readonly ApiError AnswerTooLarge = new(
        StatusCode.ResourceExhausted, "ANSWER_TOO_LARGE",
        $"The requested values have more than {Text(KvLimits.AnswerBytesMax)} bytes in total; request fewer keys.");

    public static readonly ApiError Busy = new(
        StatusCode.Unavailable, "BUSY", "The shard's request queue is full; nothing was applied. Try again, or have fewer or smaller requests under way.")
    { RetryAfter = TimeSpan.FromMilliseconds(20) };

    /// <summary>For a client that opens a session. Sessions that have been silent for long enough end with the next records, so it is worth waiting.</summary>
    public static readonly ApiError SessionsFull = new(
        StatusCode.Unavailable,
        "BUSY",
        "The shard has as many sessions as it may, and none of them has been silent for long enough to make room; nothing was applied. "
            + "Use one client for all calls of a process instead of one for each, and dispose it, which ends its sessions; "
            + "have fewer sessions with a lifetime, or end them. Try again.")
    { RetryAfter = TimeSpan.FromMilliseconds(500) };

    /// <summary>For a read whose answer was found but not copied.</summary>
    public static readonly ApiError RepliesWait = new(
        StatusCode.Unavailable, "BUSY", "The node's memory for unread replies is used up. Try again.") { RetryAfter = TimeSpan.FromMilliseconds(50) };

    /// <summary>For a request that is not started.</summary>
    public static readonly ApiError RequestsWait = new(
        StatusCode.Unavailable, "BUSY",
        "The node's memory for requests is used up; the request was not started. Try again, or have fewer or smaller requests under way.")
    { RetryAfter = TimeSpan.FromMilliseconds(50) };

    /// <summary>For a stream that holds memory because its caller does not read.</summary>
    public static readonly ApiError NotRead = new(
        StatusCode.ResourceExhausted, "NOT_READ",
        "The caller does not read its replies. Calls of the stream without a reply may have been applied.") { IsOutcomeUnknown = true };

    public static readonly ApiError Stopping = new(StatusCode.Unavailable, "STOPPING", "The node is stopping.");

    public static readonly ApiError DeadlinePassed =
        new(StatusCode.DeadlineExceeded, "DEADLINE_PASSED", "The deadline passed while the call was waiting; nothing was applied.");

    public static readonly ApiError DiskFull =
        new(StatusCode.ResourceExhausted, "DISK_FULL", "The node's disk is full; nothing was applied. Deletes still work.");

    public static readonly ApiError NoRoomYet = new(
        StatusCode.Unavailable, "BUSY", "The node's disk is full, and there is no room for a delete before the next checkpoint; nothing was applied. "
            + "Try again.") { RetryAfter = TimeSpan.FromMilliseconds(100) };

    public static readonly ApiError OutcomeUnknown = new(
        StatusCode.Unknown, Unknown,
        "The leader could not tell whether the change will be committed. Read the key, or repeat the change with its request id.") { IsOutcomeUnknown = true };

    public static readonly ApiError SessionExpired = new(
        StatusCode.Aborted, "SESSION_EXPIRED",
        "The request's session does not exist or has expired; this attempt was not executed.") { IsOutcomeUnknown = true };

    public static readonly ApiError SequenceClosed = new(
        StatusCode.Aborted, "SEQUENCE_CLOSED",
        "A later request of the session marked this one as settled; this attempt was not executed.") { IsOutcomeUnknown = true };

    public static readonly ApiError SequenceReused = new(
        StatusCode.FailedPrecondition, "SEQUENCE_REUSED",
        "Another change of the session has the same sequence. Nothing was applied; increase the sequence by one for each change.");

    public static readonly ApiError RangeTooLarge = new(
        StatusCode.FailedPrecondition, "RANGE_TOO_LARGE", "The ranges have too many keys to be deleted in one change with others, or to be read for a "
            + "condition, or the values of the keys that are touched are too large together. Nothing was applied; "
            + "delete most of the keys before, each range alone, name smaller ranges, or touch fewer keys.");

    public static readonly ApiError NotANumber = new(
        StatusCode.FailedPrecondition, "NOT_A_NUMBER",
        "A key that is incremented does not have the decimal text of a signed 64-bit number as its value. Nothing was applied.");

    public static readonly ApiError NumberOverflow =
        new(StatusCode.FailedPrecondition, "NUMBER_OVERFLOW", "A number would not fit into 64 bits after the increment. Nothing was applied.");

    public static readonly ApiError NoOwner = new(
        StatusCode.FailedPrecondition, "NO_OWNER", "The session that is to own a key does not exist in the shard of the key, has ended, or has no lifetime. "
            + "Nothing was applied; open a session with a lifetime.");

    public static readonly ApiError ResultsTooLarge = new(
        StatusCode.ResourceExhausted, "ANSWER_TOO_LARGE", $"What the request reads may have more than {Text(KvLimits.ResultsBytesMax)} bytes, or "
            + $"{Text(KvLimits.KeptResultsBytesMax)} with a request id. Nothing was applied; read less.");

    public static readonly ApiError RangeUnnamed =
        BadRequest("A range without start, end and prefix has all keys, and the request does not say that all are meant. Nothing was removed.");

    public static readonly ApiError TtlInvalid = BadRequest(
        $"A time to live must be from 1 to {KvLimits.TtlMillisecondsMax} milliseconds. Nothing was applied.");

    public static readonly ApiError KeepContradicted = BadRequest(
        "A put that keeps an expiry has no time to live, one that keeps an owner names no owner, and one with a sequence makes a new key, which has neither to "
        + "keep. Nothing was applied.");

    public static readonly ApiError OwnerInvalid = BadRequest(
        $"An owner must be the id of a session that was opened: {Text(WireWriter.SessionBytes)} bytes, not all of them zero. Nothing was applied; "
        + "open a session with a lifetime.");

    public static readonly ApiError TooManyOwned = new(
        StatusCode.FailedPrecondition, "TOO_MANY_OWNED", $"A session owns at most {Text(OwnedKeys.KeysMax)} keys of {Text(OwnedKeys.BytesMax)} bytes together, "
            + "those included that were deleted by ranges. Nothing was applied; use several sessions.");

    public static readonly ApiError SessionInvalid = BadRequest(
        $"A session is named by the {Text(WireWriter.SessionBytes)} bytes that its opening returned, which are not all zero. Nothing was applied; "
        + "open a session.");

    public static readonly ApiError TooManySessions = new(
        StatusCode.InvalidArgument, "TOO_MANY_OPERATIONS", $"One call keeps at most {Text(KvLimits.KeysMax)} sessions alive. Nothing was done; send several.");

    public static readonly ApiError LifetimeInvalid = BadRequest(
        $"The lifetime of a session has {Text(LifetimeMsMin)} to {Text(LifetimeMsMax)} milliseconds. Nothing was applied; "
        + "name none for a session without a lifetime.");

    /// <summary>For a KeepAlive of a session whose end is not committed yet. Its countdown cannot be restarted any more, but it may still exist.</summary>
    public static readonly ApiError SessionEnding = new(
        StatusCode.Unavailable, "BUSY", "A session is about to end, and its end is not certain yet. The countdowns of the others were restarted. "
            + "Try again.") { RetryAfter = TimeSpan.FromMilliseconds(20) };

    public static readonly ApiError SequenceInvalid = BadRequest(
        $"A request id must have a sequence from 1 to {WriteRequest.SequenceMax} and a lowest open one of at least 1 that equals the sequence or is less than "
        + $"{Text(SessionTable.OpenRequestsMax)} below it. Nothing was applied; count from 1.");

    public static readonly ApiError Cancelled = new(StatusCode.Cancelled, "CANCELLED", "The caller went away.");

    public static readonly ApiError GivenUp =
        new(StatusCode.Cancelled, "CANCELLED", "The caller cancelled the change while it was waiting; nothing was applied.");

    /// <summary>For a GetMany that is read in several turns.</summary>
    public static readonly ApiError ReadTooSlow = new(
        StatusCode.Unavailable, "BUSY", "The read was so slow that its snapshot kept memory from being reused, so it was ended. "
            + "Request fewer keys at once, or try again later.") { RetryAfter = TimeSpan.FromMilliseconds(50) };

    public static readonly ApiError SnapshotTooOld = new(
        StatusCode.Aborted, "SNAPSHOT_TOO_OLD",
        "The scan was read too slowly for one snapshot, which kept memory from being reused. The entries received are valid; continue after the last one.");

    /// <summary>For a watch of a range without keys.</summary>
    public static readonly ApiError WatchEmpty = BadRequest("The range of a watch must have room for a key: its end is not after its start.");

    public static readonly ApiError IntersectionTooLarge = new(
        StatusCode.ResourceExhausted, "ANSWER_TOO_LARGE",
        "The intersection has too many members to be counted in facets. Ask for it without facet prefixes, or intersect more sets.");

    public static ApiError FacetsTooLarge(int bytesMax) => new(
        StatusCode.ResourceExhausted,
        "ANSWER_TOO_LARGE",
        $"The facets have more than {Text(bytesMax)} bytes in total. Ask for fewer of each prefix, or for fewer prefixes.");

    /// <summary>For an intersection that would hold more than is left.</summary>
    public static readonly ApiError IntersectionsWait = new(
        StatusCode.Unavailable, "BUSY", "The node's memory for intersections is used up. Try again.") { RetryAfter = TimeSpan.FromMilliseconds(50) };

    public static readonly ApiError SnapshotNotKept = new(
        StatusCode.Aborted, "SNAPSHOT_TOO_OLD", "This node does not keep the snapshot of the token, or not any more. The entries received are valid; "
            + "begin again without the token, or continue after the last entry in a newer snapshot.");
    private static readonly ApiError ReadOfAnotherLineage = new(
        StatusCode.FailedPrecondition, "LINEAGE_CHANGED", "The request names a position of another history of the cluster's data, which was restored or "
            + "replaced meanwhile. Nothing was applied; read again without the position.");

    private static readonly ApiError ChangeOfAnotherLineage = new(
        StatusCode.FailedPrecondition, "LINEAGE_CHANGED",
        "The request id is of another history of the cluster's data, which was restored or replaced meanwhile. This attempt was not executed; "
        + "read the key, and make the change in a new session.") { IsOutcomeUnknown = true };

    private static readonly TimeSpan LeaderPause = TimeSpan.FromMilliseconds(50);

    /// <summary>For a request with keys of several shards. Which shard has a key changes, so the request may be right at another time or in parts.</summary>
    /// <param name="shard">The shard of the first key.</param>
    /// <param name="other">The route of a key that it does not have, as far as this node knows it.</param>
    public static ApiError ShardsDiffer(HostedShard shard, ShardRoute? other) =>
        new(StatusCode.FailedPrecondition, "SHARDS_DIFFER", DividedKeys.Text(shard.Shard, other?.ShardId))
        {
            Routes = other is null ? [shard.Route] : [shard.Route, other],
        };

    /// <summary>For a put of one key that gets a number, where the numbers under its prefix belong to several shards.</summary>
    /// <inheritdoc cref="ShardsDiffer" path="/param"/>
    public static ApiError SequenceDivided(HostedShard shard, ShardRoute? other) =>
        new(
            StatusCode.FailedPrecondition,
            "SHARDS_DIFFER",
            "A bound between two shards divides the keys that may be numbered under this prefix, so no shard can number them; nothing was applied. "
            + "Use another prefix.")
        {
            Routes = other is null ? [shard.Route] : [shard.Route, other],
        };

    /// <summary>For a position or a request id of another lineage.</summary>
    /// <param name="isIdentifiedChange">An earlier attempt at the change may have been executed, in the other lineage or in this one.</param>
    public static ApiError LineageChanged(bool isIdentifiedChange) => isIdentifiedChange ? ChangeOfAnotherLineage : ReadOfAnotherLineage;

    public static ApiError BadRequest(string message) => new(StatusCode.InvalidArgument, "BAD_REQUEST", message);

    /// <summary>For a call of an exchange that this version does not have.</summary>
    public static ApiError UnknownMethod(NodeId node, V1.Method method) =>
        new(
            StatusCode.Unimplemented, UnsupportedCall.Reason,
            UnsupportedCall.Text(node, ProgramVersion.Full, UnsupportedCall.OfExchange(method))) { UnsupportedBy = node };

    public static ApiError WrongShard(ShardRoute? right) =>
        new(StatusCode.Unavailable, "WRONG_SHARD", "This node does not hold the key.") { Routes = right is null ? null : [right] };

    /// <summary>For an operator's request about a shard of which this node has no replica, or has not opened it yet.</summary>
    /// <param name="right">The shard's route; null if this node does not know it.</param>
    public static ApiError WrongShard(ShardId shard, NodeId node, ShardRoute? right) => new(
        StatusCode.Unavailable, "WRONG_SHARD",
        $"Node {node} has no open replica of shard {shard}; nothing was changed. Ask the node that leads it.") { Routes = right is null ? null : [right] };

    public static ApiError NoShard(ShardId shard) => new(StatusCode.NotFound, "NO_SHARD", $"There is no shard {shard}; nothing was changed.");

    public static ApiError NoNode(NodeId node) => new(StatusCode.NotFound, "NO_NODE", $"There is no node {node}; nothing was changed.");

    /// <summary>For a call to a replica that does not lead.</summary>
    public static ApiError NotLeader(ShardRoute route, NodeId node) => route.LeaderId.IsNone || route.LeaderId == node
        ? new(StatusCode.Unavailable, "NO_LEADER", $"Shard {route.ShardId} has no leader at the moment.") { Routes = [route], RetryAfter = LeaderPause }
        : new(StatusCode.Unavailable, "NOT_LEADER", $"Node {route.LeaderId} leads shard {route.ShardId}.") { Routes = [route] };

    /// <summary>For a linearizable read at a replica that could not ask its leader.</summary>
    public static ApiError LeaderSilent(ShardRoute route, NodeId node) =>
        new(StatusCode.Unavailable, "NO_LEADER", $"Node {node} could not ask the leader of shard {route.ShardId} what is "
            + "committed.") { Routes = [route], RetryAfter = LeaderPause };

    /// <summary>For a read that waited in vain for this replica to apply an etag.</summary>
    public static ApiError ReplicaBehind(HostedShard shard, Etag etag, NodeId node) => shard.Replica!.Failure is { } failure
        ? ReplicaFailed(shard.Route, failure.Message)
        : new(StatusCode.DeadlineExceeded, "REPLICA_BEHIND", $"Node {node} has not applied {etag} of shard {shard.Shard} yet.") { RetryAfter = LeaderPause };

    /// <summary>For a requested transfer that did not happen.</summary>
    public static ApiError NotTransferred(ShardId shard, string reason) =>
        new(StatusCode.FailedPrecondition, "NOT_TRANSFERRED", $"The leadership of shard {shard} was not transferred: {reason}.");

    /// <summary>For a requested replacement that did not happen, or not yet.</summary>
    public static ApiError NotReplaced(ShardId shard, string reason) =>
        new(StatusCode.FailedPrecondition, "NOT_REPLACED", $"The replacement in shard {shard} was not completed: {reason}.");

    /// <summary>For an operation that is not known.</summary>
    public static ApiError NoOperation(string id) => new(
        StatusCode.NotFound, "NO_OPERATION", $"No operation {OneLine.Of(id.Length > 64 ? id[..64] : id)} is known. "
            + "It ended long ago, or its leader stopped before it had changed anything; starting it again is harmless.");

    /// <summary>For an operation that another node goes on with.</summary>
    public static ApiError OperationLeft(OperationId id, NodeId next) => next.IsNone
        ? new(StatusCode.Unavailable, "NO_LEADER", $"Operation {id} waits until shard {id.Shard} has another leader. Ask again.") { RetryAfter = LeaderPause }
        : new(StatusCode.Unavailable, "NOT_LEADER", $"Node {next} leads shard {id.Shard} now and goes on with operation {id}. "
            + "Ask again.") { RetryAfter = LeaderPause };

    /// <summary>For a quarantine after which no majority would remain.</summary>
    public static ApiError NotQuarantined(ShardId shard, NodeId node, string reason) => new(
        StatusCode.FailedPrecondition, "NOT_QUARANTINED",
        $"The replica of shard {shard} on node {node} was not taken out of service; nothing was changed: {reason}. Use force to do it anyway.");

    /// <summary>For a drain of a node without which a shard would have no majority.</summary>
    public static ApiError NotDrained(NodeId node, int shards, ShardId first, string reason) => new(
        StatusCode.FailedPrecondition, "NOT_DRAINED",
        $"Node {node} was not drained; nothing was changed. Without it {Text(shards)} shards would have no majority, among them shard {first}: {reason}. "
        + "Use force to drain it anyway.");

    /// <summary>For a recovery of the coordinator's records that did not begin.</summary>
    public static ApiError NotRecovered(string reason) => new(StatusCode.FailedPrecondition, "NOT_RECOVERED", $"Nothing was changed: {reason}");

    /// <summary>For one that ended after its claim was put, perhaps after some records, but certainly before that of the cluster.</summary>
    public static ApiError RecoveryEnded(string reason) =>
        new(StatusCode.FailedPrecondition, "NOT_RECOVERED", $"The recovery ended before it was complete: {reason}. "
            + "No node follows what it wrote, and leaders go on. Run it again.");

    /// <summary>For a requested placement of replicas that is not possible.</summary>
    public static ApiError NotPlaced(string reason) => new(StatusCode.FailedPrecondition, "NOT_PLACED", $"Nothing was changed: {reason}.");

    /// <summary>For levels that cannot be raised yet, or of which nothing is known.</summary>
    public static ApiError NotRaised(string reason) => new(StatusCode.FailedPrecondition, "NOT_RAISED", $"Nothing was changed: {reason}.");

    /// <summary>For an operator's change during which the coordinator failed. An attempt without an answer may have been applied.</summary>
    public static ApiError CoordinatorFailed(string reason) =>
        new(StatusCode.Unknown, Unknown, $"The coordinator failed, so the change may or may not have been made: {reason}. Repeat the call; "
            + "that is harmless.") { IsOutcomeUnknown = true };

    /// <summary>For a call that was meant for another node.</summary>
    public static ApiError WrongNode(NodeId asked, NodeId node) => new(StatusCode.FailedPrecondition, "WRONG_NODE", $"This is node {node}, not node {asked}.");

    /// <summary>For an operator's request about a replica that this node does not have.</summary>
    public static ApiError NoReplica(ShardId shard, NodeId node) => new(StatusCode.NotFound, "NO_SHARD", $"Node {node} has no replica of shard {shard}.");

    /// <summary>For a call to a replica of this node that has failed.</summary>
    public static ApiError ReplicaFailed(ShardRoute route, string failure) => route.LeaderId.IsNone
        ? new(StatusCode.Unavailable, "NO_LEADER", $"The replica on this node failed: {failure}") { Routes = [route], RetryAfter = LeaderPause }
        : new(StatusCode.Unavailable, "NOT_LEADER", $"The replica on this node failed: {failure}") { Routes = [route] };

    /// <summary>For a watch from a position that the journal does not have any more.</summary>
    /// <param name="shard">The shard.</param>
    /// <param name="asked">The position asked for.</param>
    /// <param name="oldest">The oldest that would do.</param>
    public static ApiError Compacted(ShardId shard, Etag asked, Etag oldest) => new(
        StatusCode.OutOfRange, "COMPACTED", $"The journal of shard {shard} begins after {oldest}, so the changes after {asked} are not all there. "
            + "Read the keys anew and watch after that, or let the watch begin with the entries that there are.")
    {
        Compacted = (shard, oldest),
    };

    /// <summary>For a position that is not in the shard's history, for example after the cluster was restored from a backup.</summary>
    public static ApiError LineageChanged(ShardId shard, Etag asked) => new(
        StatusCode.FailedPrecondition, "LINEAGE_CHANGED", $"Shard {shard} has no change {asked}. The position is of another history of the cluster, which was "
            + "restored perhaps. Read the keys anew and watch after that.");

    public static ApiError ConditionFailed(ShardId shard, in WriteResult result) =>
        new(StatusCode.FailedPrecondition, "CONDITION_FAILED", $"Condition {Text(result.FailedCondition + 1)} of the request does not hold. "
            + "Nothing was applied; read what it is about and decide anew.")
        {
            Position = (shard, result.Etag),
            FailedCondition = result.FailedCondition,
        };

    /// <summary>For a bug of this node: an exception that <see cref="Of(Exception)"/> does not know. A change may have been applied before it.</summary>
    public static ApiError Internal(Exception failure, bool isChange) => isChange
        ? new(StatusCode.Unknown, Unknown, $"The node failed with {failure.GetType().Name}, and the change may have been applied; "
            + "see the node's log.") { IsOutcomeUnknown = true }
        : new(StatusCode.Internal, "INTERNAL", $"The node failed with {failure.GetType().Name}; see its log.");

    /// <summary>The error for an expected exception of the engine or of parsing the request; null if the exception is not expected here.</summary>
    public static ApiError? Of(Exception failure) => failure switch
    {
        MalformedMessageException or InvalidProtocolBufferException => BadRequest(MalformedMessageException.Text),
        CorruptStoreException => new ApiError(StatusCode.DataLoss, "CORRUPT",
            "This replica has found damaged data, and does not serve it. It stops and is rebuilt from the shard's other replicas, one of which answers when "
            + "the call is repeated. If there is none, see 'Damaged replicas' in deploy/OPERATIONS.md."),
        SnapshotLimitException => Busy,
        StoreStoppedException => new ApiError(StatusCode.Unavailable, "STOPPING", "The replica on this node has stopped."),
        OperationCanceledException => Cancelled,
        _ => null,
    };

    /// <summary>The error for a change that was not applied, or whose outcome is unknown.</summary>
    /// <param name="route">The shard's route as this node knows it.</param>
    /// <param name="node">This node.</param>
    public static ApiError Of(in WriteResult result, ShardRoute route, NodeId node) => result.Outcome switch
    {
        WriteOutcome.ConditionFailed => ConditionFailed(route.ShardId, result),
        WriteOutcome.NotLeader => NotLeader(route, node),
        WriteOutcome.DeadlinePassed => DeadlinePassed,
        WriteOutcome.GivenUp => GivenUp,
        WriteOutcome.DiskFull => DiskFull,
        WriteOutcome.NoRoomYet => NoRoomYet,
        WriteOutcome.Busy => Busy,
        WriteOutcome.SessionsFull => SessionsFull,
        WriteOutcome.Stopped => Stopping,
        WriteOutcome.SessionExpired => SessionExpired,
        WriteOutcome.SequenceClosed => SequenceClosed,
        WriteOutcome.SequenceReused => SequenceReused,
        WriteOutcome.RangeTooLarge => RangeTooLarge,
        WriteOutcome.NotANumber => NotANumber,
        WriteOutcome.NumberOverflow => NumberOverflow,
        WriteOutcome.NoOwner => NoOwner,
        WriteOutcome.ResultsTooLarge => ResultsTooLarge,
        WriteOutcome.TooManyOwned => TooManyOwned,
        _ => OutcomeUnknown,
    };

    /// <summary>For a read whose answer is larger than its caller allows. The answer was found but not copied.</summary>
    public static ApiError ReplyLarge(int bytes) =>
        new(StatusCode.ResourceExhausted, StatusDetails.ReplyLarge, $"The response has {Text(bytes)} bytes, more than the call allows.") { ReplyBytes = bytes };

    private static string Text(int number) => number.ToString(CultureInfo.InvariantCulture);
}
