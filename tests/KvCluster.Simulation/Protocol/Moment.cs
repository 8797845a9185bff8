namespace KvCluster.Simulation.Protocol;

/// <summary>Decisions of the protocol at which a fault can be injected.</summary>
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

    /// <summary>A follower acknowledges the records that it has synced.</summary>
    AckSent,

    /// <summary>A follower reports the record that it has in common with the leader, and so how much of it is synced.</summary>
    MatchSent,
    Installing,

    /// <summary>A snapshot is completely received and about to be verified.</summary>
    Verifying,
}
