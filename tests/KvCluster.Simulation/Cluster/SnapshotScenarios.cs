namespace KvCluster.Simulation.Cluster;

/// <summary>
/// Runs in which followers fall behind the leader's journal, while the snapshots sent to them meet damaged pages at the sender, a full disk, slow
/// verification, and the end of either process. The rules of every run then forbid that a healthy node counts as lost, that votes or heartbeats wait,
/// or that the cluster does not agree in the end.
/// </summary>
internal static class SnapshotScenarios
{
    public static IReadOnlyList<ClusterScenario> All { get; } =
    [
        new(
            "nodes-snapshots", "F20 F40", 4, 3,
            static random => ClusterConditions.BadNetwork(random) with { RetainedJournalBytes = 0, SegmentBytesMax = 16 << 10, SyncUs = 1_000 },
        [
            (ClusterFault.FallBehind, 8),
            (ClusterFault.CutOff, 1), (ClusterFault.Crash, 2), (ClusterFault.SlowVerification, 3), (ClusterFault.FillDisk, 2), (ClusterFault.Damage, 1),
        ]),
        new("nodes-snapshots-replaced", "F25 F40", 2, 4, ClusterConditions.Any,
        [
            (ClusterFault.Replace, 5), (ClusterFault.Checkpoint, 6), (ClusterFault.SlowVerification, 4), (ClusterFault.Crash, 2), (ClusterFault.LoseDisk, 1),
        ]),
    ];

    /// <summary>A node is down until its leader's journal no longer reaches back to it. Soon after its return one more fault may happen.</summary>
    public static void FallBehind(ClusterRun run, ClusterNode node)
    {
        node.Crash();
        for (var checkpoint = 1; checkpoint <= 8; checkpoint++)
            run.Time.After(checkpoint * 250_000, () => run.NodeOf(run.LeaderHint).Checkpoint());
        var backUs = run.Random.NextInt64(1_500_000, 2_200_000);
        run.Time.After(backUs, node.Start);
        run.Time.After(backUs + run.Random.NextInt64(200_000), () =>
        {
            if (!run.Healed)
                Hinder(run, node);
        });
    }

    private static void Hinder(ClusterRun run, ClusterNode node)
    {
        switch (run.Random.Next(5))
        {
            case 0:
                run.Trace($"node {node.Id} has no space for a snapshot");
                node.Disk.Fill(leftBytesMax: 1 << 20);
                break;
            case 1:
                node.Disk.SlowVerification(run.Random.NextInt64(500_000, 3_000_000));
                break;
            case 2:
                node.Restart(static () => { });
                break;
            case 3:
                run.NodeOf(run.LeaderHint).Restart(static () => { });
                break;
        }
    }
}
