namespace KvCluster.Simulation.Cluster;

/// <summary>A kind of run of whole replicas.</summary>
/// <param name="Name">As given to <c>--scenario</c>.</param>
/// <param name="Faults">The faults that it tests.</param>
/// <param name="Weight">How often the suite runs it.</param>
/// <param name="Nodes">The number of nodes. Three of them have a replica at first.</param>
/// <param name="Draw">Draws the run's conditions.</param>
/// <param name="Mix">The faults injected from time to time, with weights.</param>
internal sealed record ClusterScenario(
    string Name, string Faults, int Weight, int Nodes, Func<Random, ClusterConditions> Draw, (ClusterFault Fault, int Weight)[] Mix)
{
    public static IReadOnlyList<ClusterScenario> All { get; } =
    [
        new("nodes-everything", "F1-F4 F15 F20-F22 F25", 4, 4, ClusterConditions.Any,
        [
            (ClusterFault.Crash, 8),
            (ClusterFault.LosePower, 2), (ClusterFault.CutOff, 6), (ClusterFault.Pause, 3), (ClusterFault.Checkpoint, 3), (ClusterFault.Transfer, 3),
            (ClusterFault.JumpClock, 1), (ClusterFault.SlowDisk, 1),
            (ClusterFault.Replace, 2), (ClusterFault.CutOffCoordinator, 2), (ClusterFault.FailDisk, 1), (ClusterFault.CutOffAndCrash, 1),
            (ClusterFault.CrashInCall, 3),
        ]),
        new("nodes-unreadable", "F24", 4, 4, ClusterConditions.Neighboured,
            [(ClusterFault.Outdate, 6), (ClusterFault.Transfer, 4), (ClusterFault.Crash, 3), (ClusterFault.CutOff, 1), (ClusterFault.Checkpoint, 2)]),
        new("nodes-routed", "F1 F22 F23", 4, 4, ClusterConditions.Routed,
        [
            (ClusterFault.Crash, 6), (ClusterFault.Transfer, 4),
            (ClusterFault.CutOff, 3), (ClusterFault.CutOffCaller, 5), (ClusterFault.BreakStreams, 4), (ClusterFault.CutOffCoordinator, 2),
            (ClusterFault.Replace, 2),
        ]),
        new("nodes-leader-dies", "F1 F12", 3, 3, ClusterConditions.Any, [(ClusterFault.Crash, 8), (ClusterFault.Checkpoint, 1)]),
        new("nodes-leader-cut-off", "F2 F3", 6, 3, ClusterConditions.Any, [(ClusterFault.CutOff, 6), (ClusterFault.Pause, 3), (ClusterFault.Transfer, 1)]),
        new("nodes-callers-cut-off", "F3", 4, 3, ClusterConditions.Pinned, [(ClusterFault.CutOff, 6), (ClusterFault.Transfer, 3), (ClusterFault.Crash, 1)]),
        new("nodes-coordinator-trouble", "F5 F6 F8-F10 F13", 4, 3, ClusterConditions.BadCoordinator,
            [(ClusterFault.CutOffCoordinator, 6),
                (ClusterFault.CoordinatorAway, 4), (ClusterFault.Crash, 4), (ClusterFault.CutOff, 2), (ClusterFault.Transfer, 1)]),
        new("nodes-coordinator-restored", "F11 F41", 4, 3, ClusterConditions.Any,
            [(ClusterFault.RestoreCoordinator, 12),
                (ClusterFault.RestoreCoordinatorRaised, 6), (ClusterFault.Crash, 3), (ClusterFault.CutOff, 2), (ClusterFault.Transfer, 3)]),
        new("nodes-bad-network", "F4 F7", 4, 3, ClusterConditions.BadNetwork, [(ClusterFault.CutOff, 4), (ClusterFault.Crash, 3), (ClusterFault.Transfer, 2)]),
        new("nodes-failovers", "F14", 4, 3, ClusterConditions.Any, [(ClusterFault.CutOffAndCrash, 8), (ClusterFault.Crash, 1)]),
        new(
            "nodes-power-lost", "F15", 3, 3, ClusterConditions.Any,
            [(ClusterFault.LosePower, 4), (ClusterFault.Crash, 4), (ClusterFault.CrashInCall, 4), (ClusterFault.Checkpoint, 4)]),
        new("nodes-crash-in-calls", "F15 F16", 4, 3, ClusterConditions.Any,
            [(ClusterFault.CrashInCall, 10),
                (ClusterFault.Checkpoint, 5), (ClusterFault.Transfer, 1), (ClusterFault.CutOff, 2), (ClusterFault.DamageSpare, 3)]),
        new("nodes-large", "F4 F15 F20", 1, 3, ClusterConditions.Large,
            [(ClusterFault.Crash, 4), (ClusterFault.CutOff, 3), (ClusterFault.CrashInCall, 2), (ClusterFault.Transfer, 2), (ClusterFault.Checkpoint, 2)]),
        new("nodes-damaged", "F16", 4, 3, ClusterConditions.Any, [(ClusterFault.Damage, 4), (ClusterFault.Checkpoint, 4), (ClusterFault.Crash, 3)]),
        new("nodes-disk-fails", "F17", 3, 3, ClusterConditions.Any, [(ClusterFault.FailDisk, 6), (ClusterFault.Crash, 1), (ClusterFault.Checkpoint, 3)]),
        new("nodes-disk-full", "F18", 3, 3, ClusterConditions.Any,
            [(ClusterFault.FillDisk, 6), (ClusterFault.Crash, 2), (ClusterFault.CutOff, 1), (ClusterFault.Checkpoint, 1)]),
        new("nodes-slow-disk", "F4 F19", 3, 3, ClusterConditions.Any, [(ClusterFault.SlowDisk, 6), (ClusterFault.Crash, 1), (ClusterFault.Transfer, 1)]),
        new("nodes-behind-retention", "F20", 4, 3, ClusterConditions.BadNetwork,
            [(ClusterFault.Checkpoint, 8), (ClusterFault.Crash, 4), (ClusterFault.CutOff, 3), (ClusterFault.LosePower, 1)]),
        new("nodes-clocks", "F21", 4, 3, ClusterConditions.Drifting,
            [(ClusterFault.JumpClock, 4), (ClusterFault.CutOff, 6), (ClusterFault.Pause, 2), (ClusterFault.Crash, 1)]),
        new("nodes-exactly-once", "F22", 5, 3, ClusterConditions.BadCalls,
            [(ClusterFault.Crash, 6),
                (ClusterFault.CutOff, 4), (ClusterFault.Transfer, 4), (ClusterFault.Pause, 2), (ClusterFault.LosePower, 1), (ClusterFault.Checkpoint, 2)]),
        new("nodes-follower-reads", "F1 F4 F25", 4, 3, ClusterConditions.Prompt,
            [(ClusterFault.Crash, 3), (ClusterFault.Transfer, 4), (ClusterFault.SlowDisk, 2), (ClusterFault.Checkpoint, 1)]),
        new("nodes-transfer", "F19 F25", 3, 3, ClusterConditions.Any, [(ClusterFault.Transfer, 8), (ClusterFault.Crash, 1), (ClusterFault.CutOff, 1)]),
        new("nodes-replaced", "F13 F25 F29", 4, 4, ClusterConditions.Any,
            [(ClusterFault.Replace, 5), (ClusterFault.LoseDisk, 3),
                (ClusterFault.RestoreDisk, 5), (ClusterFault.Crash, 3), (ClusterFault.Transfer, 2), (ClusterFault.CutOff, 1), (ClusterFault.Checkpoint, 2)]),
        .. SnapshotScenarios.All,
        .. MembershipScenarios.All,
        .. ClockScenarios.All,
        .. LifeScenarios.All,
        .. DiskScenarios.All,
    ];
}
