namespace KvCluster.Simulation.Protocol;

/// <summary>Decisions of the protocol at which something can be made to fail.</summary>
internal enum Moment
{
    /// <summary>A control file is being written.</summary>
    ControlWriting,

    /// <summary>A control file that holds a higher promise than before is being written.</summary>
    PromiseWriting,
    TransactionSent,
    PrepareSent,
    PreparedSent,
    TailAsked,
    CutBegun,
    LeadingStarted,
    ServingStarted,
    ReleaseSent,

    /// <summary>A follower acknowledges what it has synced.</summary>
    AckSent,

    /// <summary>A follower says which record it has in common with the leader, and so what of that it has synced.</summary>
    MatchSent,
    Installing,

    /// <summary>All of a snapshot is received, and about to be verified.</summary>
    Verifying,
}
