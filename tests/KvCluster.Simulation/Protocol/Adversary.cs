namespace KvCluster.Simulation.Protocol;

/// <summary>Watches the protocol's decisions and injects a fault at the worst time. One per run.</summary>
internal abstract class Adversary
{
    /// <summary>The run begins. Faults by the clock are scheduled here.</summary>
    public virtual void Begin(SimulationRun run)
    {
    }

    /// <summary>A replica has made a decision. Called during the decision, so faults are scheduled for later.</summary>
    public abstract void On(SimulationRun run, SimulatedReplica replica, Moment moment);
}

/// <summary>Any fault, within three milliseconds of any decision, with the probability that the conditions give.</summary>
internal sealed class RandomAdversary : Adversary
{
    public override void On(SimulationRun run, SimulatedReplica replica, Moment moment)
    {
        if (run.Chance(run.Conditions.NarrowPermille))
            run.After(run.Random.NextInt64(3_000), () => run.FailSomething(replica));
    }
}
