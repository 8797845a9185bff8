namespace KvCluster.Simulation.Cluster;

/// <summary>What the generator can do to whole nodes. Half of the time it hits the leader's.</summary>
internal enum ClusterFault
{
    Crash,
    LosePower,

    /// <summary>In one direction or both, for up to two seconds; several may last at once.</summary>
    CutOff,

    /// <summary>The power goes in the middle of one of the next calls to a disk: of a journal write, of the control file, of a checkpoint, or in the recovery after another fault.</summary>
    CrashInCall,

    /// <summary>A flipped bit where everything stands twice, in a meta page or a slot of the control file, while the node is down: its replica must work all the same.</summary>
    DamageSpare,

    /// <summary>As <see cref="CutOff"/>, the leader's, and it is crashed while another takes over.</summary>
    CutOffAndCrash,
    Pause,
    Checkpoint,
    HandOver,

    /// <summary>A flipped bit, while the node is down or while it works, once in a run.</summary>
    Damage,

    /// <summary>A write or a sync fails: the process must end.</summary>
    FailDisk,

    /// <summary>One disk, or all, have no room for a while.</summary>
    FillDisk,

    /// <summary>Writes of a disk take most of a second for a while.</summary>
    SlowDisk,

    /// <summary>A node is away until its leader's journal does not reach back to it.</summary>
    FallBehind,

    /// <summary>Snapshots are stored and verified, and checkpoints written, very slowly for a while.</summary>
    SlowVerification,

    /// <summary>A node loses its disk: its replica is removed and another one takes its place.</summary>
    LoseDisk,

    /// <summary>A node comes back with a copy of its disk that was taken some restarts ago.</summary>
    RestoreDisk,

    /// <summary>A node's replica cannot apply a record that the others can.</summary>
    Outdate,

    /// <summary>An operator has a replica replaced that works.</summary>
    Replace,

    /// <summary>An hour forwards or backwards.</summary>
    JumpClock,

    /// <summary>One node does not reach the coordinator for a while.</summary>
    CutOffCoordinator,

    /// <summary>No node does.</summary>
    CoordinatorAway,

    /// <summary>A client or router reaches some nodes or none for a while, and hears nothing of it.</summary>
    CutOffCaller,

    /// <summary>All streams of a client or router break.</summary>
    BreakStreams,

    /// <summary>The coordinator goes back to what it held some time ago, and is repaired later.</summary>
    RestoreCoordinator,

    /// <summary>The same, restored as etcd's tools can: with a revision above all that were ever given.</summary>
    RestoreCoordinatorRaised,
}
