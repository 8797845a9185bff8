namespace KvCluster.Simulation.Protocol;

/// <summary>
/// A leader sends the transaction that changes its voters, and then reaches only the new replica. Whatever becomes of the transaction, the old voters
/// must not lose what it acknowledges.
/// </summary>
internal sealed class VotersHalfChanged : Adversary
{
    public override void On(SimulationRun run, SimulatedReplica replica, Moment moment)
    {
        if (moment != Moment.TransactionSent || !replica.Leads || !run.Chance(600))
            return;
        var voters = run.Coordinator.Record.Replicas.Where(member => !member.Learner && member.ReplicaId != replica.Id)
            .Select(member => (int)member.Node).ToArray();
        run.Trace($"node {replica.Node} changes its voters and reaches none of the old ones");
        foreach (var voter in voters)
            run.Network.CutLink(replica.Node, voter);
        run.After(run.Random.NextInt64(1_500_000, 2_500_000), run.Network.Heal);
    }
}
