namespace KvCluster.Simulation.Protocol;

/// <summary>
/// The disks of two of three nodes are slow by turns, now for some seconds, now for many, the first leader's among them; the third one's never is. A leader whose
/// disk stays slow hands over within seconds, and a leadership moves only after its leader's disk turned slow: never because a disk is well again.
/// </summary>
internal sealed class SlowLeader : Adversary
{
    /// <summary>Many times what a majority needs, and much less than a second, which was called slow before.</summary>
    private const long SlowSyncUs = 30_000;

    /// <summary>What a leader may take from the slow disk's first write to its last answer: three seconds of watching, a late sample, the hand-over.</summary>
    private const long LeavesWithinUs = 6_000_000;

    private const long LookEveryUs = 50_000;

    private SimulatedReplica[] _ailing = [];
    private SimulatedReplica? _slow;
    private long _leadsSlowSinceUs = -1;
    private int _moves = -1;
    private int _mayMove;

    /// <summary>Three voters, a calm network, and time for some turns; its own test gives it more.</summary>
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
        Violation.Unless(_moves <= _mayMove, Rule.GoesOn, $"node {replica.Node} leads by move {_moves}, after {_mayMove} turns of a leader's disk");
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
            run.Trace($"the disk of node {_slow.Node} turns slow");
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
            Violation.Unless(run.NowUs - _leadsSlowSinceUs < LeavesWithinUs, Rule.GoesOn, $"node {_slow.Node} still leads after {run.NowUs - _leadsSlowSinceUs} us with a slow disk");
        run.After(LookEveryUs, () => Look(run));
    }
}
