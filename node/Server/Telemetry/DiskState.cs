namespace KvCluster.Node.Telemetry;

/// <summary>The state of a replica's journal disk. If it is not healthy, others should lead.</summary>
internal enum DiskState
{
    /// <summary>Completes writes in ordinary time.</summary>
    Healthy,

    /// <summary>Slow, as judged by the replica alone or by the node in comparison with the others' disks.</summary>
    Slow,

    /// <summary>Has no free space.</summary>
    Full,
}
