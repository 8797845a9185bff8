namespace KvCluster.Simulation.Protocol;

/// <summary>
/// Leaders whose last records reached nobody, one after the other, and then the first tail coming back: a leader is cut off with a tail of its own, its
/// successor dies when it has just opened its epoch, the first returns and leads again, and dies while its old tail spreads. Only one that
/// counts the old tail as committed loses something when the second returns.
/// </summary>
internal sealed class FailoverInFailover : Adversary
{
    private int _act;
    private SimulatedReplica? _first;
    private SimulatedReplica? _second;

    public override void On(SimulationRun run, SimulatedReplica replica, Moment moment)
    {
        switch (_act)
        {
            case 0 when moment == Moment.ServingStarted:
                // It writes for a while what nobody gets, and goes down with it.
                _act = 1;
                _first = replica;
                run.After(run.Random.NextInt64(50_000, 400_000), () =>
                {
                    run.CutOutwards(replica);
                    run.After(run.Random.NextInt64(20_000, 200_000), () => run.Down(replica));
                });
                break;
            case 1 when moment == Moment.LeadingStarted && replica != _first:
                _act = 2;
                _second = replica;
                run.CutOutwards(replica);
                run.After(run.Random.NextInt64(run.Conditions.SyncUs, 2 * run.Conditions.SyncUs), () =>
                {
                    run.Down(replica);
                    run.Network.Heal();
                    run.Up(_first!);
                });
                break;
            case 2 when moment == Moment.LeadingStarted:
                // The old tail is on its way, the new epoch's first record behind it.
                _act = 3;
                run.After(run.Random.NextInt64(run.Conditions.SyncUs / 4, 2 * run.Conditions.SyncUs), () =>
                {
                    run.Down(replica);
                    run.Up(_second!);
                    run.Up(_first!, except: replica);
                });
                break;
            case 3 when moment == Moment.ServingStarted:
                _act = 0;
                run.UpAll();
                break;
        }
    }
}
