namespace KvCluster.Simulation.Protocol;

/// <summary>
/// In the middle of an election the leader that was cut off reaches a voter again, and the candidate does not: either when the voter is asked, whose grant to the old
/// leader still runs and who goes on acknowledging, or when it has just promised, and then it restarts before it has done anything else.
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
                run.Trace($"node {old.Node} reaches the others again, node {replica.Node} stands");
                foreach (var other in run.Replicas.Where(other => other != replica && other != old))
                    run.Network.HealLink(old.Node, other.Node);
                run.After(run.Random.NextInt64(1_000_000, 2_000_000), run.Network.Heal);
                break;
            case Moment.PreparedSent when run.Chance(700):
                _quietUntilUs = run.NowUs + 500_000;
                run.Trace($"node {replica.Node} has promised; node {old.Node} reaches it again, and nobody else does");
                foreach (var other in run.Replicas.Where(other => other != replica && other != old))
                    run.Network.Cut(other.Node, replica.Node);
                run.Network.HealLink(old.Node, replica.Node);
                run.Restart(replica, run.Random.NextInt64(1_000));
                run.After(run.Random.NextInt64(100_000, 800_000), run.Network.Heal);
                break;
        }
    }
}
