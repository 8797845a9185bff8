namespace KvCluster.Simulation.Cluster;

/// <summary>
/// Runs in which the shard's replicas change under a false record or beside quarantines. A coordinator restored from a backup names replicas that
/// have left and lacks those that were added. One whose data is lost is rebuilt from what the nodes know, whatever change was in progress. Operators have two
/// replicas quarantined at once, and at least one of these must be refused.
/// </summary>
internal static class MembershipScenarios
{
    public static IReadOnlyList<ClusterScenario> All { get; } =
    [
        new("nodes-restored-replaced", "F41", 3, 4, ClusterConditions.Any,
            [(ClusterFault.RestoreCoordinatorRaised, 6), (ClusterFault.Replace, 6), (ClusterFault.Crash, 4), (ClusterFault.Transfer, 2)]),
        new("nodes-coordinator-lost", "F53", 4, 4, ClusterConditions.Any,
            [(ClusterFault.LoseCoordinator, 6),
                (ClusterFault.Replace, 5), (ClusterFault.Crash, 4), (ClusterFault.Transfer, 3), (ClusterFault.CutOff, 2), (ClusterFault.LosePower, 1)]),
        new("nodes-quarantined", "F44", 3, 4, ClusterConditions.Any,
            [(ClusterFault.Quarantine, 6),
                (ClusterFault.Transfer, 3), (ClusterFault.Crash, 2), (ClusterFault.CutOff, 2), (ClusterFault.CrashInCall, 2), (ClusterFault.Replace, 1)]),
    ];
}
