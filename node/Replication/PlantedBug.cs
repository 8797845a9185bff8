namespace KvCluster.Replication;

/// <summary>Bugs that the simulation plants on purpose, one at a time, to prove that it would find them. Never set outside tests.</summary>
internal enum PlantedBug
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
    RefillingCounts,

    /// <summary>Take the digest of whatever is committed together with the record that was named.</summary>
    DigestBehindRecord,

    /// <summary>Stay silent when a record cannot be applied: the replica neither works nor says why.</summary>
    UnreadableUntold,

    /// <summary>Open the replicas of a data directory that is an old copy.</summary>
    OldCopyTrusted,
}
