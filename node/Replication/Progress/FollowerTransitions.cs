namespace KvCluster.Replication.Progress;

/// <summary>How a leader treats one follower.</summary>
internal enum FollowerState
{
    /// <summary>Finding the last common record. Only probes are sent.</summary>
    Probe,

    /// <summary>Bodies are sent ahead of their acknowledgement, within a window in bytes.</summary>
    Replicate,

    /// <summary>The journal no longer reaches back to the common record. A checkpoint is sent instead.</summary>
    Snapshot,
}

/// <summary>What a leader learns about a follower.</summary>
internal enum FollowerSignal
{
    /// <summary>A common record was found.</summary>
    Common,

    /// <summary>The follower lacks the record of a probe, or the one that an append followed.</summary>
    Differs,

    /// <summary>The journal no longer has the records that the follower needs.</summary>
    OutOfReach,

    /// <summary>Something is outstanding and there was no progress for a while.</summary>
    Stalled,

    /// <summary>The follower has a new process.</summary>
    Restarted,

    /// <summary>The snapshot is switched in.</summary>
    Installed,

    /// <summary>The snapshot was given up: it failed on either side, or made no progress for too long.</summary>
    GivenUp,
}

/// <summary>The state table of followers. The signals come from <c>JournalShipping</c>. A test walks all of it.</summary>
internal static class FollowerTransitions
{
    /// <summary>The state after a signal.</summary>
    public static FollowerState Next(FollowerState state, FollowerSignal signal) => (state, signal) switch
    {
        (FollowerState.Probe, FollowerSignal.Common) => FollowerState.Replicate,
        (FollowerState.Probe, FollowerSignal.Differs) => FollowerState.Probe,
        (FollowerState.Probe, FollowerSignal.OutOfReach) => FollowerState.Snapshot,
        (FollowerState.Probe, FollowerSignal.Stalled) => FollowerState.Probe,
        (FollowerState.Probe, FollowerSignal.Restarted) => FollowerState.Probe,
        (FollowerState.Probe, FollowerSignal.Installed) => FollowerState.Probe,
        (FollowerState.Probe, FollowerSignal.GivenUp) => FollowerState.Probe,

        // A late answer to an earlier probe changes nothing. If the follower lacks what was sent, a frame was lost.
        (FollowerState.Replicate, FollowerSignal.Common) => FollowerState.Replicate,
        (FollowerState.Replicate, FollowerSignal.Differs) => FollowerState.Probe,
        (FollowerState.Replicate, FollowerSignal.OutOfReach) => FollowerState.Snapshot,
        (FollowerState.Replicate, FollowerSignal.Stalled) => FollowerState.Probe,
        (FollowerState.Replicate, FollowerSignal.Restarted) => FollowerState.Probe,
        (FollowerState.Replicate, FollowerSignal.Installed) => FollowerState.Replicate,
        (FollowerState.Replicate, FollowerSignal.GivenUp) => FollowerState.Replicate,

        // Only the end of the transfer or a restart ends this state. Answers to probes are late.
        (FollowerState.Snapshot, FollowerSignal.Common) => FollowerState.Snapshot,
        (FollowerState.Snapshot, FollowerSignal.Differs) => FollowerState.Snapshot,
        (FollowerState.Snapshot, FollowerSignal.OutOfReach) => FollowerState.Snapshot,
        (FollowerState.Snapshot, FollowerSignal.Stalled) => FollowerState.Snapshot,
        (FollowerState.Snapshot, FollowerSignal.Restarted) => FollowerState.Probe,
        (FollowerState.Snapshot, FollowerSignal.Installed) => FollowerState.Probe,
        (FollowerState.Snapshot, FollowerSignal.GivenUp) => FollowerState.Probe,
        _ => throw new InvariantException($"The table of follower states has no row for {state} and {signal}."),
    };
}
