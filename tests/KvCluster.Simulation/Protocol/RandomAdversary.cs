namespace KvCluster.Simulation.Protocol;

/// <summary>Any fault, within three milliseconds of any decision, with the chance that the conditions give.</summary>
internal sealed class RandomAdversary : Adversary
{
    public override void On(SimulationRun run, SimulatedReplica replica, Moment moment)
    {
        if (run.Chance(run.Conditions.NarrowPermille))
            run.After(run.Random.NextInt64(3_000), () => run.FailSomething(replica));
    }
}
