namespace KvCluster.Simulation;

/// <summary>
/// Bugs that the simulation injects on purpose, one at a time, to prove that it would find them. They are in the surroundings of the code under test, such as
/// driver, disk, network, clock and client, and it knows nothing of them. Mistakes in that code itself are made in its sources (tests/nightly/mutants).
/// </summary>
internal enum InjectedBug
{
    None,

    /// <summary>Accept frames of any epoch.</summary>
    NoEpochCheck,

    /// <summary>Acknowledge appended instead of synced records.</summary>
    AckBeforeSync,

    /// <summary>Take a compare-and-set of unknown outcome for a success.</summary>
    UnknownIsWon,

    /// <summary>Answer a Prepare before the promise is on disk.</summary>
    PromiseNotSynced,

    /// <summary>Read the durable etag when a Prepare arrives, while it is held and acknowledgements continue.</summary>
    PrepareReadsEarly,

    /// <summary>Answer a Prepare during a grant.</summary>
    PrepareDuringGrant,

    /// <summary>After a restart, do not wait for grants of the former process.</summary>
    NoWaitAfterRestart,

    /// <summary>Keep a grant only for its length, without a margin for clock drift.</summary>
    DriftIgnored,

    /// <summary>Release the grants and continue to serve.</summary>
    ReadOnAfterRelease,

    /// <summary>Use a lease check from before the read arrived.</summary>
    LeaseFromBefore,

    /// <summary>Confirm a read by a round that was sent before it arrived.</summary>
    RoundFromBefore,

    /// <summary>Publish and answer appended instead of committed records.</summary>
    AnswerUnpublished,

    /// <summary>Keep the acknowledged etag of the control file across a cut.</summary>
    AcknowledgedStands,

    /// <summary>Write a committed etag beyond the own journal into the control file.</summary>
    CommittedAboveJournal,

    /// <summary>Take the digest after more committed records than the one that was named.</summary>
    DigestBehindRecord,

    /// <summary>Open the replicas of a data directory that is an old copy.</summary>
    OldCopyTrusted,

    // The coordinator's data is lost.

    /// <summary>
    /// Rebuild the record as soon as a majority of the newest replicas that happen to be known is there, although a node that others name did not answer.
    /// </summary>
    SilenceIsAnAnswer,

    /// <summary>Follow the old coordinator when it comes back after the record was rebuilt.</summary>
    OldCoordinatorFollowed,

    /// <summary>A node that has reported for a recovery goes on acting on the coordinator's records.</summary>
    ReportBindsNobody,

    // The network between the nodes.

    /// <summary>Send a follower that was unreachable only heartbeats for some seconds.</summary>
    BodiesHeldBack,

    // The disk as an engine uses it.

    /// <summary>Write a meta page before what it reaches is synced.</summary>
    NoSyncBeforeMeta,

    /// <summary>Install a received snapshot without a sync of its data file.</summary>
    NoDataSyncAtInstall,

    /// <summary>Reuse a retired segment without erasing its front.</summary>
    NoEraseFront,

    /// <summary>Report a record as durable after its write, without a sync.</summary>
    JournalNotSynced,

    /// <summary>The same for the control file.</summary>
    ControlNotSynced,

    /// <summary>Create and rename files without a sync of their directory.</summary>
    DirectoryNotSynced,

    // A node's API.

    /// <summary>Sometimes apply a request as if it had no condition.</summary>
    ConditionSkipped,

    /// <summary>Sometimes drop a result while its request is open, so that a repetition is executed.</summary>
    OpenResultDropped,

    /// <summary>Check the lease before the snapshot is taken, with a stall in between. A test shows that this breaks nothing.</summary>
    LeaseBeforeSnapshot,

    /// <summary>Check the lease after the snapshot was taken, but not that both belong to one epoch, with a stall in between.</summary>
    LeaseOfAnotherEpoch,

    /// <summary>Answer a linearizable read at a follower without asking the leader.</summary>
    FollowerReadUnasked,

    /// <summary>Answer a read in a session from whatever is applied.</summary>
    SessionReadUnwaited,

    /// <summary>Answer a KeepAlive of a session before the record that clears what is left of it.</summary>
    KeptBeforeItsRecord,

    /// <summary>Count lives by a boot clock as if it could not run fast.</summary>
    LifeDriftIgnored,

    // A client.

    /// <summary>Treat a call that was sent over a broken stream as unsent, so that it is repeated without an id.</summary>
    SentIsUnsent,

    /// <summary>The same for a call that had no answer in time.</summary>
    LateIsUnsent,

    /// <summary>Do not end calls at their deadline.</summary>
    CallWithoutTimer,
}
