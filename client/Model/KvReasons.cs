namespace KvCluster.Client;

/// <summary>
/// The values of <see cref="KvException.Reason"/>. They are stable: later versions may have more of them, and a program must expect some that it does not know.
/// </summary>
public static class KvReasons
{
    /// <summary>What is asked for is larger than one answer may be. Ask for less at once. Nothing was applied.</summary>
    public const string AnswerTooLarge = "ANSWER_TOO_LARGE";

    /// <summary>The request contradicts itself or a limit; the message says how. Nothing was applied.</summary>
    public const string BadRequest = "BAD_REQUEST";

    /// <summary>
    /// A node, or the connection to it, has too much to do, and most of the call's time, or all of it, is over. Nothing was applied; try again later, after
    /// <see cref="KvUnavailableException.RetryAfter"/> if that is told.
    /// </summary>
    public const string Busy = "BUSY";

    /// <summary>A <see cref="KvCache"/> would have more keys or bytes than it may.</summary>
    public const string CacheFull = "CACHE_FULL";

    /// <summary>The caller gave up the call.</summary>
    public const string Cancelled = "CANCELLED";

    /// <summary>The client was disposed of during the call.</summary>
    public const string ClientClosed = "CLIENT_CLOSED";

    /// <summary>A watch was to begin after changes that no journal has any more: <see cref="KvCompactedException"/>.</summary>
    public const string Compacted = "COMPACTED";

    /// <summary>A condition did not hold, and nothing was applied: <see cref="KvConditionFailedException"/>.</summary>
    public const string ConditionFailed = "CONDITION_FAILED";

    /// <summary>A replica has found damaged data, and is rebuilt from the others. Try again.</summary>
    public const string Corrupt = "CORRUPT";

    /// <summary>There was no answer in time. A change was not applied.</summary>
    public const string DeadlinePassed = "DEADLINE_PASSED";

    /// <summary>A node has no room for what is put. Nothing was applied; deletes still work.</summary>
    public const string DiskFull = "DISK_FULL";

    /// <summary>
    /// No endpoint can be used, for reasons that waiting does not change, such as an unknown host, a certificate that is not trusted, or credentials that are
    /// refused.
    /// </summary>
    public const string EndpointUnusable = "ENDPOINT_UNUSABLE";

    /// <summary>The address belongs to another cluster. Nothing was applied.</summary>
    public const string ForeignCluster = "FOREIGN_CLUSTER";

    /// <summary>A bug of a node.</summary>
    public const string Internal = "INTERNAL";

    /// <summary>A key has at least one byte. Nothing was applied.</summary>
    public const string KeyEmpty = "KEY_EMPTY";

    /// <summary>A key has at most 2,048 bytes. Nothing was applied.</summary>
    public const string KeyTooLong = "KEY_TOO_LONG";

    /// <summary>The cluster's data was restored or replaced: <see cref="KvLineageChangedException"/>.</summary>
    public const string LineageChanged = "LINEAGE_CHANGED";

    /// <summary>A member of a set has at least one byte. Nothing was applied.</summary>
    public const string MemberEmpty = "MEMBER_EMPTY";

    /// <summary>A member of a set has at most 1,024 bytes. Nothing was applied.</summary>
    public const string MemberTooLong = "MEMBER_TOO_LONG";

    /// <summary>The shard has no leader, or none could be reached in time. A change was not applied; try again.</summary>
    public const string NoLeader = "NO_LEADER";

    /// <summary>Of operators' calls: there is no such node. Nothing was changed.</summary>
    public const string NoNode = "NO_NODE";

    /// <summary>Of operators' calls: the operation is not known, or no longer.</summary>
    public const string NoOperation = "NO_OPERATION";

    /// <summary>The session that is to own a key does not exist: <see cref="KvNoOwnerException"/>.</summary>
    public const string NoOwner = "NO_OWNER";

    /// <summary>Of operators' calls: there is no such shard. Nothing was changed.</summary>
    public const string NoShard = "NO_SHARD";

    /// <summary>There was no connection to a node, or it was lost. Nothing was applied.</summary>
    public const string NodeUnreachable = "NODE_UNREACHABLE";

    /// <summary>The value of a key that is incremented is not the decimal text of a signed 64-bit number. Nothing was applied.</summary>
    public const string NotANumber = "NOT_A_NUMBER";

    /// <summary>Of operators' calls: without the node a shard would have no majority. Nothing was changed.</summary>
    public const string NotDrained = "NOT_DRAINED";

    /// <summary>The node that was asked does not lead the shard. The library follows its hint, and returns this only if time was over.</summary>
    public const string NotLeader = "NOT_LEADER";

    /// <summary>Of operators' calls: the replicas cannot be placed so. Nothing was changed.</summary>
    public const string NotPlaced = "NOT_PLACED";

    /// <summary>Of operators' calls: without the replica the shard would have no majority. Nothing was changed.</summary>
    public const string NotQuarantined = "NOT_QUARANTINED";

    /// <summary>Of operators' calls: the levels cannot be raised yet, or nothing is known of them. Nothing was changed.</summary>
    public const string NotRaised = "NOT_RAISED";

    /// <summary>A stream was ended because its reader paused for long.</summary>
    public const string NotRead = "NOT_READ";

    /// <summary>Of operators' calls: the coordinator's records were not rebuilt.</summary>
    public const string NotRecovered = "NOT_RECOVERED";

    /// <summary>Of operators' calls: the replica was not replaced.</summary>
    public const string NotReplaced = "NOT_REPLACED";

    /// <summary>The node or router serves the call at another address or with another setting. Nothing was applied.</summary>
    public const string NotServedHere = "NOT_SERVED_HERE";

    /// <summary>Of operators' calls: the leadership was not transferred.</summary>
    public const string NotTransferred = "NOT_TRANSFERRED";

    /// <summary>A number would not fit into 64 bits after the increment. Nothing was applied.</summary>
    public const string NumberOverflow = "NUMBER_OVERFLOW";

    /// <summary>It is unknown whether a change was applied: <see cref="KvOutcomeUnknownException"/>.</summary>
    public const string OutcomeUnknown = "OUTCOME_UNKNOWN";

    /// <summary>A range has more keys or bytes than one change may read or delete together with others. Nothing was applied.</summary>
    public const string RangeTooLarge = "RANGE_TOO_LARGE";

    /// <summary>No replica caught up in time with what the read must reflect.</summary>
    public const string ReplicaBehind = "REPLICA_BEHIND";

    /// <summary>Between programs only: a read is repeated in another way because its answer is large. The library never returns this.</summary>
    public const string ReplyLarge = "REPLY_LARGE";

    /// <summary>Between programs only: the identity of a change was given back. The library returns <see cref="OutcomeUnknown"/>.</summary>
    public const string SequenceClosed = "SEQUENCE_CLOSED";

    /// <summary>Between programs only: two changes have one identity, which is a bug of a client. Nothing was applied.</summary>
    public const string SequenceReused = "SEQUENCE_REUSED";

    /// <summary>Between programs only: the session that identifies a change has ended. The library makes the change in another one.</summary>
    public const string SessionExpired = "SESSION_EXPIRED";

    /// <summary>The keys of one change belong to several shards: <see cref="KvShardsDifferException"/>.</summary>
    public const string ShardsDiffer = "SHARDS_DIFFER";

    /// <summary>The snapshot of a scan or a page is not kept any more: <see cref="KvSnapshotTooOldException"/>.</summary>
    public const string SnapshotTooOld = "SNAPSHOT_TOO_OLD";

    /// <summary>The node is stopping. The library asks the next one, and returns this only if time was over.</summary>
    public const string Stopping = "STOPPING";

    /// <summary>A file of <see cref="KvClientOptions.Tls"/> cannot be used; the message names it and says why.</summary>
    public const string TlsFileUnusable = "TLS_FILE_UNUSABLE";

    /// <summary>A request has more operations, keys, members or conditions than it may. Nothing was applied.</summary>
    public const string TooManyOperations = "TOO_MANY_OPERATIONS";

    /// <summary>A session owns as many keys as it may. Nothing was applied.</summary>
    public const string TooManyOwned = "TOO_MANY_OWNED";

    /// <summary>The program of the node or router is too old to know the call. Nothing was applied.</summary>
    public const string UnsupportedByPeer = "UNSUPPORTED_BY_PEER";

    /// <summary>A value has at most 8 MiB. Nothing was applied.</summary>
    public const string ValueTooLarge = "VALUE_TOO_LARGE";

    /// <summary>A write has at most 16 MiB. Nothing was applied.</summary>
    public const string WriteTooLarge = "WRITE_TOO_LARGE";

    /// <summary>Of operators' calls: a node was asked on behalf of another one.</summary>
    public const string WrongNode = "WRONG_NODE";

    /// <summary>The node that was asked does not hold the key. The library follows its hint, and returns this only if time was over.</summary>
    public const string WrongShard = "WRONG_SHARD";
}
