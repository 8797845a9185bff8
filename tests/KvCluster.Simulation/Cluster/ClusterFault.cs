namespace KvCluster.Simulation.Cluster;

/// <summary>What the generator can do to whole nodes. Half of the time it hits the leader's.</summary>
internal enum ClusterFault
{
    Crash,
    LosePower,

    /// <summary>In one direction or both, for up to two seconds.</summary>
    CutOff,
    Pause,
    Checkpoint,
    HandOver,

    /// <summary>A restart with a flipped bit, once in a run.</summary>
    Damage,

    /// <summary>One disk, or all, have no room for a while.</summary>
    FillDisk,

    /// <summary>An hour forwards or backwards.</summary>
    JumpClock,
}
