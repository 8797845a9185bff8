namespace KvCluster.Simulation.Protocol;

/// <summary>
/// A follower cuts its tail for one leader, slowly, and the next leader lacks the record that it cuts back to. There are five voters. The first
/// leader's last records reach only one follower, which leads next and appends a tail of its own. A third replica has those records but never on its
/// disk; it has that tail cut, and dies. The other voters elect a fourth replica without the records. The follower hears it, but it does not hear the
/// follower.
/// </summary>
internal sealed class CutOvertaken : Adversary
{
    private const long SlowSyncUs = 6_000_000;

    private Act _act = Act.FirstLeads;
    private long _plotId;
    private SimulatedReplica? _first;
    private SimulatedReplica? _follower;
    private SimulatedReplica? _third;

    private enum Act
    {
        FirstLeads,
        FollowerStands,
        ThirdStands,
        Cutting,
        Overtaken,
    }

    public override void On(SimulationRun run, SimulatedReplica replica, Moment moment)
    {
        switch (_act)
        {
            case Act.FirstLeads when moment == Moment.ServingStarted:
                // Callers find the first leader after a while.
                run.After(run.Random.NextInt64(600_000, 1_000_000), () => Begin(run, replica));
                break;
            case Act.FollowerStands when moment == Moment.LeadingStarted && replica == _follower:
                LetFirstReturn(run);
                break;
            // Records that it appends now are lost when it dies.
            case Act.ThirdStands when moment == Moment.TailAsked && replica != _first && replica != _follower:
                replica.SyncUs = SlowSyncUs;
                break;
            case Act.ThirdStands when moment == Moment.LeadingStarted && replica != _first && replica != _follower:
                LetThirdCut(run, replica);
                break;
            // Before a cut it lowers its acknowledged etag. That write is in progress.
            case Act.Cutting when moment == Moment.ControlWriting && replica == _follower:
                replica.SyncUs = SlowSyncUs;
                break;
            case Act.Cutting when moment == Moment.CutBegun && replica == _follower:
                Overtake(run);
                break;
        }
    }

    private IEnumerable<SimulatedReplica> Others(SimulationRun run) => run.Replicas.Where(replica => replica != _first && replica != _follower);

    private void Begin(SimulationRun run, SimulatedReplica leader)
    {
        if (_act != Act.FirstLeads || run.Healed || !leader.Leads)
            return;
        (_act, _first, _follower) = (Act.FollowerStands, leader, run.Replicas[leader.Node % run.Replicas.Count]);
        var plot = ++_plotId;
        run.After(8_000_000, () => End(run, plot));
        run.Trace($"node {leader.Node} reaches node {_follower.Node} alone");
        foreach (var other in Others(run))
            run.Network.CutLink(leader.Node, other.Node);
        run.After(run.Random.NextInt64(50_000, 200_000), () =>
        {
            run.Down(leader);
            // So that nobody else can campaign.
            foreach (var one in Others(run))
            {
                foreach (var other in Others(run).Where(other => other != one))
                    run.Network.CutLink(one.Node, other.Node);
            }
        });
    }

    private void LetFirstReturn(SimulationRun run)
    {
        _act = Act.ThirdStands;
        run.CutOutwards(_follower!);
        run.After(2 * run.Conditions.SyncUs, () =>
        {
            if (run.Healed)
                return;
            run.Network.Heal();
            run.CutOutwards(_follower!);
            // The remaining two need the first one.
            var away = Others(run).Last();
            foreach (var other in run.Replicas.Where(other => other != away))
                run.Network.CutLink(away.Node, other.Node);
            // By then the others have begun to campaign, and it has not.
            run.After(run.Random.NextInt64(500_000, 900_000), () => run.Up(_first!));
        });
    }

    private void LetThirdCut(SimulationRun run, SimulatedReplica third)
    {
        (_act, _third) = (Act.Cutting, third);
        run.CutOutwards(third);
        run.Network.HealLink(third.Node, _follower!.Node);
    }

    private void Overtake(SimulationRun run)
    {
        _act = Act.Overtaken;
        _follower!.SyncUs = run.Conditions.SyncUs;
        run.After(1, () =>
        {
            if (run.Healed)
                return;
            run.Down(_third!);
            run.Down(_first!);
            _third!.SyncUs = run.Conditions.SyncUs;
            run.Network.Heal();
            run.CutOutwards(_follower);
            run.Up(_third);
        });
    }

    // Ends the plot at any stage.
    private void End(SimulationRun run, long plot)
    {
        if (plot != _plotId || run.Healed)
            return;
        _act = Act.FirstLeads;
        foreach (var replica in run.Replicas)
            replica.SyncUs = run.Conditions.SyncUs;
        run.Network.Heal();
        run.UpAll();
    }
}
