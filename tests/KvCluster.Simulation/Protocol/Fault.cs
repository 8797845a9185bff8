namespace KvCluster.Simulation.Protocol;

/// <summary>What the generator can do to a cluster. Those that name no leader or follower hit the leader half of the time.</summary>
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

    /// <summary>First from one follower, then from all: that one's timer has run out when the others have just granted.</summary>
    IsolateLeaderInSteps,

    /// <summary>One direction of one link.</summary>
    CutLink,

    /// <summary>The replicas fall into two groups that do not hear of each other.</summary>
    Partition,
    CutOffCoordinator,
    CoordinatorAway,
    LosePower,
    SlowDisk,
    SlowFollower,
    HandOver,
    Checkpoint,

    /// <summary>A restart after which the end of the journal is gone, which the control file shows.</summary>
    LoseTail,

    /// <summary>A learner is added, promoted, swapped in, or a replica removed.</summary>
    ChangeReplicas,
}
