namespace KvCluster.Simulation.Protocol;

/// <summary>
/// One follower does not get the newest records. The other acknowledges them and then loses them with the end of its journal, and the leader dies.
/// The remaining two are a majority that lacks committed records, and must not elect anybody.
/// </summary>
internal sealed class TailLostInMinority : Adversary
{
    public override void Begin(SimulationRun run) => run.After(run.Random.NextInt64(500_000, 1_500_000), () => Act(run));

    public override void On(SimulationRun run, SimulatedReplica replica, Moment moment)
    {
    }

    private static void Act(SimulationRun run)
    {
        if (run.Healed || run.Replicas.FirstOrDefault(replica => replica.Leads) is not { } leader)
            return;
        var behind = run.Replicas[leader.Node % run.Replicas.Count];
        var loses = run.Replicas[behind.Node % run.Replicas.Count];
        run.Trace($"node {behind.Node} falls behind");
        run.Network.CutLink(behind.Node, leader.Node);
        run.Network.CutLink(behind.Node, loses.Node);
        // Long enough for the other one's control file to record what it acknowledged.
        run.After(run.Random.NextInt64(1_500_000, 2_500_000), () =>
        {
            if (run.Healed || !loses.Up || !loses.IsWhole || !leader.Leads)
                return;
            run.Down(leader);
            run.Down(loses);
            loses.LoseTail();
            run.Network.Heal();
            run.Up(loses);
            run.After(run.Random.NextInt64(2_500_000, 4_000_000), () => run.Up(leader));
        });
    }
}
