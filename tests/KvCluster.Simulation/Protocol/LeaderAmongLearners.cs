namespace KvCluster.Simulation.Protocol;

/// <summary>
/// A leader reaches all learners and none of the other voters. The learners' acknowledgements commit nothing, and the voters elect another leader
/// without those records.
/// </summary>
internal sealed class LeaderAmongLearners : Adversary
{
    public override void On(SimulationRun run, SimulatedReplica replica, Moment moment)
    {
        if (moment != Moment.ServingStarted || !run.Chance(700))
            return;
        run.After(run.Random.NextInt64(100_000, 500_000), () =>
        {
            if (run.Healed || !replica.Leads)
                return;
            run.Trace($"node {replica.Node} leads and hears only learners");
            foreach (var voter in run.Coordinator.Record.Replicas.Where(member => !member.Learner && member.ReplicaId != replica.Id))
                run.Network.CutLink(replica.Node, (int)voter.Node);
            run.After(run.Random.NextInt64(1_500_000, 2_500_000), run.Network.Heal);
        });
    }
}
