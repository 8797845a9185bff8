namespace KvCluster.Simulation.Cluster;

/// <summary>
/// Runs in which the shard's replicas change while something lies about them or takes them away: a coordinator restored from a backup, whose record names replicas
/// that have left and lacks those that came; and operators who have two replicas quarantined at once, of whom one at least must be refused.
/// </summary>
internal static class MembershipScenarios
{
    public static IReadOnlyList<ClusterScenario> All { get; } =
    [
        new("nodes-restored-replaced", "F41", 3, 4, ClusterConditions.Any,
            [(ClusterFault.RestoreCoordinatorRaised, 6), (ClusterFault.Replace, 6), (ClusterFault.Crash, 4), (ClusterFault.HandOver, 2)]),
        new("nodes-quarantined", "F44", 3, 4, ClusterConditions.Any,
            [(ClusterFault.Quarantine, 6), (ClusterFault.HandOver, 3), (ClusterFault.Crash, 2), (ClusterFault.CutOff, 2), (ClusterFault.CrashInCall, 2), (ClusterFault.Replace, 1)]),
    ];
}
