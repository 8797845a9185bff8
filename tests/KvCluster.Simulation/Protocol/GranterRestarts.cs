namespace KvCluster.Simulation.Protocol;

/// <summary>
/// Replicas that gave grants and promises restart quickly in the middle of an election, and the old leader reaches them again for a moment. Their
/// promises must be on disk, and their grants must still bind them.
/// </summary>
internal sealed class GranterRestarts : Adversary
{
    private long _quietUntilUs;

    public override void On(SimulationRun run, SimulatedReplica replica, Moment moment)
    {
        if (run.NowUs < _quietUntilUs)
            return;
        switch (moment)
        {
            case Moment.PrepareSent when run.Chance(700):
                _quietUntilUs = run.NowUs + 100_000;
                foreach (var other in run.Replicas.Where(other => other != replica && !other.Leads))
                    run.After(run.Random.NextInt64(3_000), () => run.Restart(other, run.Random.NextInt64(2_000)));
                break;
            case Moment.PromiseWriting when !replica.Stands && run.Chance(700):
                _quietUntilUs = run.NowUs + 100_000;
                // The old leader hears the replica again; the candidate does not hear the old leader.
                foreach (var leader in run.Replicas.Where(other => other.Leads))
                    run.Network.HealLink(leader.Node, replica.Node);
                run.After(run.Random.NextInt64(run.Conditions.SyncUs), () => run.Restart(replica, run.Random.NextInt64(2_000)));
                break;
        }
    }
}
