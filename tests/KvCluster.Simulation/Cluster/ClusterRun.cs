using KvCluster.Replication;
using KvCluster.Storage;
using KvCluster.V1;

namespace KvCluster.Simulation.Cluster;

/// <summary>Three nodes of one shard from one seed on one thread: the real driver and the real engine, on simulated disks.</summary>
internal sealed class ClusterRun : ISimulation
{
    private const int ClientCount = 2;
    private const int Keys = 3;
    private const long DurationUs = 4_000_000;
    private const long HealWithinUs = 20_000_000;

    // Leaders that rest take part in so many seeds: more would leave less time to the rest of the protocol.
    private const int RestsInOneOf = 4;

    // And so do comparisons of digests.
    private const int ComparesInOneOf = 3;

    private readonly HashSet<(uint From, uint To)> _cut = [];
    private readonly ClusterNode[] _nodes;
    private readonly (ClusterFault Fault, int Weight)[] _mix;
    private readonly ClusterHistory _history = new();
    private readonly long[] _seen = new long[Keys];

    public ClusterRun(int seed, ClusterScenario scenario, PlantedBug bug, bool detailed)
    {
        Options = new ReplicationOptions { PlantedBug = bug, RestAfterUs = 100_000, RestIntervalUs = seed % RestsInOneOf == 0 ? 1_500_000 : 0, DigestIntervalUs = seed % ComparesInOneOf == 0 ? 400_000 : 0, DigestTimeUs = 1_000_000, DigestRepeatUs = 100_000 };
        Random = new Random(seed);
        Transcript = new Transcript(detailed);
        Time = new VirtualTime(Transcript.Step);
        _mix = scenario.Mix;
        SyncUs = Random.Next(4) == 0 ? 20_000 : 1_000;
        Record = new ShardRecord { Generation = 1 };
        _nodes = [new ClusterNode(this, 1), new ClusterNode(this, 2), new ClusterNode(this, 3)];
        foreach (var node in _nodes)
            Record.Replicas.Add(new ReplicaRecord { Replica = node.ReplicaId, Node = node.Id, Created = true });
    }

    public Random Random { get; }

    public Transcript Transcript { get; }

    public VirtualTime Time { get; }

    public long NowUs => Time.NowUs;

    public ReplicationOptions Options { get; }

    public long SyncUs { get; }

    public ShardRecord Record { get; private set; }

    public long Revision { get; private set; } = 1;

    public uint LeaderHint { get; set; } = 1;

    public bool Healed { get; private set; }

    public long HandOvers { get; set; }

    public long DigestsCompared { get; set; }

    public Activity Activity => new(_history.Writes, _history.Reads, _history.Scans, _history.FailedConditions, (long)Record.Epoch, 0, HandOvers, 0, 0, DigestsCompared);

    private IEnumerable<ClusterNode> Working => _nodes.Where(node => !node.Lost);

    public void Run()
    {
        try
        {
            foreach (var node in _nodes)
                node.Start();
            for (var client = 0; client < ClientCount; client++)
                Time.After(1_000, Operation);
            Time.After(Random.NextInt64(800_000), NextFault);
            if (Options.RestIntervalUs > 0)
                WatchNodes();
            Time.RunUntil(DurationUs, () => false);
            Heal();
            var endUs = Time.NowUs + HealWithinUs;
            Time.RunUntil(Time.NowUs + 3_000_000, () => false);
            Time.RunUntil(endUs, Agree);
            Check();
        }
        finally
        {
            foreach (var node in _nodes)
            {
                node.Crash();
                node.Disk.Dispose();
            }
        }
    }

    public string Describe() => string.Join('\n', _nodes.Select(node => $"node {node.Id}: damaged {node.Damaged}, lost {node.Lost}"));

    public void Trace(string text) => Transcript.Line(NowUs, text);

    public bool TryPut(ShardRecord record, long expectedRevision)
    {
        if (Revision != expectedRevision)
            return false;
        Record = record;
        Revision++;
        Trace($"the record gives epoch {record.Epoch} to replica {record.Leader:x}");
        foreach (var node in _nodes)
            node.RecordChanged(Record, Revision);
        return true;
    }

    public void Send(uint from, uint to, Frame frame)
    {
        if (!Healed && Random.Next(100) == 0)
            return;
        // Through bytes, as on a wire.
        var copy = Frame.Parser.ParseFrom(Google.Protobuf.MessageExtensions.ToByteArray(frame));
        for (var copies = !Healed && Random.Next(50) == 0 ? 2 : 1; copies > 0; copies--)
        {
            var late = !Healed && Random.Next(100) == 0;
            Time.After(20 + Random.NextInt64(late ? 1_000_000 : 500), () =>
            {
                if (_cut.Contains((from, to)))
                    return;
                Transcript.Frame(NowUs, from, to, copy);
                _nodes[to - 1].Receive(copy);
            });
        }
    }

    private void Operation()
    {
        var node = _nodes[Random.Next(3) == 0 ? Random.Next(3) : LeaderHint - 1];
        var floor = _history.Floor;
        var keys = Random.Next(4) == 0 ? [0, 1, 2] : new[] { Random.Next(Keys) };
        if (Random.Next(3) == 0 || Healed)
        {
            node.Get(keys, Random.Next(4) == 0, (etag, values) =>
            {
                Transcript.Answer(NowUs, $"keys {string.Join(' ', keys)} are {string.Join(' ', values)}", etag);
                _history.OnRead(keys, values, etag, floor);
                for (var i = 0; i < keys.Length; i++)
                    _seen[keys[i]] = values[i];
            });
        }
        else
        {
            var writeId = _history.Begin(keys);
            long? expected = Random.Next(3) == 0 ? _seen[keys[0]] : null;
            node.Put(keys, writeId, expected, result => OnWritten(keys, writeId, expected, result, floor));
        }

        Time.After(Random.NextInt64(200, 8_000), Operation);
    }

    private void OnWritten(int[] keys, long writeId, long? expected, WriteResult result, Etag floor)
    {
        Transcript.Answer(NowUs, $"write {writeId} {result.Outcome}", Etag.FromValue(result.Etag));
        _history.OnWrite(writeId, expected, result, floor);
        foreach (var key in result.Outcome == WriteOutcome.Applied ? keys : [])
            _seen[key] = writeId;
    }

    private void NextFault()
    {
        if (Healed)
            return;
        var left = Random.Next(_mix.Sum(entry => entry.Weight));
        Do(_mix.First(entry => (left -= entry.Weight) < 0).Fault, _nodes[Random.Next(2) == 0 ? Random.Next(3) : LeaderHint - 1]);
        Time.After(Random.NextInt64(50_000, 1_200_000), NextFault);
    }

    private void Do(ClusterFault fault, ClusterNode node)
    {
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
            case ClusterFault.Pause:
                node.Pause(Random.NextInt64(200_000, 2_000_000));
                break;
            case ClusterFault.Checkpoint:
                node.Checkpoint();
                break;
            case ClusterFault.HandOver:
                _nodes[LeaderHint - 1].HandOver(Random.Next(2) == 0 ? 0 : node.ReplicaId);
                break;
            case ClusterFault.Damage when _nodes.All(other => !other.Damaged):
                Restart(node, node.Damage);
                break;
            case ClusterFault.FillDisk:
                foreach (var full in Random.Next(3) == 0 ? _nodes : [node])
                    FillDisk(full);
                break;
            case ClusterFault.JumpClock:
                Trace($"the wall clock of node {node.Id} jumps");
                node.JumpWallClock(TimeSpan.FromHours(Random.Next(2) == 0 ? 1 : -1));
                break;
        }
    }

    private void CutOff(ClusterNode node)
    {
        Trace($"node {node.Id} is cut off");
        foreach (var other in _nodes.Where(other => other != node))
        {
            _cut.Add((node.Id, other.Id));
            if (Random.Next(2) == 0)
                _cut.Add((other.Id, node.Id));
        }

        Time.After(Random.NextInt64(2_000_000), _cut.Clear);
    }

    // As the transport does; what it misses, a resting leader's own beats must tell.
    private void WatchNodes()
    {
        foreach (var node in _nodes)
        {
            foreach (var other in _nodes.Where(other => other != node && (other.Replica is null || _cut.Contains((other.Id, node.Id)))))
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

    private void Restart(ClusterNode node, Action whileDown)
    {
        if (node.Replica is null)
            return;
        node.Crash();
        whileDown();
        Time.After(Random.NextInt64(1_000, 500_000), () =>
        {
            if (node.Replica is null)
                node.Start();
        });
    }

    private void Heal()
    {
        Trace("all is healed");
        Healed = true;
        _cut.Clear();
        foreach (var node in _nodes)
            node.Disk.CapacityBytes = long.MaxValue;
        foreach (var node in _nodes.Where(node => node.Replica is null))
            node.Start();
    }

    private bool Agree()
    {
        var working = Working.ToArray();
        var etags = working.Select(node => node.Published()).Distinct().ToArray();
        return etags.Length == 1 && working.Count(node => node.Replica!.IsServing) == 1 && etags[0] >= _history.Floor;
    }

    private void Check()
    {
        Violation.Unless(Agree(), Rule.Converges, $"no agreement after healing: {string.Join(", ", Working.Select(node => node.Published()))}");
        var digests = Working.ToArray().Select(node => node.Digest()).Where(digest => digest is not null).Distinct().ToArray();
        Violation.Unless(digests.Length == 1, Rule.Converges, "the trees differ after healing");
        _history.Check(Working.First(node => !node.Damaged).EtagOf);
    }
}
