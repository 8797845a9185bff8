namespace KvCluster.Client;

/// <summary>A call that failed. The message is one line for people; <see cref="Reason"/> is for programs.</summary>
public class KvException : Exception
{
    /// <summary>Creates it.</summary>
    public KvException(string reason, string message, ChangeOutcome outcome = ChangeOutcome.NotApplied, Exception? cause = null)
        : base(message, cause)
    {
        Reason = reason;
        Outcome = outcome;
    }

    /// <summary>One of <see cref="KvReasons"/>, or of a later version.</summary>
    public string Reason { get; }

    /// <summary>The outcome of the change.</summary>
    public ChangeOutcome Outcome { get; }
}

/// <summary>A condition did not hold; nothing was applied.</summary>
public sealed class KvConditionFailedException(string message, int conditionIndex, ShardPosition position)
    : KvException(KvReasons.ConditionFailed, message)
{
    /// <summary>Index of the condition in the request.</summary>
    public int ConditionIndex { get; } = conditionIndex;

    /// <summary>The newest etag of the state that it was evaluated on.</summary>
    public ShardPosition Position { get; } = position;
}

/// <summary>
/// The request itself was refused, for example because of an empty or too long key, or a too large value. Nothing was applied.
/// </summary>
public sealed class KvInvalidRequestException(string reason, string message) : KvException(reason, message);

/// <summary>
/// The cluster's data was restored or replaced: what this client has seen, or the session of a change, belongs to another history of it. The call was not
/// executed. For a change the outcome is unknown, because an earlier attempt may have been executed. The client continues in the present history with the next
/// call.
/// </summary>
public sealed class KvLineageChangedException(string message, ChangeOutcome outcome) : KvException(KvReasons.LineageChanged, message, outcome);

/// <summary>
/// The change was sent and repeated until the timeout, and it is unknown whether it was applied. Read the key, or repeat the change if that is harmless.
/// </summary>
public sealed class KvOutcomeUnknownException(string message, Exception? cause = null)
    : KvException(KvReasons.OutcomeUnknown, message, ChangeOutcome.Unknown, cause);

/// <summary>The cluster could not be reached, or had no leader, for as long as the call was allowed to take. Nothing was applied.</summary>
public sealed class KvUnavailableException(string reason, string message, Exception? cause = null)
    : KvException(reason, message, ChangeOutcome.NotApplied, cause)
{
    /// <summary>
    /// How long to wait before the call is made again, if whoever refused it said so; mostly for the reason <see cref="KvReasons.Busy"/>. Never zero.
    /// </summary>
    public TimeSpan? RetryAfter { get; init; }
}

/// <summary>
/// The keys of one change, or the sets of one intersection, belong to several shards. Nothing was applied. Make a change of each shard
/// (<see cref="KvClient.FindShardAsync"/> tells which shard a key belongs to), or choose keys that stay together.
/// </summary>
public sealed class KvShardsDifferException(string message, IReadOnlyList<uint> shards) : KvException(KvReasons.ShardsDiffer, message)
{
    /// <summary>Those of the shards that the refusal names, mostly two; empty if it names none.</summary>
    public IReadOnlyList<uint> Shards { get; } = shards;
}

/// <summary>
/// The snapshot of a scan or a page is not kept any more. What was received is correct. Begin anew, or allow a newer snapshot
/// (<see cref="KvScan.OneSnapshot"/>, <see cref="KvList.NewerSnapshots"/>).
/// </summary>
public sealed class KvSnapshotTooOldException(string message) : KvException(KvReasons.SnapshotTooOld, message);

/// <summary>
/// The session that is to own a key has ended, is of another shard than the key, or has no lifetime. Nothing was applied. Open another session.
/// </summary>
public sealed class KvNoOwnerException(string message) : KvException(KvReasons.NoOwner, message);

/// <summary>The outcome of the change that an error is about.</summary>
public enum ChangeOutcome
{
    /// <summary>It was certainly not applied. Every failed read has this outcome.</summary>
    NotApplied,

    /// <summary>It may have been applied, or may still be applied.</summary>
    Unknown,
}

/// <summary>
/// A watch was to begin after a position that no replica's journal has any more. Read the keys anew and watch after that, or watch with
/// <see cref="KvWatch.Initial"/>.
/// </summary>
public sealed class KvCompactedException(string message, ShardPosition oldest, Exception? cause = null)
    : KvException(KvReasons.Compacted, message, ChangeOutcome.NotApplied, cause)
{
    /// <summary>The oldest position of the shard from which a watch could have begun.</summary>
    public ShardPosition Oldest { get; } = oldest;
}
