namespace KvCluster.Simulation.Protocol;

/// <summary>Watches what the protocol decides and fails something at the worst time. One per run.</summary>
internal abstract class Adversary
{
    /// <summary>The run begins; what it does by the clock is arranged here.</summary>
    public virtual void Begin(SimulationRun run)
    {
    }

    /// <summary>A replica has decided something. Called while it does: what is to fail is arranged for later.</summary>
    public abstract void On(SimulationRun run, SimulatedReplica replica, Moment moment);
}

/// <summary>Any fault, within three milliseconds of any decision, with the chance that the conditions give.</summary>
internal sealed class RandomAdversary : Adversary
{
    public override void On(SimulationRun run, SimulatedReplica replica, Moment moment)
    {
        if (run.Chance(run.Conditions.NarrowPermille))
            run.After(run.Random.NextInt64(3_000), () => run.FailSomething(replica));
    }
}
