namespace KvCluster.Simulation.Cluster;

/// <summary>A kind of run of whole replicas.</summary>
/// <param name="Name">As given to <c>--scenario</c>.</param>
/// <param name="Faults">What it is about.</param>
/// <param name="Weight">How often the suite runs it.</param>
/// <param name="Mix">What fails from time to time, with weights.</param>
internal sealed record ClusterScenario(string Name, string Faults, int Weight, (ClusterFault Fault, int Weight)[] Mix)
{
    public static IReadOnlyList<ClusterScenario> All { get; } =
    [
        new("nodes-everything", "F1-F4 F15 F20 F21", 8,
        [
            (ClusterFault.Crash, 8), (ClusterFault.LosePower, 2), (ClusterFault.CutOff, 6), (ClusterFault.Pause, 3), (ClusterFault.Checkpoint, 3), (ClusterFault.HandOver, 3),
            (ClusterFault.JumpClock, 1),
        ]),
        new("nodes-leader-cut-off", "F2 F3", 6, [(ClusterFault.CutOff, 6), (ClusterFault.Pause, 3), (ClusterFault.HandOver, 1)]),
        new("nodes-power-lost", "F15", 3, [(ClusterFault.LosePower, 4), (ClusterFault.Crash, 4), (ClusterFault.Checkpoint, 4)]),
        new("nodes-damaged", "F16", 4, [(ClusterFault.Damage, 4), (ClusterFault.Checkpoint, 4), (ClusterFault.Crash, 3)]),
        new("nodes-disk-full", "F18", 3, [(ClusterFault.FillDisk, 6), (ClusterFault.Crash, 2), (ClusterFault.CutOff, 1), (ClusterFault.Checkpoint, 1)]),
        new("nodes-hand-over", "F19 F25", 3, [(ClusterFault.HandOver, 8), (ClusterFault.Crash, 1), (ClusterFault.CutOff, 1)]),
    ];
}
