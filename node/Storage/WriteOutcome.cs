namespace KvCluster.Storage;

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
