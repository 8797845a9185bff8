namespace KvCluster.Node.Shards;

/// <summary>What a replica says of its journal's disk. Not healthy: others should lead.</summary>
internal enum DiskState
{
    /// <summary>Takes what it is given in ordinary time.</summary>
    Healthy,

    /// <summary>As <see cref="DiskPace"/> judges by itself, or <see cref="NodeDisk"/> by what the others' disks do.</summary>
    Slow,

    /// <summary>Has no room for more.</summary>
    Full,
}
