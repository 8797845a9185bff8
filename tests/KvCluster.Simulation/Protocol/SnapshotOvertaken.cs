namespace KvCluster.Simulation.Protocol;

/// <summary>
/// A leader's journal does not reach back to a follower, so it gets a snapshot and verifies it for seconds. The leader dies meanwhile. The next
/// leader's journal reaches further back, and it takes the follower beyond what the snapshot covers. The snapshot must then not be installed.
/// </summary>
internal sealed class SnapshotOvertaken : Adversary
{
    private const long VerifiesForUs = 4_000_000;

    private SimulatedReplica? _follower;

    public override void On(SimulationRun run, SimulatedReplica replica, Moment moment)
    {
        switch (moment)
        {
            case Moment.ServingStarted when _follower is null:
                // Callers find the leader after a while.
                run.After(run.Random.NextInt64(300_000, 800_000), () => LeaveBehind(run, replica));
                break;
            case Moment.Verifying when replica == _follower:
                replica.VerifiesForUs = VerifiesForUs;
                run.After(1, () => EndLeader(run));
                break;
        }
    }

    private void LeaveBehind(SimulationRun run, SimulatedReplica leader)
    {
        if (_follower is not null || run.Healed || !leader.Leads)
            return;
        var follower = _follower = run.Replicas[leader.Node % run.Replicas.Count];
        run.Down(follower);
        run.After(run.Random.NextInt64(100_000, 400_000), () =>
        {
            leader.Checkpoint();
            run.Up(follower);
        });
    }

    private static void EndLeader(SimulationRun run)
    {
        if (run.Replicas.FirstOrDefault(static replica => replica.Leads) is not { } leader)
            return;
        run.Down(leader);
        run.After(VerifiesForUs + run.Random.NextInt64(500_000), () => run.Up(leader));
    }
}
