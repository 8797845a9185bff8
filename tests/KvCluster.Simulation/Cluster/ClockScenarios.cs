namespace KvCluster.Simulation.Cluster;

/// <summary>
/// Runs in which one node's wall clock is far ahead of the others' for a while. It must end no session, and if the table of sessions is full, idle
/// sessions must still end. (A clock a year ahead once ended all sessions, and then none aged until real time had caught up.)
/// </summary>
internal static class ClockScenarios
{
    public static IReadOnlyList<ClusterScenario> All { get; } =
    [
        new(
            "nodes-clock-ahead", "F21 F42", 2, 3, ClusterConditions.Any,
            [(ClusterFault.ClockAhead, 6), (ClusterFault.Transfer, 4), (ClusterFault.Crash, 2), (ClusterFault.JumpClock, 1)]),
        new("nodes-sessions-full", "F42", 1, 3, Full, [(ClusterFault.ClockAhead, 5), (ClusterFault.Transfer, 3), (ClusterFault.Crash, 1)]),
    ];

    // Long enough for sessions to fill the table, for the clock to be corrected, and for the bound after that.
    private static ClusterConditions Full(Random random) => ClusterConditions.Any(random) with
    {
        DurationUs = 12_000_000,
        LeavesSessions = true,
        SessionsMax = 6,
        SessionIdleMin = TimeSpan.FromMilliseconds(200),
    };
}
