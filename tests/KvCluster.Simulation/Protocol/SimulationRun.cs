using System.Text;
using KvCluster.Internal.V1;
using KvCluster.Replication.Protocol;

namespace KvCluster.Simulation.Protocol;

/// <summary>
/// One run of one shard's replicas from one seed, on one thread: virtual time, faults, clients, and checks. The same seed gives the same run, event
/// by event.
/// </summary>
internal sealed class SimulationRun : ISimulation
{
    private const int ClientCount = 3;
    private const long HealWithinUs = 30_000_000;
    private const int VotersMax = 5;

    private const int NodesMax = 12;

    private readonly PriorityQueue<Action, (long DueUs, long Order)> _due = new();
    private readonly HashSet<string> _alarms = [];
    private readonly Adversary _adversary;
    private readonly (Fault Fault, int Weight)[] _mix;
    private readonly List<SimulatedReplica> _replicas;
    private long _order;
    private long _writeIdLast;

    public SimulationRun(int seed, ProtocolScenario scenario, InjectedBug bug, bool detailed)
    {
        Bug = bug;
        Random = new Random(seed);
        Transcript = new Transcript(detailed);
        Conditions = scenario.Draw(Random);
        _adversary = scenario.Adversary();
        _mix = scenario.Mix;
        Options = new ReplicationOptions
        {
            LeaseUs = Conditions.LeaseUs,
            SnapshotChunkBytes = 64,
            SnapshotWindowBytes = 256,
            FrameBytes = Conditions.FrameBytes,
            WindowBytes = 2_000,
            QuiescentAfterUs = 100_000,
            QuiescentIntervalUs = Features.Has(seed, Feature.Quiescence) ? 1_500_000 : 0,
            DigestIntervalUs = Features.Has(seed, Feature.Digests) ? 400_000 : 0,
            DigestTimeUs = 1_000_000,
            DigestRepeatUs = 100_000,
            SnapshotPatienceUs = 3_000_000,
            SnapshotRetryUs = 200_000,
            SnapshotRetryMaxUs = 1_000_000,
        };
        if (bug == InjectedBug.DriftIgnored)
            Options = Options with { ClockDriftPermille = 0 };
        Network = new SimulatedNetwork(this);
        var record = new ShardRecord { Shard = 0, Generation = 1 };
        for (var node = 1; node <= Conditions.Voters + Conditions.Learners; node++)
            record.Replicas.Add(new ReplicaRecord { Replica = (ulong)node * 11, Node = (uint)node, Created = true, Learner = node > Conditions.Voters });
        Coordinator = new SimulatedCoordinator(this, record);
        _replicas = record.Replicas.Select(replica => new SimulatedReplica(this, (int)replica.Node, replica.ReplicaId)).ToList();
    }

    public InjectedBug Bug { get; }

    public Random Random { get; }

    public Transcript Transcript { get; }

    public Conditions Conditions { get; }

    public ReplicationOptions Options { get; }

    public SimulatedNetwork Network { get; }

    public SimulatedCoordinator Coordinator { get; }

    /// <summary>All replicas that ever existed, each on its own node. Removed ones may still run and send.</summary>
    public IReadOnlyList<SimulatedReplica> Replicas => _replicas;

    public HistoryChecker Checker { get; } = new();

    public long NowUs { get; private set; } = 1;

    /// <summary>Faults are over. Messages in flight may still be late.</summary>
    public bool Healed { get; private set; }

    /// <summary>The node of the last known leader.</summary>
    public int LeaderHint { get; set; } = 1;

    public int SnapshotsInstalled { get; set; }

    public int LeadershipsTransferred { get; set; }

    public int ReplicasChanged { get; set; }

    public int FollowerReadsAnswered { get; set; }

    /// <summary>Comparisons of the replicas' trees that found them equal.</summary>
    public int DigestsCompared { get; set; }

    public Activity Activity => new(
        Checker.AnsweredWrites, Checker.AnsweredReads, Checker.AnsweredScans, Checker.FailedConditions,
        Checker.Epochs, SnapshotsInstalled, LeadershipsTransferred, ReplicasChanged, FollowerReadsAnswered, Repeats: 0, DigestsCompared, Unapplied: 0);

    public Tally Tally { get; } = new();

    public long NextWriteId() => ++_writeIdLast;

    public bool Chance(int permille) => Random.Next(1000) < permille;

    public void After(long delayUs, Action action) => _due.Enqueue(action, (NowUs + delayUs, _order++));

    public void Trace(string text) => Transcript.Line(NowUs, text);

    public void OnAlarm(SimulatedReplica replica, string text)
    {
        Trace($"node {replica.Node} ALARM {text}");
        // Only a lost tail may raise an alarm.
        if (!replica.LostTail)
            _alarms.Add(text);
    }

    /// <summary>The protocol has made a decision.</summary>
    public void Reached(SimulatedReplica replica, Moment moment)
    {
        if (!Healed)
            _adversary.On(this, replica, moment);
    }

    public void Run()
    {
        foreach (var replica in Replicas)
            After(Random.NextInt64(200_000), replica.Start);
        for (var i = 0; i < ClientCount; i++)
            new SimulatedClient(this, writesPercent: i > 0 ? 65 : Conditions.ReaderStays ? 0 : 10).Start();
        _adversary.Begin(this);
        if (_mix.Length > 0)
            After(Random.NextInt64(Conditions.FaultEveryUs), NextFault);
        if (Options.QuiescentIntervalUs > 0)
            WatchNodes();
        RunUntil(Conditions.DurationUs, () => false);
        Heal();
        RunUntil(NowUs + HealWithinUs, Agree);
        Violation.Unless(Agree(), Rule.Converges, $"no agreement {HealWithinUs / 1_000_000} s after healing: "
            + $"{string.Join("; ", Replicas.Select(replica => replica.State))}");
        Violation.Unless(_alarms.Count == 0, Rule.GoesOn, $"alarms: {string.Join("; ", _alarms)}");
    }

    public string Describe()
    {
        var text = new StringBuilder();
        foreach (var replica in Replicas)
            text.AppendLine($"node {replica.Node}: {replica.State}");
        return text.ToString();
    }

    /// <summary>Injects any of the scenario's faults at this replica.</summary>
    public void FailSomething(SimulatedReplica replica)
    {
        if (!Healed && _mix.Length > 0)
            Do(DrawFault(), replica);
    }

    /// <summary>Crashes a replica's node and restarts it.</summary>
    public void Restart(SimulatedReplica replica, long afterUs)
    {
        if (Healed || !replica.Up)
            return;
        replica.Crash();
        After(afterUs, () => Up(replica));
    }

    /// <summary>Crashes a replica's node, which stays down until it is started.</summary>
    public void Down(SimulatedReplica replica)
    {
        if (!Healed)
            replica.Crash();
    }

    /// <summary>Starts a replica's node if it is down.</summary>
    /// <param name="except">Unless it is this one.</param>
    public void Up(SimulatedReplica replica, SimulatedReplica? except = null)
    {
        if (!replica.Up && replica != except)
            replica.Start();
    }

    /// <summary>Starts all nodes that are down.</summary>
    public void UpAll()
    {
        foreach (var replica in Replicas)
            Up(replica);
    }

    /// <summary>Drops everything that this replica sends until the network is healed.</summary>
    public void CutOutwards(SimulatedReplica replica)
    {
        if (Healed)
            return;
        Trace($"nothing from node {replica.Node} arrives");
        foreach (var other in Replicas.Where(other => other != replica))
            Network.Cut(replica.Node, other.Node);
    }

    // As the transport does. What it misses, the heartbeats of a quiescent leader must reveal.
    private void WatchNodes()
    {
        foreach (var replica in Replicas.Where(replica => replica.Up).ToList())
        {
            foreach (var other in Replicas.Where(other => other != replica && (!other.Up || Network.IsCut(other.Node, replica.Node))))
            {
                if (!Chance(100))
                    replica.NodeSilent(new((uint)other.Node));
            }
        }
        After(Random.NextInt64(200_000, 800_000), WatchNodes);
    }

    private IEnumerable<SimulatedReplica> Members =>
        _replicas.Where(replica => Coordinator.Record.Replicas.Any(member => member.ReplicaId == replica.Id));

    /// <summary>Nodes create the directories of the replicas that the record assigns to them.</summary>
    public void CreateReplicas()
    {
        foreach (var added in Coordinator.Record.Replicas.Where(replica => !replica.Created && replica.Node > _replicas.Count).ToList())
        {
            var replica = new SimulatedReplica(this, (int)added.Node, added.ReplicaId);
            _replicas.Add(replica);
            replica.Start();
            After(Random.NextInt64(100_000), () => Coordinator.MarkCreated(added.ReplicaId));
        }
    }

    private void RunUntil(long endUs, Func<bool> done)
    {
        var checkUs = NowUs;
        while (_due.TryPeek(out _, out var next) && next.DueUs <= endUs)
        {
            NowUs = next.DueUs;
            Transcript.Step(NowUs);
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
            // No checkpoint is pinned for anybody any more.
            && Members.All(replica => replica.Published == Checker.Last && replica.SameStateAs(first) && replica.Pins == 0);
    }

    private void NextFault()
    {
        if (Healed)
            return;
        var leader = Leader();
        Do(DrawFault(), leader is not null && Random.Next(2) == 0 ? leader : Any());
        After(Random.NextInt64(Conditions.FaultEveryUs / 4, Conditions.FaultEveryUs * 2), NextFault);
    }

    private Fault DrawFault()
    {
        var left = Random.Next(_mix.Sum(entry => entry.Weight));
        return _mix.First(entry => (left -= entry.Weight) < 0).Fault;
    }

    private SimulatedReplica? Leader() => Replicas.FirstOrDefault(replica => replica.Leads);

    private SimulatedReplica Any() => Replicas[Random.Next(Replicas.Count)];

    private SimulatedReplica Follower()
    {
        var replica = Any();
        return replica.Leads ? Replicas[replica.Node % Replicas.Count] : replica;
    }

    private void Do(Fault fault, SimulatedReplica replica)
    {
        if (TakesEffect(fault, replica))
            Tally.Count(fault);
        switch (fault)
        {
            case Fault.Restart:
                Restart(replica, DownUs());
                break;
            case Fault.RestartLeader:
                Restart(Leader() ?? replica, DownUs());
                break;
            case Fault.RestartFollower:
                Restart(Follower(), DownUs());
                break;
            case Fault.Pause:
                replica.Pause(Random.NextInt64(2_500_000));
                break;
            case Fault.PauseLeader:
                (Leader() ?? replica).Pause(Random.NextInt64(500_000, 3_000_000));
                break;
            case Fault.Isolate:
                Isolate(replica, Random.NextInt64(3_000_000));
                break;
            case Fault.IsolateLeader:
                Isolate(Leader() ?? replica, Random.NextInt64(1_000_000, 3_000_000));
                break;
            case Fault.IsolateFollower:
                Isolate(Follower(), Random.NextInt64(3_000_000));
                break;
            case Fault.IsolateLeaderInSteps:
                IsolateInSteps(Leader() ?? replica);
                break;
            case Fault.CutLink:
                Trace($"a link from node {replica.Node} is cut");
                Network.Cut(replica.Node, Any().Node);
                After(Random.NextInt64(3_000_000), Network.Heal);
                break;
            case Fault.Partition:
                Partition();
                break;
            case Fault.CutOffCoordinator:
                Trace($"node {replica.Node} is cut off from the coordinator");
                Coordinator.CutOff(replica.Node);
                After(Random.NextInt64(3_000_000), Coordinator.Heal);
                break;
            case Fault.CoordinatorAway:
                Trace("the coordinator is away");
                foreach (var other in Replicas)
                    Coordinator.CutOff(other.Node);
                After(Random.NextInt64(4_000_000), Coordinator.Heal);
                break;
            case Fault.LosePower:
                Trace("power is lost");
                foreach (var other in Replicas)
                    Restart(other, Random.NextInt64(1_000_000));
                break;
            case Fault.SlowDisk:
                SlowDisk(replica);
                break;
            case Fault.SlowFollower:
                SlowDisk(Follower());
                break;
            case Fault.Transfer:
                var leader = Leader() ?? replica;
                Trace($"node {leader.Node} is asked to transfer its leadership");
                leader.Transfer(Random.Next(2) == 0 ? ReplicaId.None : Any().Id);
                break;
            case Fault.Checkpoint:
                replica.Checkpoint();
                break;
            case Fault.LoseTail:
                LoseTail(replica);
                break;
            case Fault.ChangeReplicas:
                ChangeReplicas(Leader() ?? replica);
                break;
        }
    }

    // A fault has no effect on a node that is down.
    private bool TakesEffect(Fault fault, SimulatedReplica replica) => fault switch
    {
        Fault.Restart or Fault.Pause or Fault.Checkpoint => replica.Up,
        Fault.RestartLeader or Fault.PauseLeader or Fault.IsolateLeader or Fault.IsolateLeaderInSteps or Fault.Transfer or Fault.ChangeReplicas =>
            Leader() is not null,
        Fault.RestartFollower => Replicas.Any(other => other.Up && !other.Leads),
        Fault.LoseTail => false,
        _ => true,
    };

    private void ChangeReplicas(SimulatedReplica leader)
    {
        var members = Coordinator.Record.Replicas;
        var learner = members.FirstOrDefault(replica => replica.Learner);
        var other = members[Random.Next(members.Count)].ReplicaId;
        ReplicaChange change = learner is not null
            ? Random.Next(8) switch
            {
                0 => new ReplicaChange.Remove(learner.ReplicaId),
                < 3 when members.Count <= VotersMax => new ReplicaChange.Promote(learner.ReplicaId, VotersMax),
                _ => new ReplicaChange.Swap(other, learner.ReplicaId),
            }
            : members.Count > 3 && Random.Next(2) == 0
                ? new ReplicaChange.Remove(other)
                : new ReplicaChange.AddLearner(new((ulong)(_replicas.Count + 1) * 11), new((uint)_replicas.Count + 1));
        if (change is ReplicaChange.AddLearner && _replicas.Count == NodesMax)
            return;
        Trace($"node {leader.Node} is asked for {change}");
        leader.Change(change);
        // A learner is soon promoted.
        if (change is ReplicaChange.AddLearner)
        {
            After(Random.NextInt64(100_000, 1_500_000), () =>
            {
                if (!Healed && Leader() is { } leading)
                    ChangeReplicas(leading);
            });
        }
    }

    private long DownUs() => Random.Next(3) == 0 ? Random.NextInt64(4_000_000) : Random.NextInt64(300_000);

    private void SlowDisk(SimulatedReplica replica)
    {
        Trace($"node {replica.Node} has a slow disk");
        replica.SyncUs = Conditions.SyncUs * 20;
        After(Random.NextInt64(2_000_000), () => replica.SyncUs = Conditions.SyncUs);
    }

    // One disk at a time, because nobody can restore what a majority has lost.
    private void LoseTail(SimulatedReplica replica)
    {
        if (!replica.Up || Members.Any(other => other.Up ? !other.IsWhole : other.LostTail))
            return;
        replica.Crash();
        replica.LoseTail();
        Tally.Count(Fault.LoseTail);
        After(DownUs(), () => Up(replica));
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

    private void IsolateInSteps(SimulatedReplica leader)
    {
        var first = Replicas[leader.Node % Replicas.Count];
        Trace($"node {leader.Node} no longer hears node {first.Node}, and soon nobody");
        Network.Cut(leader.Node, first.Node);
        Network.Cut(first.Node, leader.Node);
        After(Random.NextInt64(1_200_000, 2_500_000), () =>
        {
            if (Healed)
                return;
            foreach (var other in Replicas.Where(other => other != leader))
            {
                Network.Cut(leader.Node, other.Node);
                Network.Cut(other.Node, leader.Node);
            }

            After(Random.NextInt64(1_000_000, 2_000_000), Network.Heal);
        });
    }

    private void Partition()
    {
        var group = Replicas.Where(_ => Random.Next(2) == 0).ToArray();
        var rest = Replicas.Except(group).ToArray();
        Trace($"nodes {string.Join(' ', group.Select(replica => replica.Node))} and {string.Join(' ', rest.Select(replica => replica.Node))} do not hear each "
            + "other");
        foreach (var (left, right) in group.SelectMany(left => rest.Select(right => (left, right))))
        {
            Network.Cut(left.Node, right.Node);
            Network.Cut(right.Node, left.Node);
        }

        After(Random.NextInt64(500_000, 3_000_000), Network.Heal);
    }

    private void Heal()
    {
        Trace("all is healed");
        Healed = true;
        Network.Heal();
        Coordinator.Heal();
        foreach (var replica in Replicas)
            replica.SyncUs = Conditions.SyncUs;
        UpAll();
    }
}
