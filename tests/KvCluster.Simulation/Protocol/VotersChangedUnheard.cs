namespace KvCluster.Simulation.Protocol;

/// <summary>
/// A leader's change of its voters is in the record, but neither the leader nor the removed replica hears of it. The leader reaches only that
/// replica, and the others elect the next leader by the current record. Nobody else has what those two acknowledge by the old record.
/// </summary>
internal sealed class VotersChangedUnheard : Adversary
{
    private const long RecordedWithinUs = 50_000;

    public override void On(SimulationRun run, SimulatedReplica replica, Moment moment)
    {
        if (moment != Moment.TransactionSent || !replica.Leads)
            return;
        var before = Voters(run);
        // The change of the record shows which replica leaves. None of them hears of it.
        foreach (var voter in before)
            run.Coordinator.CutOff(voter);
        run.After(RecordedWithinUs, () => Part(run, replica, before));
    }

    private static void Part(SimulationRun run, SimulatedReplica leader, IReadOnlyList<int> before)
    {
        if (run.Healed)
            return;
        run.Coordinator.Heal();
        int[] left = [.. before.Except(Voters(run))];
        if (left.Length == 0 || left.Contains(leader.Node) || !leader.Leads)
            return;
        run.Trace($"node {leader.Node} leads and reaches only node {left[0]}, and neither knows that this one was removed");
        run.Coordinator.CutOff(leader.Node);
        run.Coordinator.CutOff(left[0]);
        foreach (var other in run.Replicas.Where(other => other != leader && other.Node != left[0]))
        {
            run.Network.CutLink(leader.Node, other.Node);
            run.Network.CutLink(left[0], other.Node);
        }

        run.After(run.Random.NextInt64(2_000_000, 3_500_000), () =>
        {
            run.Network.Heal();
            run.Coordinator.Heal();
        });
    }

    private static int[] Voters(SimulationRun run) =>
        [.. run.Coordinator.Record.Replicas.Where(static member => !member.Learner).Select(static member => (int)member.Node)];
}
