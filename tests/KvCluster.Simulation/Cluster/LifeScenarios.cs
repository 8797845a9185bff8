namespace KvCluster.Simulation.Cluster;

/// <summary>
/// Runs with keys that expire and sessions that end, while all nodes are down or stand still for minutes, wall clocks jump, and leaders change. (Shard time
/// once followed the leader's wall clock at up to twice its pace, so that after such an outage keys lived half as long.)
/// </summary>
internal static class LifeScenarios
{
    public static IReadOnlyList<ClusterScenario> All { get; } =
    [
        new("nodes-lives", "F48", 3, 3, Living,
        [
            (ClusterFault.AllDown, 3),
            (ClusterFault.AllStand, 3), (ClusterFault.JumpClock, 2), (ClusterFault.ClockAhead, 2), (ClusterFault.Transfer, 3), (ClusterFault.Crash, 3),
            (ClusterFault.CutOff, 2), (ClusterFault.CutOffAndCrash, 1), (ClusterFault.Pause, 1),
        ]),
    ];

    private static ClusterConditions Living(Random random) => ClusterConditions.Any(random) with { HasLives = true };
}
