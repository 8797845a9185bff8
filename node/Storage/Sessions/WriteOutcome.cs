namespace KvCluster.Storage.Sessions;

/// <summary>
/// How a write ended. Everything but <see cref="Applied"/> and <see cref="OutcomeUnknown"/> was certainly not applied this time; whether an identified
/// request had been applied before, <see cref="SessionExpired"/> and <see cref="SequenceClosed"/> cannot tell.
/// </summary>
internal enum WriteOutcome : byte
{
    /// <summary>All of it, durable and committed. A request without operations: its conditions held.</summary>
    Applied,

    /// <summary>A condition did not hold.</summary>
    ConditionFailed,

    /// <summary>This replica does not lead (any more).</summary>
    NotLeader,

    /// <summary>It was appended, but this replica cannot tell whether it will be committed.</summary>
    OutcomeUnknown,

    /// <summary>Its deadline had passed when its turn came.</summary>
    DeadlinePassed,

    /// <summary>Its caller gave it up before its turn came.</summary>
    GivenUp,

    /// <summary>Too much was waiting already; worth another try soon.</summary>
    Busy,

    /// <summary>The disk is full; deletes still work.</summary>
    DiskFull,

    /// <summary>The engine had stopped.</summary>
    Stopped,

    /// <summary>There is no session with the request's id (any more).</summary>
    SessionExpired,

    /// <summary>The request's client had said that it was settled, and its result was dropped.</summary>
    SequenceClosed,

    /// <summary>Another request has its sequence: it has a result there whose digest is not this one's.</summary>
    SequenceReused,
}

/// <summary>The answer to a <c>WriteRequest</c>.</summary>
/// <param name="Outcome">How it ended.</param>
/// <param name="Etag">Applied: the etag of its last operation. Failed condition: the newest etag it was evaluated on.</param>
/// <param name="FailedCondition">Index of the first condition that did not hold; -1 if none.</param>
/// <param name="Existed">Applied: whether a key that it deletes was there.</param>
internal readonly record struct WriteResult(WriteOutcome Outcome, UInt128 Etag, int FailedCondition, bool Existed)
{
    /// <summary>An answer that says no more than its outcome.</summary>
    public static WriteResult Of(WriteOutcome outcome) => new(outcome, default, -1, false);
}
