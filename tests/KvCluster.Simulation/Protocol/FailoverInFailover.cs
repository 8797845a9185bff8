namespace KvCluster.Simulation.Protocol;

/// <summary>
/// Leaders whose last records reached nobody follow each other, and then the first tail returns. A leader is cut off with a tail of its own. Its
/// successor dies when it has just opened its epoch. The first leader returns and leads again, and dies with all others when its old tail has just
/// been acknowledged. If it counted the old tail as committed, something is lost when the second leader returns.
/// </summary>
/// <param name="endsAtMatch">It dies as soon as it hears that a follower has the old tail, before that follower can hear of the new epoch's first
/// record.</param>
internal sealed class FailoverInFailover(bool endsAtMatch) : Adversary
{
    private int _act;
    private SimulatedReplica? _first;
    private SimulatedReplica? _second;
    private SimulatedReplica? _third;
    private Etag _oldTail;
    private int _acknowledged;

    public override void On(SimulationRun run, SimulatedReplica replica, Moment moment)
    {
        switch (_act)
        {
            case 0 when moment == Moment.ServingStarted:
                // For a while it writes records that nobody receives, and goes down with them.
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
                    _oldTail = _first!.Durable;
                    run.Up(_first);
                });
                break;
            case 2 when moment == Moment.LeadingStarted:
                _act = 3;
                _third = replica;
                _acknowledged = 0;
                if (run.Chance(100))
                    run.After(run.Random.NextInt64(run.Conditions.SyncUs / 4, 2 * run.Conditions.SyncUs), () => End(run));
                break;
            case 3 when endsAtMatch && moment is Moment.MatchSent or Moment.AckSent:
                if (replica == _third || replica.Durable < _oldTail || replica.Durable.Epoch != _oldTail.Epoch)
                    break;
                run.Network.Cut(_third!.Node, replica.Node);
                // The leader may not have synced the tail itself.
                run.After(run.Random.NextInt64(run.Conditions.DelayUs, 3 * run.Conditions.SyncUs), () => End(run));
                break;
            // The old tail is acknowledged record by record. The new epoch's first record comes last.
            case 3 when moment == Moment.AckSent && replica != _third && ++_acknowledged <= 2 && run.Chance(600):
                run.After(run.Random.NextInt64(run.Conditions.DelayUs, 3 * run.Conditions.DelayUs), () => End(run));
                break;
            case 4 when moment == Moment.ServingStarted:
                _act = 0;
                run.UpAll();
                break;
        }
    }

    // Unsynced records are lost as well.
    private void End(SimulationRun run)
    {
        if (_act != 3)
            return;
        _act = 4;
        run.Network.Heal();
        run.Down(_third!);
        foreach (var other in run.Replicas.Where(other => other != _third))
            run.Restart(other, run.Random.NextInt64(5_000));
        run.Up(_second!);
        run.Up(_first!, except: _third);
        run.After(8_000_000, () =>
        {
            // No other replica can lead without it.
            _act = _act == 4 ? 0 : _act;
            run.UpAll();
        });
    }
}
