namespace KvCluster.Simulation.Protocol;

/// <summary>The faults that the generator can inject into a cluster. Those that name no leader or follower hit the leader half of the time.</summary>
internal enum Fault
{
    Restart,
    RestartLeader,
    RestartFollower,
    Pause,
    PauseLeader,
    Isolate,
    IsolateLeader,
    IsolateFollower,

    /// <summary>First from one follower, then from all. The timer of the first runs out when the others have just granted.</summary>
    IsolateLeaderInSteps,

    /// <summary>One direction of one link is cut.</summary>
    CutLink,

    /// <summary>The replicas are split into two groups that do not hear each other.</summary>
    Partition,
    CutOffCoordinator,
    CoordinatorAway,
    LosePower,
    SlowDisk,
    SlowFollower,
    Transfer,
    Checkpoint,

    /// <summary>After a restart the end of the journal is missing, which the control file reveals.</summary>
    LoseTail,

    /// <summary>A learner is added, promoted, or swapped in, or a replica is removed.</summary>
    ChangeReplicas,
}
