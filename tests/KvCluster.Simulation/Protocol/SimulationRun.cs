using System.Text;
using KvCluster.Replication;
using KvCluster.V1;

namespace KvCluster.Simulation.Protocol;

/// <summary>
/// One run of one shard's replicas from one seed, on one thread: virtual time, faults, clients, and the checks. The same seed gives the same run, event
/// by event.
/// </summary>
internal sealed class SimulationRun
{
    private const int ClientCount = 3;
    private const int TraceLinesMax = 400;
    private const long HealWithinUs = 30_000_000;
    private const int VotersMax = 5;
    private const int NodesMax = 12;

    private readonly PriorityQueue<Action, (long DueUs, long Order)> _due = new();
    private readonly Queue<string> _trace = new();
    private readonly HashSet<string> _alarms = [];
    private long _order;
    private long _writeIdLast;
    private readonly List<SimulatedReplica> _replicas;

    public SimulationRun(int seed, PlantedBug bug = PlantedBug.None)
    {
        Seed = seed;
        Random = new Random(seed);
        Scenario = SimulationScenario.Of(Random);
        Options = new ReplicationOptions { LeaseUs = Scenario.Leases ? 500_000 : 0, PlantedBug = bug, SnapshotChunkBytes = 64, SnapshotWindowBytes = 256, FrameBytes = 400, WindowBytes = 2_000 };
        Network = new SimulatedNetwork(this);
        var record = new ShardRecord { Shard = 0, Generation = 1 };
        for (var node = 1; node <= Scenario.Replicas; node++)
            record.Replicas.Add(new ReplicaRecord { Replica = (ulong)node * 11, Node = (uint)node, Created = true });
        Coordinator = new SimulatedCoordinator(this, record);
        _replicas = record.Replicas.Select(replica => new SimulatedReplica(this, (int)replica.Node, replica.Replica)).ToList();
    }

    public int Seed { get; }

    public Random Random { get; }

    public SimulationScenario Scenario { get; }

    public ReplicationOptions Options { get; }

    public SimulatedNetwork Network { get; }

    public SimulatedCoordinator Coordinator { get; }

    /// <summary>All that ever were, each on a node of its own: those that were removed may still run and speak.</summary>
    public IReadOnlyList<SimulatedReplica> Replicas => _replicas;

    public HistoryChecker Checker { get; } = new();

    public long NowUs { get; private set; } = 1;

    /// <summary>Faults are over; what is under way may still be late.</summary>
    public bool Healed { get; private set; }

    /// <summary>The node that was last heard to lead.</summary>
    public int LeaderHint { get; set; } = 1;

    public int SnapshotsInstalled { get; set; }

    public int LeadershipsHandedOver { get; set; }

    public int ReplicasChanged { get; set; }

    public int FollowerReadsAnswered { get; set; }

    public long NextWriteId() => ++_writeIdLast;

    public bool Chance(int permille) => Random.Next(1000) < permille;

    public void After(long delayUs, Action action) => _due.Enqueue(action, (NowUs + delayUs, _order++));

    public void Trace(string text)
    {
        _trace.Enqueue($"{NowUs / 1000.0,10:F3} {text}");
        if (_trace.Count > TraceLinesMax)
            _trace.Dequeue();
    }

    public void OnAlarm(SimulatedReplica replica, string text)
    {
        Trace($"node {replica.Node} ALARM {text}");
        _alarms.Add(text);
    }

    /// <summary>Something fails with the scenario's chance right at a decision of the protocol: within the next three milliseconds.</summary>
    public void Narrow(SimulatedReplica replica, bool decisive)
    {
        if (!decisive || Healed || !Chance(Scenario.NarrowPermille))
            return;
        After(Random.NextInt64(3_000), () =>
        {
            if (!Healed)
                Fault(replica);
        });
    }

    /// <summary>Runs the whole scenario.</summary>
    /// <exception cref="SimulationFailedException">A violation, a broken invariant, or no agreement after healing; the message replays it.</exception>
    public void Run()
    {
        try
        {
            foreach (var replica in Replicas)
                After(Random.NextInt64(200_000), replica.Start);
            for (var i = 0; i < ClientCount; i++)
                new SimulatedClient(this).Start();
            After(Random.NextInt64(Scenario.FaultEveryUs), NextFault);
            RunUntil(Scenario.DurationUs, () => false);
            Heal();
            RunUntil(NowUs + HealWithinUs, Agree);
            Violation.Unless(Agree(), $"no agreement {HealWithinUs / 1_000_000} s after healing: {string.Join("; ", Replicas.Select(replica => replica.State))}");
            Violation.Unless(_alarms.Count == 0, $"alarms: {string.Join("; ", _alarms)}");
        }
        catch (Exception first) when (first is Violation or InvariantException)
        {
            throw new SimulationFailedException($"KV_SEED={Seed} replays this: {first.Message}\n{Describe()}", first);
        }
    }

    /// <summary>Nodes make the directories of the replicas that the record gives them.</summary>
    public void CreateReplicas()
    {
        foreach (var added in Coordinator.Record.Replicas.Where(replica => !replica.Created && replica.Node > _replicas.Count).ToList())
        {
            var replica = new SimulatedReplica(this, (int)added.Node, added.Replica);
            _replicas.Add(replica);
            replica.Start();
            After(Random.NextInt64(100_000), () => Coordinator.MarkCreated(added.Replica));
        }
    }

    private IEnumerable<SimulatedReplica> Members =>
        _replicas.Where(replica => Coordinator.Record.Replicas.Any(member => member.Replica == replica.Id));

    private void RunUntil(long endUs, Func<bool> done)
    {
        var checkUs = NowUs;
        while (_due.TryPeek(out _, out var next) && next.DueUs <= endUs)
        {
            NowUs = next.DueUs;
            _due.Dequeue()();
            if (NowUs < checkUs)
                continue;
            checkUs = NowUs + 50_000;
            if (done())
                return;
        }
    }

    private bool Agree()
    {
        var first = Members.First();
        return Members.All(replica => replica.Up)
            && Members.Count(replica => replica.Leads) == 1
            && Members.All(replica => replica.Published == Checker.Last && replica.SameStateAs(first));
    }

    private void NextFault()
    {
        if (Healed)
            return;
        var leader = Replicas.FirstOrDefault(replica => replica.Leads);
        Fault(leader is not null && Random.Next(2) == 0 ? leader : Replicas[Random.Next(Replicas.Count)]);
        After(Random.NextInt64(Scenario.FaultEveryUs / 4, Scenario.FaultEveryUs * 2), NextFault);
    }

    private void Fault(SimulatedReplica replica)
    {
        if (Chance(Scenario.ReplicaChangePermille))
        {
            ChangeReplicas(replica);
            return;
        }

        switch (Random.Next(100))
        {
            case < 35:
                Restart(replica, Random.Next(3) == 0 ? Random.NextInt64(4_000_000) : Random.NextInt64(300_000));
                break;
            case < 45:
                replica.Pause(Random.NextInt64(2_500_000));
                break;
            case < 60:
                Isolate(replica, Random.NextInt64(3_000_000));
                break;
            case < 70:
                // One direction of one link.
                Trace($"a link from node {replica.Node} is cut");
                Network.Cut(replica.Node, Random.Next(Replicas.Count) + 1);
                After(Random.NextInt64(3_000_000), Network.Heal);
                break;
            case < 77:
                Trace($"node {replica.Node} is cut off from the coordinator");
                Coordinator.CutOff(replica.Node);
                After(Random.NextInt64(3_000_000), Coordinator.Heal);
                break;
            case < 80:
                Trace("the coordinator is away");
                foreach (var other in Replicas)
                    Coordinator.CutOff(other.Node);
                After(Random.NextInt64(4_000_000), Coordinator.Heal);
                break;
            case < 85:
                Trace("power is lost");
                foreach (var other in Replicas)
                    Restart(other, Random.NextInt64(1_000_000));
                break;
            case < 90:
                Trace($"node {replica.Node} has a slow disk");
                replica.SyncUs = Scenario.SyncUs * 20;
                After(Random.NextInt64(2_000_000), () => replica.SyncUs = Scenario.SyncUs);
                break;
            case < 94:
                Trace($"node {replica.Node} is asked to hand over");
                replica.Transfer(Random.Next(2) == 0 ? 0 : Replicas[Random.Next(Replicas.Count)].Id);
                break;
            case < 98:
                ChangeReplicas(replica);
                break;
            default:
                replica.Checkpoint();
                break;
        }
    }

    private void ChangeReplicas(SimulatedReplica leader)
    {
        var members = Coordinator.Record.Replicas;
        var learner = members.FirstOrDefault(replica => replica.Learner);
        var other = members[Random.Next(members.Count)].Replica;
        ReplicaChange change = learner is not null
            ? Random.Next(8) switch
            {
                0 => new ReplicaChange.Remove(learner.Replica),
                < 3 when members.Count <= VotersMax => new ReplicaChange.Promote(learner.Replica),
                _ => new ReplicaChange.Swap(other, learner.Replica),
            }
            : members.Count > 3 && Random.Next(2) == 0
                ? new ReplicaChange.Remove(other)
                : new ReplicaChange.AddLearner((ulong)(_replicas.Count + 1) * 11, (uint)_replicas.Count + 1);
        if (change is ReplicaChange.AddLearner && _replicas.Count == NodesMax)
            return;
        Trace($"node {leader.Node} is asked for {change}");
        leader.Change(change);
        // A learner that was added is soon made a voter.
        if (change is ReplicaChange.AddLearner)
        {
            After(Random.NextInt64(100_000, 1_500_000), () =>
            {
                if (!Healed && Replicas.FirstOrDefault(replica => replica.Leads) is { } leading)
                    ChangeReplicas(leading);
            });
        }
    }

    private void Restart(SimulatedReplica replica, long afterUs)
    {
        if (!replica.Up)
            return;
        replica.Crash();
        After(afterUs, () =>
        {
            if (!replica.Up)
                replica.Start();
        });
    }

    private void Isolate(SimulatedReplica replica, long forUs)
    {
        Trace($"node {replica.Node} is isolated for {forUs / 1000} ms");
        var inwards = Random.Next(4) != 0;
        var outwards = !inwards || Random.Next(4) != 0;
        foreach (var other in Replicas.Where(other => other != replica))
        {
            if (inwards)
                Network.Cut(other.Node, replica.Node);
            if (outwards)
                Network.Cut(replica.Node, other.Node);
        }

        After(forUs, Network.Heal);
    }

    private void Heal()
    {
        Trace("all is healed");
        Healed = true;
        Network.Heal();
        Coordinator.Heal();
        foreach (var replica in Replicas)
        {
            replica.SyncUs = Scenario.SyncUs;
            if (!replica.Up)
                replica.Start();
        }
    }

    private string Describe()
    {
        var text = new StringBuilder();
        foreach (var line in _trace)
            text.AppendLine(line);
        foreach (var replica in Replicas)
            text.AppendLine($"node {replica.Node}: {replica.State}");
        return text.ToString();
    }
}
