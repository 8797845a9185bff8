namespace KvCluster.Simulation;

/// <summary>
/// Bugs that the simulation plants on purpose, one at a time, to prove that it would find them. The code under test knows nothing of them: most are in what surrounds it,
/// the driver, the disk, the network, the clock, and the others in the few decisions that it asks rules for (<see cref="FaultyReplicaRules"/>).
/// </summary>
internal enum InjectedBug
{
    None,

    /// <summary>Apply the leader's committed etag to a tail that is not matched yet.</summary>
    CommitBeforeMatch,

    /// <summary>Serve before the epoch-open record is committed.</summary>
    ServeBeforeOpen,

    /// <summary>Take the epoch of a frame as given.</summary>
    NoEpochCheck,

    /// <summary>Acknowledge what is appended, not what is synced.</summary>
    AckBeforeSync,

    /// <summary>Cut back to the committed etag, not to the last common record.</summary>
    CutToCommitted,

    /// <summary>Take a compare-and-set of unknown outcome for a success.</summary>
    UnknownIsWon,

    /// <summary>Take the end of a cut for an older leader as a match with the present one.</summary>
    MatchAfterForeignCut,

    /// <summary>Change the voters without needing both sets meanwhile.</summary>
    ChangeWithoutBarrier,

    /// <summary>Commit a record of an older epoch by counting who has it.</summary>
    CommitOlderEpoch,

    /// <summary>Answer a Prepare before the promise is on disk.</summary>
    PromiseNotSynced,

    /// <summary>Read the durable etag when a Prepare comes, while it is held and acknowledgements go on.</summary>
    PrepareReadsEarly,

    /// <summary>Answer a Prepare while a grant runs.</summary>
    PrepareDuringGrant,

    /// <summary>After a restart do not wait for what the process before may have granted.</summary>
    NoWaitAfterRestart,

    /// <summary>Keep a grant no longer than its length, whatever the clocks' drift.</summary>
    DriftIgnored,

    /// <summary>Release the grants and go on serving.</summary>
    ReadOnAfterRelease,

    /// <summary>Take the lease check of a while before the read arrived.</summary>
    LeaseFromBefore,

    /// <summary>Confirm a read by a round that was sent before it arrived.</summary>
    RoundFromBefore,

    /// <summary>Publish and answer what is appended, not what is committed.</summary>
    AnswerUnpublished,

    /// <summary>Answer a failed condition without asking for the lease.</summary>
    ConditionWithoutLease,

    /// <summary>Leave the acknowledged etag of the control file standing across a cut.</summary>
    AcknowledgedStands,

    /// <summary>Write a committed etag above the own journal into the control file.</summary>
    CommittedAboveJournal,

    /// <summary>Count learners in the leader's majority.</summary>
    LearnerCounts,

    /// <summary>Vote and acknowledge with a gap in the journal.</summary>
    RecoveringCounts,

    /// <summary>Take the digest of whatever is committed together with the record that was named.</summary>
    DigestBehindRecord,

    /// <summary>Stay silent when a record cannot be applied: the replica neither works nor says why.</summary>
    UnreadableUntold,

    /// <summary>Open the replicas of a data directory that is an old copy.</summary>
    OldCopyTrusted,

    /// <summary>Install a snapshot though the journal has gone on behind what it covers.</summary>
    SnapshotOverNewer,

    /// <summary>While the voters change, acknowledge by those that the coordinator's record had when it was last heard of.</summary>
    AckByStaleRecord,

    // The network between the nodes.

    /// <summary>Send a follower that was out of reach nothing but heartbeats for some seconds.</summary>
    BodiesHeldBack,

    // The disk as an engine uses it.

    /// <summary>Write a meta page before what it reaches is synced.</summary>
    NoSyncBeforeMeta,

    /// <summary>Switch a received snapshot in without a sync of its data file.</summary>
    NoDataSyncAtInstall,

    /// <summary>Use a dead segment again with what its front held.</summary>
    NoEraseFront,

    /// <summary>Report a record durable when its write has returned, without a sync.</summary>
    JournalNotSynced,

    /// <summary>The same of the control file.</summary>
    ControlNotSynced,

    /// <summary>Create and rename files without a sync of their directory.</summary>
    DirectoryNotSynced,

    // The engine.

    /// <summary>Report a later write of the journal when it is done, also before an earlier one.</summary>
    ReportOutOfOrder,

    /// <summary>Recycle the journal that the newer meta page does not need.</summary>
    RecycleByNewerMeta,

    /// <summary>Begin a new segment after a loss without saying in the control file that there was one.</summary>
    LossForgotten,

    /// <summary>Count an epoch's changes on from the last one committed, though the journal has given out numbers behind it.</summary>
    ReuseChangeNumber,

    // A node's API.

    /// <summary>Apply a request as if it had no condition, now and then.</summary>
    ConditionSkipped,

    /// <summary>Drop a result while its request is open, now and then, so that a repetition is executed.</summary>
    OpenResultDropped,

    /// <summary>Compare the lease before the snapshot is taken, and be held up in between. A test shows that this breaks nothing.</summary>
    LeaseBeforeSnapshot,

    /// <summary>Compare the lease after the snapshot was taken, but not that both are of one epoch, and be held up in between.</summary>
    LeaseOfAnotherEpoch,

    /// <summary>Answer a linearizable read at a follower without asking the leader.</summary>
    FollowerReadUnasked,

    /// <summary>Answer a read in a session from whatever is applied.</summary>
    SessionReadUnwaited,

    // A client.

    /// <summary>Take a call that was sent over a stream that broke for one that was not, so that it is repeated without an id.</summary>
    SentIsUnsent,

    /// <summary>The same of a call that had no answer in time.</summary>
    LateIsUnsent,

    /// <summary>Keep no time for a call.</summary>
    CallWithoutTimer,
}
