using System.Runtime.ExceptionServices;
using Google.Protobuf;
using KvCluster.Internal.V1;
using KvCluster.Node.CoordinatorRecovery;
using KvCluster.Replication.Protocol;
using KvCluster.Simulation.Cluster.Routing;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// Nodes of one shard, and in some kinds of run each with a shard of its own, from one seed on one thread. The real driver and engine run on
/// simulated disks.
/// </summary>
internal sealed class ClusterRun : ISimulation
{
    /// <summary>The number of voters of the shard.</summary>
    public const int ReplicaCount = 3;

    private const int ClientCount = 3;
    private const int RoutedCount = 2;
    private const long HealWithinUs = 20_000_000;

    private UInt128 _sessionsDrawn;
    private ulong _replicaIdLast = 1_000;
    private readonly ClusterNode[] _nodes;
    private readonly ClusterClient[] _clients;
    private readonly RoutedClient[] _routed = [];
    private readonly RoutedWatch[] _routedWatches = [];
    private readonly SetCaller? _sets;
    private readonly LifeCaller? _lives;
    private readonly RoutedLoad? _load;
    private readonly TransactCaller? _transacts;
    private readonly WatchCaller? _watch;
    private readonly ClusterFaults _faults;
    private readonly Availability _availability;
    private readonly ClusterHistory _history = new();
    private readonly CommittedLog _log = new();
    private readonly Replacements _replacements;
    private string _end = "";
    private bool _stands;
    private ExceptionDispatchInfo? _thrown;

    public ClusterRun(int seed, ClusterScenario scenario, InjectedBug bug, bool detailed)
    {
        Options = new ReplicationOptions
        {
            QuiescentAfterUs = 100_000,
            QuiescentIntervalUs = Features.Has(seed, Feature.Quiescence) ? 1_500_000 : 0,
            DigestIntervalUs = Features.Has(seed, Feature.Digests) ? 400_000 : 0,
            DigestTimeUs = 1_000_000,
            DigestRepeatUs = 100_000,
            SnapshotChunkBytes = 16 << 10,
            SnapshotWindowBytes = 64 << 10,
            SnapshotPatienceUs = 1_500_000,
            SnapshotRetryUs = 200_000,
            SnapshotRetryMaxUs = 1_000_000,
        };
        HasManyShards = Features.Has(seed, Feature.ManyShards);
        Bug = bug;
        Random = new Random(seed);
        Transcript = new Transcript(detailed);
        Time = new VirtualTime(Transcript.Step);
        Conditions = scenario.Draw(Random);
        // Keys of large runs are deleted as one range, which may then have as many pages as many sets.
        Conditions = Conditions with
        {
            HasSets = !Conditions.IsLarge && Features.Has(seed, Feature.Sets),
            HasLives = !Conditions.IsLarge && (Conditions.HasLives || Features.Has(seed, Feature.Lives)),
        };
        if (Conditions.IsLarge)
            Options = Options with { WindowBytes = 64 << 10, FrameBytes = 32 << 10, SnapshotChunkBytes = 64 << 10, SnapshotWindowBytes = 256 << 10 };
        var record = new ShardRecord { Generation = 1, End = Conditions.RoutedCallers ? ByteString.CopyFromUtf8("n") : ByteString.Empty };
        for (var node = 1u; node <= ReplicaCount; node++)
            record.Replicas.Add(new ReplicaRecord { Replica = node * 11, Node = node, Created = true });
        Coordinator = new ClusterCoordinator(this, record);
        Network = new ClusterNetwork(this, _log);
        _nodes = [.. Enumerable.Range(1, scenario.Nodes)
            .Select(id => new ClusterNode(this, new((uint)id), id <= ReplicaCount ? new((ulong)id * 11) : ReplicaId.None))];
        _clients = [.. Enumerable.Range(0, ClientCount)
            .Select(client => new ClusterClient(this, _history, first: new(Conditions.PinnedCallers ? (uint)client + 1 : 1), hardlyWrites: client == 0))];
        _sets = Conditions.HasSets ? new SetCaller(this) : null;
        _lives = Conditions.HasLives ? new LifeCaller(this) : null;
        // A replica tells one hub what it applies, and with routed callers that is its node's.
        _watch = Features.Has(seed, Feature.Watch) && !Conditions.RoutedCallers ? new WatchCaller(this, seed) : null;
        _replacements = new Replacements(this);
        _availability = new Availability(this, _history);
        if (Conditions.RoutedCallers)
        {
            _routed = [.. Enumerable.Range(1, RoutedCount).Select(number => new RoutedClient(this, _history, number))];
            _routedWatches = [.. _routed.Select(client => new RoutedWatch(this, client.Client, (seed * RoutedCount) + client.Number))];
        }
        _transacts = !Conditions.IsLarge && Features.Has(seed, Feature.Transactions) ? new TransactCaller(this) : null;
        _load = Conditions.RoutedCallers ? new RoutedLoad(this) : null;
        _faults = new ClusterFaults(this, scenario.Mix, _replacements, new CoordinatorLoss(this), _routed);
    }

    public InjectedBug Bug { get; }

    public Random Random { get; }

    public Transcript Transcript { get; }

    public VirtualTime Time { get; }

    public long NowUs => Time.NowUs;

    /// <summary>The time that has passed for a caller that looks at a right clock: the run's, and what was skipped while nothing ran.</summary>
    public long RealUs => Time.NowUs + SkippedUs;

    /// <summary>The time for which all nodes were down or stood still, which nothing simulates. Their clocks have it.</summary>
    public long SkippedUs { get; private set; }

    /// <summary>Whether a leader serves that works and reaches a majority that works, of whose disks none makes it wait.</summary>
    public bool LeadsPromptly => _availability.HasPromptLeader;

    public ReplicationOptions Options { get; }

    /// <summary>Whether all nodes have many more shards, and lead them.</summary>
    public bool HasManyShards { get; }

    public ClusterConditions Conditions { get; }

    public ClusterCoordinator Coordinator { get; }

    public ClusterNetwork Network { get; }

    public IReadOnlyList<ClusterNode> Nodes => _nodes;

    public ClusterNode NodeOf(NodeId id) => _nodes[(int)id.Value - 1];

    public NodeId LeaderHint { get; set; } = new(1);

    /// <summary>An id that was never used.</summary>
    public ReplicaId NewReplicaId() => new(++_replicaIdLast);

    /// <summary>Faults are over. Messages in flight may still be late.</summary>
    public bool Healed { get; private set; }

    public long Transfers { get; set; }

    public long DigestsCompared { get; set; }

    /// <summary>Replicas that stopped at a record that they could not apply, including repeated stops after a restart.</summary>
    public long Unapplied { get; set; }

    // A recovery of the coordinator's data adds multiples of its gap to both numbers of the record.
    public Activity Activity => new(
        _history.Writes,
        _history.Reads, _history.Scans, _history.FailedConditions, (long)(Coordinator.Record.Epoch % RecoveryPlan.Gap), Network.SnapshotsInstalled, Transfers,
        (long)((Coordinator.Record.Generation - 1) % RecoveryPlan.Gap), _history.FollowerReads, _history.Repeats + (_transacts?.Repeated ?? 0),
        DigestsCompared, Unapplied, _sets?.Parts ?? 0, (_watch?.Events ?? 0) + _routedWatches.Sum(static watch => watch.Events));

    public Tally Tally { get; } = new();

    public void Run()
    {
        // Continuations run in the step that completes a wait, and not on a thread of the test framework.
        var context = SynchronizationContext.Current;
        SynchronizationContext.SetSynchronizationContext(null);
        try
        {
            foreach (var client in _routed)
                client.Start();
            foreach (var watch in _routedWatches)
                watch.Start();
            foreach (var node in _nodes)
                node.Start();
            foreach (var client in _clients)
                client.Start();
            _sets?.Start();
            _lives?.Start();
            _load?.Start();
            _transacts?.Start();
            _watch?.Start();
            _replacements.Start();
            _availability.Start();
            _faults.Start();
            if (Options.QuiescentIntervalUs > 0)
                WatchNodes();
            Time.RunUntil(Conditions.DurationUs, Failed);
            Heal();
            var endUs = Time.NowUs + HealWithinUs;
            Time.RunUntil(Time.NowUs + 3_000_000, Failed);
            Time.RunUntil(endUs, () => Failed() || Agree());
            if (_lives is not null)
            {
                Time.RunUntil(Time.NowUs + LifeCaller.SettleUs, Failed);
                Time.RunUntil(Time.NowUs + HealWithinUs, () => Failed() || Agree());
            }
            Check();
        }
        finally
        {
            _end = string.Join('\n', _nodes.Select(node => $"node {node.Id}: {node.State}")
                .Concat(_clients.Select(client => $"a client: {client.State}")).Concat(_routed.Select(client => client.State)));
            Time.End();
            Transcript.End();
            foreach (var watch in _routedWatches)
                watch.Stop();
            foreach (var client in _routed)
                client.Dispose();
            _load?.Dispose();
            foreach (var node in _nodes)
                node.Dispose();
            SynchronizationContext.SetSynchronizationContext(context);
        }
    }

    /// <summary>Nothing runs for this long: all nodes are down or stand still.</summary>
    public void Skip(long forUs) => SkippedUs += forUs;

    /// <summary>A rule was broken, or an exception thrown where nobody could catch it. Ends the run at its next step.</summary>
    public void Throw(Exception exception) => _thrown ??= ExceptionDispatchInfo.Capture(exception);

    /// <summary>A node's knowledge of the map has changed.</summary>
    public void MapChanged(ClusterNode node)
    {
        foreach (var client in _routed)
            client.Network.MapChanged(node.Id);
        _load?.MapChanged(node.Id);
    }

    /// <summary>A node's process has ended.</summary>
    public void NodeEnded(ClusterNode node)
    {
        foreach (var client in _routed)
            client.Network.Ended(node.Id);
        _load?.Ended(node.Id);
    }

    /// <summary>A thread of a node stalls for this long in the middle of its work, and everything else continues.</summary>
    public void Stand(long forUs)
    {
        // One at a time, because a nested stall would end before the outer one.
        if (_stands)
            return;
        Tally.Count(ClusterFault.StandInRead);
        _stands = true;
        Time.RunUntil(NowUs + forUs, Failed);
        _stands = false;
    }

    private bool Failed()
    {
        _thrown?.Throw();
        return false;
    }

    public string Describe() => $"{_end}\nrecord: {Coordinator.Record}";

    /// <summary>Counted, not drawn from <see cref="Random"/>: nothing in a run guesses ids, and the course of a seed does not change.</summary>
    public UInt128 DrawSession() => ++_sessionsDrawn;

    /// <summary>A replica raised an alarm. That is only allowed if a disk or the coordinator has lost something.</summary>
    public void OnAlarm(ClusterNode node, string text)
    {
        Trace($"node {node.Id}: {text}");
        Violation.Unless(Coordinator.WasRestored || Coordinator.WasLost || _nodes.Any(static other => other.Disk.HasLost), Rule.GoesOn, $"node {node.Id}, "
            + $"though no disk has lost anything: {text}");
    }

    public void Trace(string text) => Transcript.Line(NowUs, text);

    public bool Chance(int permille) => Random.Next(1000) < permille;

    // As the transport does. What it misses, the heartbeats of a quiescent leader must reveal.
    private void WatchNodes()
    {
        foreach (var node in _nodes)
        {
            foreach (var other in _nodes.Where(other => other != node && (other.Replica is null || Network.IsCut(other.Id, node.Id))))
            {
                if (Random.Next(10) != 0)
                    node.NodeSilent(other.Id);
            }
        }
        Time.After(Random.NextInt64(200_000, 800_000), WatchNodes);
    }

    private void Heal()
    {
        Trace("all is healed");
        Healed = true;
        Network.Heal();
        Coordinator.Reconnect();
        Coordinator.HideOld();
        foreach (var client in _routed)
            client.Network.Heal();
        Coordinator.Repair();
        foreach (var node in _nodes)
        {
            node.Heal();
            node.Start();
        }
    }

    private bool Agree()
    {
        if (!_replacements.AreDone || !_clients.All(client => client.IsSettled) || !_routed.All(client => client.IsSettled))
            return false;
        var etags = Members.Select(node => node.Published.Etag).Distinct().ToArray();
        return etags.Length == 1 && Members.Count(node => node.Serves) == 1 && etags[0] >= _history.Floor;
    }

    // A replica that was removed may still run.
    private IEnumerable<ClusterNode> Members =>
        _nodes.Where(node => node.Replica is not null && Coordinator.Record.Replicas.Any(replica => replica.ReplicaId == node.ReplicaId));

    private void Check()
    {
        Violation.Unless(Agree(), Rule.Converges, $"no agreement after healing at {string.Join(", ", Members.Select(node => node.Published.Etag))}, "
            + $"{_clients.Count(client => !client.IsSettled)} callers wait");
        var digests = Members.ToArray().Select(node => node.Published.Digest()).Where(digest => digest is not null).Distinct().ToArray();
        Violation.Unless(digests.Length == 1, Rule.Converges, "the trees differ after healing");
        var whole = Members.First(node => !node.Disk.IsDamaged);
        _log.Settle(whole.Published.Etag);
        whole.Published.Check(_log);
        _history.Check(_log);
        _sets?.Check(_log);
        _lives?.Check(_log);
        _load?.Check(_log);
        _transacts?.Check(_log);
        _watch?.Check(_log);
        foreach (var watch in _routedWatches)
            watch.Check(_log);
    }
}
