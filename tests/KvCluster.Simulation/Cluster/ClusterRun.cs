using KvCluster.Replication;
using KvCluster.Simulation.Protocol;
using KvCluster.Storage;
using KvCluster.V1;

namespace KvCluster.Simulation.Cluster;

/// <summary>Three nodes of one shard from one seed on one thread: the real driver and the real engine, with crashes, loss of power, cuts and delays.</summary>
internal sealed class ClusterRun
{
    private readonly HashSet<(uint From, uint To)> _cut = [];
    private readonly ClusterNode[] _nodes;
    private readonly int _seed;
    private readonly List<long> _acknowledged = [];
    private readonly Dictionary<long, Etag> _etagOf = [];
    private Etag _floor;
    private long _writeIdLast;

    public ClusterRun(int seed, PlantedBug bug = PlantedBug.None)
    {
        _seed = seed;
        Options = new ReplicationOptions { PlantedBug = bug };
        Random = new Random(seed);
        SyncUs = Random.Next(4) == 0 ? 20_000 : 1_000;
        Record = new ShardRecord { Generation = 1 };
        _nodes = [new ClusterNode(this, 1), new ClusterNode(this, 2), new ClusterNode(this, 3)];
        foreach (var node in _nodes)
            Record.Replicas.Add(new ReplicaRecord { Replica = node.ReplicaId, Node = node.Id, Created = true });
    }

    public Random Random { get; }

    public VirtualTime Time { get; } = new();

    public ReplicationOptions Options { get; }

    public long SyncUs { get; }

    public ShardRecord Record { get; private set; }

    public long Revision { get; private set; } = 1;

    public uint LeaderHint { get; set; } = 1;

    public bool Healed { get; private set; }

    public int Acknowledged => _acknowledged.Count;

    public int ReadsAnswered { get; private set; }

    public void Run()
    {
        try
        {
            foreach (var node in _nodes)
                node.Start();
            for (var client = 0; client < 2; client++)
                Time.After(1_000, Operation);
            Time.After(Random.NextInt64(800_000), NextFault);
            Time.RunUntil(4_000_000, () => false);
            Heal();
            var endUs = Time.NowUs + 20_000_000;
            Time.RunUntil(Time.NowUs + 3_000_000, () => false);
            Time.RunUntil(endUs, Agree);
            Check();
        }
        catch (Exception first)
        {
            throw new SimulationFailedException($"KV_SEED={_seed} replays this: {first}", first);
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

    public bool TryPut(ShardRecord record, long expectedRevision)
    {
        if (Revision != expectedRevision)
            return false;
        Record = record;
        Revision++;
        foreach (var node in _nodes)
            node.Replica?.RecordChanged(Record, Revision);
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
                if (!_cut.Contains((from, to)))
                    _nodes[to - 1].Replica?.Receive(copy);
            });
        }
    }

    private void Operation()
    {
        var node = _nodes[Random.Next(3) == 0 ? Random.Next(3) : LeaderHint - 1];
        var floor = _floor;
        if (Random.Next(3) == 0)
        {
            node.Get(Random.Next(3), Random.Next(4) == 0, (etag, value) =>
            {
                Violation.Unless(etag >= floor, $"a read saw {etag}, but {floor} was answered before it was sent");
                Violation.Unless(value == 0 || !_etagOf.TryGetValue(value, out var written) || written <= etag, $"a read at {etag} saw write {value} of later");
                _floor = etag > _floor ? etag : _floor;
                ReadsAnswered++;
            });
        }
        else if (!Healed)
        {
            var writeId = ++_writeIdLast;
            node.Put(Random.Next(3), writeId, result => OnWritten(writeId, result, floor));
        }

        Time.After(Random.NextInt64(200, 8_000), Operation);
    }

    private void OnWritten(long writeId, WriteResult result, Etag floor)
    {
        if (result.Outcome != WriteOutcome.Applied)
            return;
        var etag = Etag.FromValue(result.Etag);
        Violation.Unless(etag > floor, $"write {writeId} has etag {etag}, but {floor} was answered before it was sent");
        _floor = etag > _floor ? etag : _floor;
        _etagOf[writeId] = etag;
        _acknowledged.Add(writeId);
    }

    private void NextFault()
    {
        if (Healed)
            return;
        var node = _nodes[Random.Next(2) == 0 ? Random.Next(3) : LeaderHint - 1];
        switch (Random.Next(10))
        {
            case < 4:
                Restart(node);
                break;
            case 4:
                foreach (var other in _nodes)
                    Restart(other);
                break;
            case < 8:
                foreach (var other in _nodes.Where(other => other != node))
                {
                    _cut.Add((node.Id, other.Id));
                    if (Random.Next(2) == 0)
                        _cut.Add((other.Id, node.Id));
                }

                Time.After(Random.NextInt64(2_000_000), _cut.Clear);
                break;
            default:
                node.Checkpoint();
                break;
        }

        Time.After(Random.NextInt64(50_000, 1_200_000), NextFault);
    }

    private void Restart(ClusterNode node)
    {
        if (node.Replica is null)
            return;
        node.Crash();
        Time.After(Random.NextInt64(1_000, 500_000), () =>
        {
            if (node.Replica is null)
                node.Start();
        });
    }

    private void Heal()
    {
        Healed = true;
        _cut.Clear();
        foreach (var node in _nodes.Where(node => node.Replica is null))
            node.Start();
    }

    private bool Agree()
    {
        var etags = _nodes.Select(node => PublishedOf(node)).Distinct().ToArray();
        return etags.Length == 1 && _nodes.Count(node => node.Replica!.IsServing) == 1 && etags[0] >= _floor.Value;
    }

    private static UInt128 PublishedOf(ClusterNode node)
    {
        using var snapshot = node.Replica!.OpenSnapshot();
        return snapshot.Etag;
    }

    private void Check()
    {
        Violation.Unless(Agree(), $"no agreement after healing: {string.Join(", ", _nodes.Select(node => KvCluster.Etag.FromValue(PublishedOf(node))))}");
        var states = _nodes.Select(node => node.State()).ToArray();
        Violation.Unless(states.All(state => state == states[0]), "the trees differ after healing");
        foreach (var writeId in _acknowledged)
            Violation.Unless(_nodes[0].Has(writeId), $"the acknowledged write {writeId} is lost");
    }
}
