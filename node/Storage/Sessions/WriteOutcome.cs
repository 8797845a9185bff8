namespace KvCluster.Storage.Sessions;

/// <summary>
/// How a write ended. With every outcome except <see cref="Applied"/> and <see cref="OutcomeUnknown"/> the request was certainly not applied this time.
/// Whether an identified request was applied before cannot be told from <see cref="SessionExpired"/> and <see cref="SequenceClosed"/>.
/// </summary>
internal enum WriteOutcome : byte
{
    /// <summary>All operations were applied, durable and committed. For a request without operations: its conditions held.</summary>
    Applied,

    /// <summary>A condition did not hold.</summary>
    ConditionFailed,

    /// <summary>This replica is not the leader, or no longer.</summary>
    NotLeader,

    /// <summary>The request was appended, but this replica cannot tell whether it will be committed.</summary>
    OutcomeUnknown,

    /// <summary>The deadline had passed when the request's turn came.</summary>
    DeadlinePassed,

    /// <summary>The caller gave it up before its turn came.</summary>
    GivenUp,

    /// <summary>The queue was full; retry soon.</summary>
    Busy,

    /// <summary>The shard has as many sessions as it may, and none of them has to make room; retry later.</summary>
    SessionsFull,

    /// <summary>The disk is full; deletes still work.</summary>
    DiskFull,

    /// <summary>The disk is full, and even a request without puts has no room before a checkpoint frees some; retry soon.</summary>
    NoRoomYet,

    /// <summary>The engine had stopped.</summary>
    Stopped,

    /// <summary>There is no session with the request's id, or no longer.</summary>
    SessionExpired,

    /// <summary>The client had stated that the request was settled, and its result was dropped.</summary>
    SequenceClosed,

    /// <summary>Another request used its sequence: the stored result has a different digest.</summary>
    SequenceReused,

    /// <summary>
    /// The request deletes ranges or large sets, and more of them than can be deleted at once; in parts, only a request that does nothing else is applied. Or
    /// the request has conditions on ranges with more keys than are read, or touches values of more bytes than it might put.
    /// </summary>
    RangeTooLarge,

    /// <summary>The request increments a key whose value is not the text of a number.</summary>
    NotANumber,

    /// <summary>A number would be too large or too small after an increment.</summary>
    NumberOverflow,

    /// <summary>The request puts a key for a session that does not exist or has no lifetime.</summary>
    NoOwner,

    /// <summary>What the request reads has more bytes than results may have.</summary>
    ResultsTooLarge,

    /// <summary>The session that is to own a key owns as many as one may (<see cref="OwnedKeys"/>).</summary>
    TooManyOwned,
}

/// <summary>The answer to a <c>WriteRequest</c>.</summary>
/// <param name="Outcome">How it ended.</param>
/// <param name="Etag">Applied: the etag of its last operation that takes a change, or, without any, the newest etag. ConditionFailed: the newest etag it was
/// evaluated on.</param>
/// <param name="FailedCondition">Index of the first condition that did not hold; -1 if none. Applied, and there is one: the operations for that case were
/// applied.</param>
/// <param name="Deleted">
/// Applied: how many keys it has deleted that existed, and how many members with their sets. Of a request that wants results the keys only, and of one that
/// counts members those that it has added or removed.
/// </param>
/// <param name="IsPartial">
/// Applied: keys of the range, or members of the set, that it deletes are left, beginning where this request ended. The same request again, as a new one,
/// deletes more of them.
/// </param>
internal readonly record struct WriteResult(WriteOutcome Outcome, Etag Etag, int FailedCondition, int Deleted, bool IsPartial = false)
{
    /// <summary>Applied: whether a key or a set that it deletes existed.</summary>
    public bool Existed => Deleted > 0;

    /// <summary>Applied: what each operation did, if the request wants it, for <see cref="Encoding.OperationResultReader"/>.</summary>
    public byte[]? Results { get; init; }

    /// <summary>Whether both say the same, also of each operation.</summary>
    public bool Equals(WriteResult other) =>
        (Outcome, Etag, FailedCondition, Deleted, IsPartial) == (other.Outcome, other.Etag, other.FailedCondition, other.Deleted, other.IsPartial)
        && (Results is null) == (other.Results is null) && Results.AsSpan().SequenceEqual(other.Results);

    /// <inheritdoc/>
    public override int GetHashCode() => HashCode.Combine(Outcome, Etag, FailedCondition, Deleted);

    /// <summary>An answer that consists only of its outcome.</summary>
    public static WriteResult Of(WriteOutcome outcome) => new(outcome, default, -1, 0);
}
