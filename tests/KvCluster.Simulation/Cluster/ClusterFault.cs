namespace KvCluster.Simulation.Cluster;

/// <summary>The faults that the generator can inject into whole nodes. Half of the time it hits the leader's node.</summary>
internal enum ClusterFault
{
    Crash,
    LosePower,

    /// <summary>In one direction or both, for up to two seconds. Several may last at once.</summary>
    CutOff,

    /// <summary>
    /// Power is lost in the middle of one of the next calls to a disk: in a journal write, the control file, a checkpoint, or the recovery after
    /// another fault.
    /// </summary>
    CrashInCall,

    /// <summary>
    /// While the node is down, a bit flips in data that exists twice: a meta page or a slot of the control file. The replica must work anyway.
    /// </summary>
    DamageSpare,

    /// <summary>The leader is isolated as by <see cref="CutOff"/>, and crashes while another takes over.</summary>
    CutOffAndCrash,
    Pause,
    Checkpoint,
    Transfer,

    /// <summary>A bit flips once in a run, while the node is down or running.</summary>
    Damage,

    /// <summary>A write or sync fails, and the process must end.</summary>
    FailDisk,

    /// <summary>Any changing call to a disk fails, and the process must end.</summary>
    DiskError,

    /// <summary>A write fails after a part of it has arrived.</summary>
    DiskShortWrite,

    /// <summary>A sync fails and later ones succeed, but its data is lost at the next power loss.</summary>
    DiskSyncLosesData,

    /// <summary>Any changing call to a disk fails for want of space, perhaps after a part of it has arrived.</summary>
    DiskNoRoom,

    /// <summary>Any changing call to a disk happens, and is said to have failed for want of space.</summary>
    DiskNoRoomAfterwards,

    /// <summary>Any changing call to a disk happens, and is said to have failed. The process must end.</summary>
    DiskErrorAfterwards,

    /// <summary>A read fails.</summary>
    DiskReadError,

    /// <summary>A write succeeds and never reaches the disk.</summary>
    DiskLostWrite,

    /// <summary>A write succeeds at another place of its file.</summary>
    DiskMisdirectedWrite,

    /// <summary>One disk, or all, are full for a while.</summary>
    FillDisk,

    /// <summary>Writes to a disk take most of a second for a while.</summary>
    SlowDisk,

    /// <summary>A node is down until its leader's journal no longer reaches back to it.</summary>
    FallBehind,

    /// <summary>Snapshots are stored and verified, and checkpoints written, very slowly for a while.</summary>
    SlowVerification,

    /// <summary>A node loses its disk. Its replica is removed and replaced.</summary>
    LoseDisk,

    /// <summary>A node restarts with a copy of its disk from some restarts ago.</summary>
    RestoreDisk,

    /// <summary>A node's replica cannot apply a record that the others can apply.</summary>
    Outdate,

    /// <summary>An operator has a working replica replaced.</summary>
    Replace,

    /// <summary>Operators have two replicas quarantined at once, without force.</summary>
    Quarantine,

    /// <summary>A quarantine was refused. Not drawn, because leaders decide it.</summary>
    QuarantineRefused,

    /// <summary>A wall clock jumps an hour forwards or backwards.</summary>
    JumpClock,

    /// <summary>A node's wall clock is a year ahead for a while, and is then corrected.</summary>
    ClockAhead,

    /// <summary>All nodes are down for seconds to minutes.</summary>
    AllDown,

    /// <summary>All nodes stand still for seconds to minutes, as by SIGSTOP or when their machine sleeps.</summary>
    AllStand,

    /// <summary>A thread stalls in the middle of a read under its replica's lease. Not drawn, because reads do so by themselves.</summary>
    StandInRead,

    /// <summary>A session cannot be opened before another one ends. Not drawn, because callers cause it.</summary>
    NoRoomForSession,

    /// <summary>One node does not reach the coordinator for a while.</summary>
    CutOffCoordinator,

    /// <summary>No node reaches the coordinator for a while.</summary>
    CoordinatorAway,

    /// <summary>A client or router reaches only some nodes or none for a while, and is not told.</summary>
    CutOffCaller,

    /// <summary>All streams of a client or router break.</summary>
    BreakStreams,

    /// <summary>
    /// The coordinator's data is lost, sometimes while a node is down or together with all processes, and is rebuilt from the nodes later, sometimes without
    /// the node that is down.
    /// </summary>
    LoseCoordinator,

    /// <summary>The coordinator is restored from an earlier state, and repaired later.</summary>
    RestoreCoordinator,

    /// <summary>The same, restored as etcd's tools can do it: with a revision above all ever assigned.</summary>
    RestoreCoordinatorRaised,
}
