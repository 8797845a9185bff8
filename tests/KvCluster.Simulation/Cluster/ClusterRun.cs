using System.Runtime.ExceptionServices;
using Google.Protobuf;
using KvCluster.Replication.Protocol;
using KvCluster.Simulation.Cluster.Routing;
using KvCluster.V1;

namespace KvCluster.Simulation.Cluster;

/// <summary>Nodes of one shard, and in some kinds of run each of one of its own, from one seed on one thread: the real driver and the real engine, on simulated disks.</summary>
internal sealed class ClusterRun : ISimulation
{
    /// <summary>Voters of the shard.</summary>
    public const int ReplicaCount = 3;

    private const int ClientCount = 3;
    private const int RoutedCount = 2;
    private const long HealWithinUs = 20_000_000;

    private const long QuarantineWithinUs = 50_000;

    // Leaders that rest take part in so many seeds: more would leave less time to the rest of the protocol.
    private const int RestsInOneOf = 4;

    // And so do comparisons of digests.
    private const int ComparesInOneOf = 3;

    // Each ends by itself, whatever the others do.
    private readonly List<HashSet<(uint From, uint To)>> _cuts = [];
    private readonly HashSet<(uint Node, ulong Epoch, ulong Change)> _snapshots = [];
    private UInt128 _sessionsDrawn;
    private ulong _replicaIdLast = 1_000;
    private readonly ClusterNode[] _nodes;
    private readonly ClusterClient[] _clients;
    private readonly RoutedClient[] _routed = [];
    private readonly (ClusterFault Fault, int Weight)[] _mix;
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
            Rules = new FaultyReplicaRules(bug),
            RestAfterUs = 100_000,
            RestIntervalUs = seed % RestsInOneOf == 0 ? 1_500_000 : 0,
            DigestIntervalUs = seed % ComparesInOneOf == 0 ? 400_000 : 0,
            DigestTimeUs = 1_000_000,
            DigestRepeatUs = 100_000,
            SnapshotChunkBytes = 16 << 10,
            SnapshotWindowBytes = 64 << 10,
            SnapshotPatienceUs = 1_500_000,
            SnapshotRetryUs = 200_000,
            SnapshotRetryMostUs = 1_000_000,
        };
        Bug = bug;
        Random = new Random(seed);
        Transcript = new Transcript(detailed);
        Time = new VirtualTime(Transcript.Step);
        Conditions = scenario.Draw(Random);
        if (Conditions.IsLarge)
            Options = Options with { WindowBytes = 64 << 10, FrameBytes = 32 << 10, SnapshotChunkBytes = 64 << 10, SnapshotWindowBytes = 256 << 10 };
        _mix = scenario.Mix;
        var record = new ShardRecord { Generation = 1, End = Conditions.RoutedCallers ? ByteString.CopyFromUtf8("n") : ByteString.Empty };
        for (var node = 1u; node <= ReplicaCount; node++)
            record.Replicas.Add(new ReplicaRecord { Replica = node * 11, Node = node, Created = true });
        Coordinator = new ClusterCoordinator(this, record);
        _nodes = [.. Enumerable.Range(1, scenario.Nodes).Select(id => new ClusterNode(this, (uint)id, id <= ReplicaCount ? (ulong)id * 11 : 0))];
        _clients = [.. Enumerable.Range(0, ClientCount).Select(client => new ClusterClient(this, _history, first: Conditions.PinnedCallers ? (uint)client + 1 : 1, hardlyWrites: client == 0))];
        _replacements = new Replacements(this);
        if (Conditions.RoutedCallers)
            _routed = [.. Enumerable.Range(1, RoutedCount).Select(number => new RoutedClient(this, _history, number))];
    }

    public InjectedBug Bug { get; }

    public Random Random { get; }

    public Transcript Transcript { get; }

    public VirtualTime Time { get; }

    public long NowUs => Time.NowUs;

    public ReplicationOptions Options { get; }

    public ClusterConditions Conditions { get; }

    public ClusterCoordinator Coordinator { get; }

    public IReadOnlyList<ClusterNode> Nodes => _nodes;

    public uint LeaderHint { get; set; } = 1;

    /// <summary>An id never used.</summary>
    public ulong NewReplicaId() => ++_replicaIdLast;

    /// <summary>Faults are over; what is under way may still be late.</summary>
    public bool Healed { get; private set; }

    public long HandOvers { get; set; }

    public long DigestsCompared { get; set; }

    /// <summary>Replicas that stopped at a record that they could not apply, some of them again after a restart.</summary>
    public long Unapplied { get; set; }

    public Activity Activity => new(
        _history.Writes, _history.Reads, _history.Scans, _history.FailedConditions, (long)Coordinator.Record.Epoch, _snapshots.Count, HandOvers,
        (long)Coordinator.Record.Generation - 1, _history.FollowerReads, _history.Repeats, DigestsCompared, Unapplied);

    public Tally Tally { get; } = new();

    public void Run()
    {
        // Who waits for something goes on in the step in which it happens, and not on a thread of a test's choice.
        var context = SynchronizationContext.Current;
        SynchronizationContext.SetSynchronizationContext(null);
        try
        {
            foreach (var client in _routed)
                client.Start();
            foreach (var node in _nodes)
                node.Start();
            foreach (var client in _clients)
                client.Start();
            _replacements.Start();
            new Availability(this, _history).Start();
            Time.After(Random.NextInt64(800_000), NextFault);
            if (Options.RestIntervalUs > 0)
                WatchNodes();
            Time.RunUntil(Conditions.DurationUs, Failed);
            Heal();
            var endUs = Time.NowUs + HealWithinUs;
            Time.RunUntil(Time.NowUs + 3_000_000, Failed);
            Time.RunUntil(endUs, () => Failed() || Agree());
            Check();
        }
        finally
        {
            _end = string.Join('\n', _nodes.Select(node => $"node {node.Id}: {node.State}").Concat(_clients.Select(client => $"a client: {client.State}")).Concat(_routed.Select(client => client.State)));
            foreach (var client in _routed)
                client.Dispose();
            foreach (var node in _nodes)
                node.Dispose();
            SynchronizationContext.SetSynchronizationContext(context);
        }
    }

    /// <summary>A rule was broken, or something thrown, where nobody could catch it: ends the run at its next step.</summary>
    public void Throw(Exception exception) => _thrown ??= ExceptionDispatchInfo.Capture(exception);

    /// <summary>What a node knows of the map has changed.</summary>
    public void MapChanged(ClusterNode node)
    {
        foreach (var client in _routed)
            client.Network.MapChanged(node.Id);
    }

    /// <summary>A node's process has ended.</summary>
    public void NodeEnded(ClusterNode node)
    {
        foreach (var client in _routed)
            client.Network.Ended(node.Id);
    }

    /// <summary>A thread of a node stands still in the middle of what it does, and everything else goes on for so long.</summary>
    public void Stand(long forUs)
    {
        // One at a time: what stands inside another one would end before it.
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

    /// <summary>Counted, not drawn from <see cref="Random"/>: nothing in a run guesses ids, and a seed's course does not change by it.</summary>
    public UInt128 DrawSession() => ++_sessionsDrawn;

    /// <summary>Whether nothing that one node sends arrives at another.</summary>
    public bool IsCut(uint from, uint to) => _cuts.Exists(cut => cut.Contains((from, to)));

    /// <summary>A replica calls for people. They may only be called where a disk or the coordinator has lost something.</summary>
    public void OnAlarm(ClusterNode node, string text)
    {
        Trace($"node {node.Id}: {text}");
        Violation.Unless(Coordinator.WasRestored || _nodes.Any(static other => other.HasLost), Rule.GoesOn, $"node {node.Id}, though no disk has lost anything: {text}");
    }

    public void Trace(string text) => Transcript.Line(NowUs, text);

    public bool Chance(int permille) => Random.Next(1000) < permille;

    public void Send(uint from, uint to, Frame frame)
    {
        foreach (var body in frame.Append?.Bodies ?? frame.Tail?.Bodies ?? [])
            _log.Add(body.Span);
        if (frame.SnapshotAck is { Installed: true, Covers.Etag: { } covers })
            _snapshots.Add((from, covers.Epoch, covers.Change));
        if (!Healed && Chance(Conditions.LossPermille))
            return;
        // Through bytes, as on a wire.
        var copy = Frame.Parser.ParseFrom(Google.Protobuf.MessageExtensions.ToByteArray(frame));
        for (var copies = !Healed && Chance(Conditions.DuplicationPermille) ? 2 : 1; copies > 0; copies--)
        {
            var late = !Healed && Chance(Conditions.LatePermille);
            Time.After(20 + Random.NextInt64(late ? Conditions.LateUs : 500), () =>
            {
                if (IsCut(from, to))
                    return;
                Transcript.Frame(NowUs, from, to, copy);
                _nodes[to - 1].Receive(copy);
            });
        }
    }

    /// <summary>A caller's call is on its way to a node; it may be lost, or come when its caller has long given it up.</summary>
    public void Call(uint node, Action<ClusterNode> call)
    {
        if (!Healed && Chance(Conditions.CallLossPermille))
            return;
        var late = !Healed && Chance(Conditions.CallLossPermille);
        Time.After(20 + Random.NextInt64(late ? 2_000_000 : 300), () => call(_nodes[node - 1]));
    }

    /// <summary>A node's answer is on its way to the caller; it may be lost.</summary>
    public void Reply(Action answered)
    {
        if (!Healed && Chance(Conditions.CallLossPermille))
            return;
        Time.After(20 + Random.NextInt64(300), answered);
    }

    /// <summary>A node's process ends, and starts again after a while.</summary>
    public void Restart(ClusterNode node, Action whileDown)
    {
        if (!node.IsUp)
            return;
        node.Crash();
        whileDown();
        Time.After(Random.NextInt64(1_000, 500_000), node.Start);
    }

    private void NextFault()
    {
        if (Healed)
            return;
        var left = Random.Next(_mix.Sum(entry => entry.Weight));
        Do(_mix.First(entry => (left -= entry.Weight) < 0).Fault, _nodes[Random.Next(2) == 0 ? Random.Next(_nodes.Length) : LeaderHint - 1]);
        Time.After(Random.NextInt64(50_000, 1_200_000), NextFault);
    }

    private void Do(ClusterFault fault, ClusterNode node)
    {
        if (TakesEffectAtOnce(fault, node))
            Tally.Count(fault);
        switch (fault)
        {
            case ClusterFault.Crash:
                Restart(node, () => { });
                break;
            case ClusterFault.LosePower:
                Trace("power is lost");
                foreach (var other in _nodes)
                    Restart(other, () => { });
                break;
            case ClusterFault.CutOff:
                CutOff(node);
                break;
            case ClusterFault.CutOffAndCrash:
                CutOffAndCrash(_nodes[LeaderHint - 1]);
                break;
            case ClusterFault.Pause:
                node.Pause(Random.NextInt64(200_000, 2_000_000));
                break;
            case ClusterFault.Checkpoint:
                node.Checkpoint();
                break;
            case ClusterFault.HandOver:
                _nodes[LeaderHint - 1].HandOver(Random.Next(2) == 0 ? 0 : node.ReplicaId);
                break;
            // One disk at a time: what a majority has lost, nobody can give back.
            case ClusterFault.Damage when AllAreWhole:
                if (Random.Next(2) == 0)
                    Restart(node, node.Damage);
                else
                    node.Damage();
                break;
            case ClusterFault.LoseDisk when AllAreWhole && node.ReplicaId != 0:
                node.LoseDisk();
                break;
            case ClusterFault.RestoreDisk when AllAreWhole && node.ReplicaId != 0:
                RestoreDisk(node);
                break;
            case ClusterFault.Outdate when AllAreWhole && node.ReplicaId != 0:
                node.Outdate();
                break;
            case ClusterFault.Replace:
                _replacements.Replace(node);
                break;
            case ClusterFault.Quarantine:
                QuarantineTwo();
                break;
            case ClusterFault.CrashInCall:
                node.CrashInCall();
                break;
            case ClusterFault.DamageSpare when AllAreWhole && node.ReplicaId != 0:
                Restart(node, node.DamageSpare);
                break;
            case ClusterFault.FailDisk:
                node.FailDisk();
                break;
            case ClusterFault.DiskError or ClusterFault.DiskShortWrite or ClusterFault.DiskSyncLosesData:
            case ClusterFault.DiskReadError or ClusterFault.DiskLostWrite or ClusterFault.DiskMisdirectedWrite when AllAreWhole && node.ReplicaId != 0:
                node.Err(fault);
                break;
            case ClusterFault.FillDisk:
                foreach (var full in Random.Next(3) == 0 ? _nodes : [node])
                    FillDisk(full);
                break;
            case ClusterFault.SlowDisk:
                node.SlowDown(Random.NextInt64(500_000, 3_000_000));
                break;
            case ClusterFault.FallBehind when AllAreWhole && node.IsUp:
                Tally.Count(ClusterFault.FallBehind);
                SnapshotScenarios.FallBehind(this, node);
                break;
            case ClusterFault.SlowVerification:
                node.SlowVerification(Random.NextInt64(500_000, 3_000_000));
                break;
            case ClusterFault.JumpClock:
                Trace($"the wall clock of node {node.Id} jumps");
                node.JumpWallClock(TimeSpan.FromHours(Random.Next(2) == 0 ? 1 : -1));
                break;
            case ClusterFault.ClockAhead:
                node.RunAhead(Random.NextInt64(500_000, 3_000_000));
                break;
            case ClusterFault.CutOffCoordinator:
                CutOffCoordinator(node);
                break;
            case ClusterFault.CutOffCaller:
                CutOffCaller(_routed[Random.Next(_routed.Length)]);
                break;
            case ClusterFault.BreakStreams:
                var broken = _routed[Random.Next(_routed.Length)];
                Trace($"the streams of caller {broken.Number} break");
                broken.Network.BreakAll();
                break;
            case ClusterFault.CoordinatorAway:
                CutOffCoordinator(_nodes);
                break;
            case ClusterFault.RestoreCoordinator:
                RestoreCoordinator(raised: false);
                break;
            case ClusterFault.RestoreCoordinatorRaised:
                RestoreCoordinator(raised: true);
                break;
        }
    }

    // The others are counted where they do what they are for.
    private bool TakesEffectAtOnce(ClusterFault fault, ClusterNode node) => fault switch
    {
        ClusterFault.Crash or ClusterFault.Pause => node.IsUp,
        ClusterFault.Checkpoint => node.Replica is not null,
        ClusterFault.HandOver => _nodes[LeaderHint - 1].Replica is not null,
        ClusterFault.CutOffAndCrash or ClusterFault.Damage or ClusterFault.RestoreDisk or ClusterFault.Outdate or ClusterFault.FailDisk or ClusterFault.Replace or ClusterFault.Quarantine
            or ClusterFault.DiskError or ClusterFault.DiskShortWrite or ClusterFault.DiskSyncLosesData or ClusterFault.DiskReadError or ClusterFault.DiskLostWrite or ClusterFault.DiskMisdirectedWrite
            or ClusterFault.LoseDisk or ClusterFault.RestoreCoordinator or ClusterFault.RestoreCoordinatorRaised or ClusterFault.CrashInCall or ClusterFault.DamageSpare or ClusterFault.CutOffCaller or ClusterFault.FallBehind => false,
        _ => true,
    };

    private bool AllAreWhole => _nodes.All(node => !node.Damaged && !node.MayErr && !node.Lost && !node.IsOutdated && !node.IsOldCopy) && _replacements.AreWhole;

    // Neither knows of the other.
    private void QuarantineTwo()
    {
        foreach (var node in _nodes.Where(static node => node.ReplicaId != 0).OrderBy(_ => Random.Next()).Take(2).ToArray())
            Time.After(1 + Random.NextInt64(QuarantineWithinUs), node.AskForQuarantine);
    }

    // Often while the leader dies too, which would remember what the node had acknowledged.
    private void RestoreDisk(ClusterNode node)
    {
        Restart(node, node.CopyDisk);
        Time.After(Random.NextInt64(300_000, 2_000_000), () =>
        {
            if (Healed || !AllAreWhole)
                return;
            Restart(node, node.RestoreDisk);
            if (Random.Next(2) == 0)
                Restart(_nodes[LeaderHint - 1], static () => { });
        });
    }

    private void CutOff(ClusterNode node)
    {
        Trace($"node {node.Id} is cut off");
        var cut = new HashSet<(uint, uint)>();
        foreach (var other in _nodes.Where(other => other != node))
        {
            cut.Add((node.Id, other.Id));
            if (Random.Next(2) == 0)
                cut.Add((other.Id, node.Id));
        }

        _cuts.Add(cut);
        Time.After(Random.NextInt64(2_000_000), () => _cuts.Remove(cut));
    }

    // A tail that nobody else has, and a second failover while it is cut: the first leader comes back when the next one has just begun, which dies then.
    private void CutOffAndCrash(ClusterNode first)
    {
        Trace($"nothing from node {first.Id} arrives any more");
        HashSet<(uint, uint)> cut = [.. _nodes.Where(other => other != first).Select(other => (first.Id, other.Id))];
        _cuts.Add(cut);
        Time.After(Random.NextInt64(20_000, 300_000), () =>
        {
            first.Crash();
            AwaitLeader(beside: first, tries: 400, second =>
            {
                Tally.Count(ClusterFault.CutOffAndCrash);
                _cuts.Remove(cut);
                first.Start();
                Time.After(Random.NextInt64(20 * Conditions.SyncUs), () => Restart(second, () => { }));
            });
        });
    }

    private void AwaitLeader(ClusterNode beside, int tries, Action<ClusterNode> then) => Time.After(5_000, () =>
    {
        if (_nodes.FirstOrDefault(node => node.Serves && node != beside) is { } leader && !Healed)
            then(leader);
        else if (tries > 0 && !Healed)
            AwaitLeader(beside, tries - 1, then);
        else
            beside.Start();
    });

    private void CutOffCoordinator(params ClusterNode[] nodes)
    {
        Trace($"nodes {string.Join(' ', nodes.Select(node => node.Id))} are cut off from the coordinator");
        foreach (var node in nodes)
            Coordinator.CutOff(node.Id);
        Time.After(Random.NextInt64(2_500_000), Coordinator.Reconnect);
    }

    private void CutOffCaller(RoutedClient client)
    {
        var nodes = _nodes.Where(_ => Random.Next(3) != 0).Select(static node => node.Id).ToArray();
        if (nodes.Length > 0)
            Tally.Count(ClusterFault.CutOffCaller);
        Trace($"caller {client.Number} is cut off from nodes {string.Join(' ', nodes)}");
        client.Network.Cut(nodes);
        Time.After(Random.NextInt64(2_500_000), client.Network.Heal);
    }

    private void RestoreCoordinator(bool raised)
    {
        Coordinator.Backup();
        Time.After(Random.NextInt64(100_000, 1_500_000), () =>
        {
            if (Healed)
                return;
            Coordinator.Restore(raised);
            Time.After(Random.NextInt64(200_000, 2_000_000), Coordinator.Repair);
        });
    }

    // As the transport does; what it misses, a resting leader's own beats must tell.
    private void WatchNodes()
    {
        foreach (var node in _nodes)
        {
            foreach (var other in _nodes.Where(other => other != node && (other.Replica is null || IsCut(other.Id, node.Id))))
            {
                if (Random.Next(10) != 0)
                    node.NodeSilent(other.Id);
            }
        }
        Time.After(Random.NextInt64(200_000, 800_000), WatchNodes);
    }

    private void FillDisk(ClusterNode node)
    {
        Trace($"the disk of node {node.Id} is full");
        node.Disk.CapacityBytes = node.Disk.UsedBytes + Random.NextInt64(32 << 10);
        Time.After(Random.NextInt64(200_000, 1_500_000), () => node.Disk.CapacityBytes = long.MaxValue);
    }

    private void Heal()
    {
        Trace("all is healed");
        Healed = true;
        _cuts.Clear();
        Coordinator.Reconnect();
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
        var etags = Members.Select(node => node.Published()).Distinct().ToArray();
        return etags.Length == 1 && Members.Count(node => node.Serves) == 1 && etags[0] >= _history.Floor;
    }

    // A replica that has left may still run.
    private IEnumerable<ClusterNode> Members =>
        _nodes.Where(node => node.Replica is not null && Coordinator.Record.Replicas.Any(replica => replica.Replica == node.ReplicaId));

    private void Check()
    {
        Violation.Unless(Agree(), Rule.Converges, $"no agreement after healing at {string.Join(", ", Members.Select(node => node.Published()))}, {_clients.Count(client => !client.IsSettled)} callers wait");
        var digests = Members.ToArray().Select(node => node.Digest()).Where(digest => digest is not null).Distinct().ToArray();
        Violation.Unless(digests.Length == 1, Rule.Converges, "the trees differ after healing");
        var whole = Members.First(node => !node.Damaged);
        _log.Settle(whole.Published());
        whole.CheckTree(_log);
        _history.Check(_log);
    }
}
