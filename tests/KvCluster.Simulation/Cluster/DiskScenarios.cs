namespace KvCluster.Simulation.Cluster;

/// <summary>
/// Runs in which single calls to a disk fail in every way that the simulated disk knows. A replica may fail and be replaced. As long as the disks of
/// the others are sound, nothing acknowledged may be lost, and no two replicas may differ.
/// </summary>
internal static class DiskScenarios
{
    public static IReadOnlyList<ClusterScenario> All { get; } =
    [
        new("nodes-disk-errs", "F16 F17 F46", 9, 4, ClusterConditions.Any,
        [
            (ClusterFault.DiskError, 3), (ClusterFault.DiskShortWrite, 3), (ClusterFault.DiskSyncLosesData, 3),
            (ClusterFault.DiskReadError, 9), (ClusterFault.DiskLostWrite, 6), (ClusterFault.DiskMisdirectedWrite, 3),
            (ClusterFault.Checkpoint, 8), (ClusterFault.Crash, 4), (ClusterFault.Transfer, 2),
        ]),
        new("nodes-failed-but-arrived", "F17 F18 F47", 6, 4, ClusterConditions.Any,
        [
            (ClusterFault.DiskNoRoom, 5), (ClusterFault.DiskNoRoomAfterwards, 9), (ClusterFault.DiskErrorAfterwards, 3), (ClusterFault.FillDisk, 3),
            (ClusterFault.Checkpoint, 8), (ClusterFault.Crash, 4), (ClusterFault.LosePower, 2), (ClusterFault.Transfer, 2),
        ]),
    ];
}
