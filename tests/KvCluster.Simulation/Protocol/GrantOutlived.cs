namespace KvCluster.Simulation.Protocol;

/// <summary>
/// One follower does not hear the leader while another still grants to it, and then nobody hears it. The granting follower may restart just then. Its
/// grant must keep the first follower from leading until the old leader no longer reads.
/// </summary>
internal sealed class GrantOutlived : Adversary
{
    public override void Begin(SimulationRun run) => run.After(run.Random.NextInt64(500_000, 1_500_000), () => Act(run));

    public override void On(SimulationRun run, SimulatedReplica replica, Moment moment)
    {
    }

    private void Act(SimulationRun run)
    {
        run.After(run.Random.NextInt64(3_500_000, 5_000_000), () => Act(run));
        if (run.Healed || run.Replicas.FirstOrDefault(replica => replica.Leads) is not { } leader)
            return;
        var deaf = run.Replicas[leader.Node % run.Replicas.Count];
        run.Trace($"node {deaf.Node} does not hear node {leader.Node}, which leads");
        run.Network.CutLink(leader.Node, deaf.Node);
        run.After(run.Random.NextInt64(700_000, 2_000_000), () =>
        {
            if (run.Healed)
                return;
            run.Trace($"nobody hears node {leader.Node}");
            foreach (var other in run.Replicas.Where(other => other != leader))
            {
                run.Network.CutLink(leader.Node, other.Node);
                if (other != deaf && run.Chance(600))
                    run.Restart(other, run.Random.NextInt64(2_000));
            }

            run.After(run.Random.NextInt64(1_500_000, 2_000_000), run.Network.Heal);
        });
    }
}
