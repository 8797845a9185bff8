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

    /// <summary>A call to a disk that changes it fails, whichever it is: the process must end.</summary>
    DiskError,

    /// <summary>A write arrives in part, and fails.</summary>
    DiskShortWrite,

    /// <summary>A sync fails, later ones succeed, and what it was about is lost with the power.</summary>
    DiskSyncLosesData,

    /// <summary>A read fails.</summary>
    DiskReadError,

    /// <summary>A write succeeds and never reaches the disk.</summary>
    DiskLostWrite,

    /// <summary>Such a write arrives elsewhere in its file.</summary>
    DiskMisdirectedWrite,

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

    /// <summary>Operators have two replicas quarantined at once, without force.</summary>
    Quarantine,

    /// <summary>A replica that was to be quarantined has to stay. Not drawn: leaders decide it.</summary>
    QuarantineRefused,

    /// <summary>An hour forwards or backwards.</summary>
    JumpClock,

    /// <summary>A node's wall clock is a year ahead for a while, and is put right.</summary>
    ClockAhead,

    /// <summary>A thread stands still in the middle of a read that its replica's lease is to cover. Not drawn: reads do so by themselves.</summary>
    StandInRead,

    /// <summary>A session cannot be opened before another one ends. Not drawn: callers bring it about.</summary>
    NoRoomForSession,

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
