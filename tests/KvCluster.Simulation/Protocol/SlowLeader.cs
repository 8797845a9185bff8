namespace KvCluster.Simulation.Protocol;

/// <summary>
/// The disks of two of three nodes, including the first leader's, are slow by turns, for some seconds or for many. The third disk is never slow. A
/// leader whose disk stays slow transfers within seconds. A leadership moves only after its leader's disk became slow, never because a disk has
/// recovered.
/// </summary>
internal sealed class SlowLeader : Adversary
{
    /// <summary>Many times what a majority needs, and far below a second, the former limit for a slow disk.</summary>
    private const long SlowSyncUs = 30_000;

    /// <summary>
    /// The maximum time from the slow disk's first write to the leader's last answer: three seconds of watching, a late sample, and the transfer.
    /// </summary>
    private const long LeavesWithinUs = 6_000_000;

    private const long LookEveryUs = 50_000;

    private SimulatedReplica[] _ailing = [];
    private SimulatedReplica? _slow;
    private long _leadsSlowSinceUs = -1;
    private int _moves = -1;
    private int _mayMove;

    /// <summary>Three voters, a calm network, and time for some turns. Its own test gives it more.</summary>
    public static Conditions Draw(Random random) => Conditions.ThreeVoters(random) with { DurationUs = 12_000_000, NarrowPermille = 0, DriftPermille = 0 };

    public override void Begin(SimulationRun run) => run.After(2_000_000, () =>
    {
        var leader = run.Replicas.FirstOrDefault(replica => replica.Leads) ?? run.Replicas[0];
        _ailing = [leader, run.Replicas.First(replica => replica != leader)];
        _moves = 0;
        Turn(run);
        Look(run);
    });

    public override void On(SimulationRun run, SimulatedReplica replica, Moment moment)
    {
        if (moment != Moment.ServingStarted || _moves < 0)
            return;
        _moves++;
        Violation.Unless(_moves <= _mayMove, Rule.GoesOn, $"node {replica.Node} leads after {_moves} moves, but only {_mayMove} leaders' disks became slow");
    }

    private void Turn(SimulationRun run)
    {
        if (run.Healed)
            return;
        if (_slow is not null)
            _slow.SyncUs = run.Conditions.SyncUs;
        _slow = run.Random.Next(3) == 0 ? null : _ailing[run.Random.Next(_ailing.Length)];
        _leadsSlowSinceUs = -1;
        if (_slow is not null)
        {
            run.Trace($"the disk of node {_slow.Node} becomes slow");
            _slow.SyncUs = SlowSyncUs;
            _mayMove += _slow.Leads ? 1 : 0;
        }

        run.After(run.Random.NextInt64(1_000_000, 15_000_000), () => Turn(run));
    }

    private void Look(SimulationRun run)
    {
        if (run.Healed)
            return;
        if (_slow is not { Leads: true })
            _leadsSlowSinceUs = -1;
        else if (_leadsSlowSinceUs < 0)
            _leadsSlowSinceUs = run.NowUs;
        else
            Violation.Unless(run.NowUs - _leadsSlowSinceUs < LeavesWithinUs, Rule.GoesOn, $"node {_slow.Node} still leads after "
                + $"{run.NowUs - _leadsSlowSinceUs} us with a slow disk");
        run.After(LookEveryUs, () => Look(run));
    }
}
