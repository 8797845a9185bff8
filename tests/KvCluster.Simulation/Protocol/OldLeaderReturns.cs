namespace KvCluster.Simulation.Protocol;

/// <summary>
/// In the middle of an election the leader that was cut off reaches a voter again, and the candidate does not. Either this happens when the voter is
/// asked: its grant to the old leader still runs, and it still acknowledges. Or it happens when the voter has just promised, and it restarts before
/// it does anything else.
/// </summary>
internal sealed class OldLeaderReturns : Adversary
{
    private long _quietUntilUs;

    public override void On(SimulationRun run, SimulatedReplica replica, Moment moment)
    {
        if (run.NowUs < _quietUntilUs || run.Replicas.FirstOrDefault(other => other.Leads && other != replica) is not { } old)
            return;
        switch (moment)
        {
            case Moment.PrepareSent when run.Chance(500):
                _quietUntilUs = run.NowUs + 500_000;
                run.Trace($"node {old.Node} reaches the others again, node {replica.Node} campaigns");
                foreach (var other in run.Replicas.Where(other => other != replica && other != old))
                    run.Network.HealLink(old.Node, other.Node);
                run.After(run.Random.NextInt64(1_000_000, 2_000_000), run.Network.Heal);
                break;
            case Moment.PreparedSent when run.Chance(700):
                _quietUntilUs = run.NowUs + 500_000;
                run.Trace($"node {replica.Node} has promised; only node {old.Node} reaches it again");
                foreach (var other in run.Replicas.Where(other => other != replica && other != old))
                    run.Network.Cut(other.Node, replica.Node);
                run.Network.HealLink(old.Node, replica.Node);
                run.Restart(replica, run.Random.NextInt64(1_000));
                run.After(run.Random.NextInt64(100_000, 800_000), run.Network.Heal);
                break;
        }
    }
}
