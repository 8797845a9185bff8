namespace KvCluster.Simulation.Protocol;

/// <summary>
/// A leader's change of its voters is in the record, and neither the leader nor the replica that left hears of it; the leader reaches that one alone, and the others elect the next
/// leader by the record as it is. What the two acknowledge by the old record, nobody else has.
/// </summary>
internal sealed class VotersChangedUnheard : Adversary
{
    private const long RecordedWithinUs = 50_000;

    public override void On(SimulationRun run, SimulatedReplica replica, Moment moment)
    {
        if (moment != Moment.TransactionSent || !replica.Leads)
            return;
        var before = Voters(run);
        // Who is to leave shows when the record is changed: none of them hears of that.
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
        run.Trace($"node {leader.Node} leads, reaches node {left[0]} alone, and neither knows that this one has left");
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

    private static int[] Voters(SimulationRun run) => [.. run.Coordinator.Record.Replicas.Where(static member => !member.Learner).Select(static member => (int)member.Node)];
}
