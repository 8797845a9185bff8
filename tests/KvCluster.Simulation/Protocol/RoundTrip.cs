namespace KvCluster.Simulation.Protocol;

/// <summary>
/// A leadership moves to another replica and back to the same process, which is then cut off. Late messages to it from its first epoch must not count
/// in the second.
/// </summary>
internal sealed class RoundTrip : Adversary
{
    private SimulatedReplica? _home;

    public override void On(SimulationRun run, SimulatedReplica replica, Moment moment)
    {
        if (moment != Moment.ServingStarted)
            return;
        if (_home is null)
        {
            _home = replica;
            run.After(run.Random.NextInt64(600_000, 1_500_000), () => replica.Transfer(ReplicaId.None));
        }
        else if (replica != _home)
        {
            var home = _home;
            run.After(run.Random.NextInt64(20_000, 100_000), () => replica.Transfer(home.Id));
            // If the leadership never returns, another replica is chosen.
            run.After(3_000_000, () => _home = _home == home ? null : _home);
        }
        else
        {
            _home = null;
            run.After(run.Random.NextInt64(200_000), () =>
            {
                if (run.Healed)
                    return;
                run.Trace($"node {replica.Node} leads again and is cut off");
                foreach (var other in run.Replicas.Where(other => other != replica))
                    run.Network.CutLink(replica.Node, other.Node);
                run.After(2_000_000, run.Network.Heal);
            });
        }
    }
}
