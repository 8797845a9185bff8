namespace KvCluster.Simulation.Protocol;

/// <summary>
/// A kind of run of the protocol's core. Most have a calm network and one kind of fault, because combined faults keep the cluster from reaching the
/// narrow windows in which bugs occur.
/// </summary>
/// <param name="Name">As given to <c>--scenario</c>.</param>
/// <param name="Faults">The faults that it tests.</param>
/// <param name="Weight">How often the suite runs it. 0 means only by name, for the bug that it was made for, and on some seeds of correct
/// code.</param>
/// <param name="Draw">Draws the run's conditions.</param>
/// <param name="Mix">The faults injected from time to time, with weights. If empty, only <paramref name="Adversary"/> injects faults.</param>
/// <param name="Adversary">Watches the protocol's decisions and injects faults at them.</param>
internal sealed record ProtocolScenario(
    string Name, string Faults, int Weight, Func<Random, Conditions> Draw, (Fault Fault, int Weight)[] Mix, Func<Adversary> Adversary)
{
    private static readonly (Fault, int)[] Everything =
    [
        (Fault.Restart, 35), (Fault.Pause, 10), (Fault.Isolate, 15), (Fault.CutLink, 8), (Fault.Partition, 4), (Fault.CutOffCoordinator, 7),
        (Fault.CoordinatorAway, 3),
        (Fault.LosePower, 5), (Fault.SlowDisk, 5), (Fault.Transfer, 5), (Fault.Checkpoint, 3), (Fault.LoseTail, 3), (Fault.ChangeReplicas, 4),
    ];

    public static IReadOnlyList<ProtocolScenario> All { get; } =
    [
        new("everything", "F1-F9 F13-F15 F20 F21", 22, Conditions.Any, Everything, () => new RandomAdversary()),
        new("leader-dies", "F1 F12", 6, Conditions.Any, [(Fault.RestartLeader, 8), (Fault.Restart, 2)], () => new RandomAdversary()),
        new("leader-stops", "F2", 5, Conditions.LongLeases, [(Fault.PauseLeader, 8), (Fault.Restart, 1)], () => new RandomAdversary()),
        new(
            "leader-cut-off", "F3", 6, Conditions.LongLeases, [(Fault.IsolateLeaderInSteps, 6), (Fault.IsolateLeader, 4), (Fault.Partition, 2)],
            () => new RandomAdversary()),
        new(
            "follower-trouble", "F4", 4, Conditions.Any, [(Fault.IsolateFollower, 4), (Fault.RestartFollower, 4), (Fault.SlowFollower, 4)],
            () => new RandomAdversary()),
        new("coordinator-trouble", "F5 F6 F8 F9 F13", 8, Conditions.BadCoordinator,
            [(Fault.CutOffCoordinator, 4), (Fault.CoordinatorAway, 4), (Fault.RestartLeader, 4), (Fault.IsolateLeader, 3), (Fault.Restart, 3)],
            () => new RandomAdversary()),
        new(
            "bad-network", "F7", 5, Conditions.BadNetwork, [(Fault.CutLink, 5), (Fault.Isolate, 2), (Fault.Restart, 2), (Fault.Transfer, 1)],
            () => new RandomAdversary()),
        new("failover-in-failover", "F14", 18, Conditions.SlowDisks, [], () => new FailoverInFailover(endsAtMatch: false)),
        new("old-tail-returns", "F14", 0, Conditions.SlowDisks, [], () => new FailoverInFailover(endsAtMatch: true)),
        new("cut-overtaken", "F4 F14 F15", 0, Conditions.FiveVoters, [], () => new CutOvertaken()),
        new("power-lost", "F15 F16", 5, Conditions.SlowDisks, [(Fault.LosePower, 5), (Fault.Checkpoint, 2), (Fault.Restart, 2)], () => new RandomAdversary()),
        new("tail-lost", "F16 F20 F29", 5, Conditions.Any, [(Fault.LoseTail, 6), (Fault.RestartLeader, 2), (Fault.Restart, 2)], () => new RandomAdversary()),
        new("behind-retention", "F20", 5, Conditions.Any, [(Fault.Checkpoint, 6), (Fault.Restart, 4), (Fault.Isolate, 2)], () => new RandomAdversary()),
        new("clocks-drift", "F21", 5, Conditions.LongLeases, [(Fault.IsolateLeaderInSteps, 6), (Fault.IsolateLeader, 3)], () => new RandomAdversary()),
        new(
            "granter-restarts", "F1 F3 F13", 6, Conditions.LongLeases, [(Fault.IsolateLeaderInSteps, 8), (Fault.IsolateLeader, 2)],
            () => new GranterRestarts()),
        new("transfer", "F19 F25", 6, Conditions.Calm, [(Fault.Transfer, 8), (Fault.Restart, 1)], () => new TransferCut()),
        new("leader-disk-slow", "F19", 0, SlowLeader.Draw, [], () => new SlowLeader()),
        new("learners", "F25", 6, Conditions.WithLearners, [(Fault.Partition, 6), (Fault.Restart, 2), (Fault.IsolateLeader, 2)], () => new RandomAdversary()),
        new("leader-among-learners", "F3 F25", 0, Conditions.WithLearners, [], () => new LeaderAmongLearners()),
        new("grant-outlived", "F1 F3 F21", 10, Conditions.LongLeasesOfThree, [], () => new GrantOutlived()),
        new("old-leader-returns", "F3 F13 F14", 10, Conditions.LongLeasesOfThree, [(Fault.IsolateLeader, 1)], () => new OldLeaderReturns()),
        new("round-trip", "F7 F25", 8, Conditions.LateFrames, [], () => new RoundTrip()),
        new("tail-lost-in-minority", "F1 F16 F29", 6, Conditions.ThreeVoters, [], () => new TailLostInMinority()),
        new("voters-half-changed", "F9 F13 F25", 7, Conditions.AmbiguousChanges, [(Fault.ChangeReplicas, 1)], () => new VotersHalfChanged()),
        new("voters-changed-unheard", "F9 F13 F25", 0, Conditions.AmbiguousChanges, [(Fault.ChangeReplicas, 1)], () => new VotersChangedUnheard()),
        new("snapshot-overtaken", "F1 F20 F40", 0, Conditions.ThreeVoters, [], () => new SnapshotOvertaken()),
        new(
            "replicas-change", "F13 F25", 14, Conditions.Any,
            [(Fault.ChangeReplicas, 10), .. Everything.Select(entry => (entry.Item1, (entry.Item2 + 9) / 10))],
            () => new RandomAdversary()),
    ];
}
