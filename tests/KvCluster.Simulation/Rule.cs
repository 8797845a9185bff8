namespace KvCluster.Simulation;

/// <summary>Rules that every run must keep, whatever fails. A violation names one of these.</summary>
internal enum Rule
{
    /// <summary>At most one process serves an epoch.</summary>
    OneLeaderAnEpoch,

    /// <summary>The committed records of all replicas form one sequence, and everything acknowledged is in it.</summary>
    CommittedStays,

    /// <summary>
    /// Reads, scans and failed conditions show the committed state at their etag, which is not older than anything answered before they were sent.
    /// </summary>
    Linearizable,

    /// <summary>A later change has a greater etag.</summary>
    EtagsRise,

    /// <summary>No write is applied twice, and none that was answered "not applied".</summary>
    AppliedOnce,

    /// <summary>After healing one leader serves, and all replicas hold the same tree at the same etag.</summary>
    Converges,

    /// <summary>
    /// A replica keeps working: nothing halts it, raises an alarm, makes recovery refuse, or answers a caller with an exception, unless its own disk
    /// was damaged.
    /// </summary>
    GoesOn,

    /// <summary>With a leader and a majority that work and reach each other, callers are served within some seconds.</summary>
    Available,

    /// <summary>A call of a client ends by its deadline, answered or not.</summary>
    EndsInTime,

    /// <summary>A client or router has at most one refresh of its map in flight.</summary>
    OneRefresh,

    /// <summary>
    /// A key expires with the value that it was set for, once, no earlier than its time to live after it was sent, and late by a bound, the drift and the time
    /// without a leader. A session ends no earlier than its lifetime after a KeepAlive that was answered, and its keys end with it. All of that by the run's
    /// time. In the end everything has ended.
    /// </summary>
    LivesEnd,

    /// <summary>Core and driver keep their contract: journals chain, and cuts and the control file keep their promises.</summary>
    Contract,

    /// <summary>An invariant of the code itself.</summary>
    Invariant,
}
