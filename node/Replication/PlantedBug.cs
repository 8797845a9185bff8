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
}
