namespace KvCluster.Simulation.Protocol;

/// <summary>The leader that has just released its grants hears nothing for a while. It alone must know that it no longer serves.</summary>
internal sealed class TransferCut : Adversary
{
    public override void On(SimulationRun run, SimulatedReplica replica, Moment moment)
    {
        if (moment != Moment.ReleaseSent || !run.Chance(500))
            return;
        foreach (var other in run.Replicas.Where(other => other != replica))
            run.Network.Cut(other.Node, replica.Node);
        run.After(run.Random.NextInt64(100_000, 1_000_000), run.Network.Heal);
    }
}
