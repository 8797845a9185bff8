using System.Buffers.Binary;
using System.Text;
using KvCluster.Disk;
using KvCluster.Node.Shards;
using KvCluster.Storage;
using KvCluster.Storage.Pages;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;
using WriteRequest = KvCluster.Storage.WriteRequest;

namespace KvCluster.Simulation.Cluster;

/// <summary>One node with one replica: the real <see cref="ShardReplica"/> over the real <see cref="ReplicaStore"/> on a simulated disk.</summary>
internal sealed class ClusterNode(ClusterRun run, uint id)
{
    private const string Directory = "/data/shard";

    private readonly List<Func<bool>> _pending = [];
    private VirtualExecutor[] _executors = [];
    private ReplicaStore? _store;

    public uint Id { get; } = id;

    public SimulatedDisk Disk { get; } = new();

    public ShardReplica? Replica { get; private set; }

    public ulong ReplicaId => Id * 11;

    public void Start()
    {
        var writer = new VirtualExecutor(run.Time, run.Random, () => 20, Guarded);
        var journal = new VirtualExecutor(run.Time, run.Random, () => run.SyncUs, Guarded);
        var checkpoints = new VirtualExecutor(run.Time, run.Random, () => 5 * run.SyncUs, Guarded);
        var completions = new VirtualExecutor(run.Time, run.Random, () => 20, Guarded);
        _executors = [writer, journal, checkpoints, completions];
        var options = new StoreOptions { SegmentBytesMin = 64 << 10, SegmentBytesMax = 256 << 10, RetainedJournalBytes = 64 << 10, Pages = new PageStoreOptions { MapBytes = 64 << 20 } };
        var storage = new StoreContext(Disk, writer, journal, checkpoints, run.Time, NullLogger.Instance, options, completions);
        Disk.CreateDirectory("/data");
        Disk.SyncDirectory("/");
        _store = Disk.DirectoryExists(Directory)
            ? ReplicaStore.Open(storage, Directory, mayRefill: true)
            : ReplicaStore.Create(storage, Directory, new ControlState { ReplicaId = ReplicaId, Shard = 0 });
        var context = new ShardReplicaContext(
            Id, (ulong)run.Random.NextInt64(1, long.MaxValue), storage, run.Time, new Transport(run, this), new Coordination(run, this), run.Options,
            (ulong)run.Random.NextInt64(), route => run.LeaderHint = route.Leader == 0 ? run.LeaderHint : route.Leader, NullLogger.Instance);
        Replica = new ShardReplica(context, _store, run.Record, run.Revision);
        Replica.Start();
    }

    public void Crash()
    {
        if (Replica is null)
            return;
        foreach (var executor in _executors)
            executor.Kill();
        Replica = null;
        _pending.Clear();
        _store!.Dispose();
        Disk.Restart((UnsyncedWrites)run.Random.Next(4), run.Random.Next());
    }

    public void Put(int key, long writeId, Action<WriteResult> done)
    {
        if (Replica is null)
            return;
        var request = WriteRequest.Rent();
        var value = new byte[8];
        BinaryPrimitives.WriteInt64LittleEndian(value, writeId);
        request.Put(Encoding.UTF8.GetBytes($"key{key}"), value);
        request.Put(Encoding.UTF8.GetBytes($"write{writeId:D8}"), value);
        var answer = Replica.WriteAsync(request).AsTask();
        Poll(() => Completed(answer, done));
    }

    public void Get(int key, bool quorum, Action<Etag, long> done)
    {
        if (Replica is null)
            return;
        if (!quorum && Replica.TryOpenLinearizable(out var snapshot))
        {
            Read(snapshot, key, done);
            return;
        }

        var replica = Replica;
        var confirmed = replica.ConfirmReadAsync(CancellationToken.None);
        Poll(() => Completed(confirmed, leads =>
        {
            if (leads)
                Read(replica.OpenSnapshot(), key, done);
        }));
    }

    public void Checkpoint()
    {
        if (Replica is null)
            return;
        var checkpoint = Replica.CheckpointAsync();
        Poll(() => Completed(checkpoint, _ => { }));
    }

    /// <summary>Etag and digest of the published state, and whether a write is in it.</summary>
    public (UInt128 Etag, string Digest) State()
    {
        using var snapshot = Replica!.OpenSnapshot();
        return (snapshot.Etag, Convert.ToHexString(ReplicaStore.Digest(snapshot)));
    }

    public bool Has(long writeId)
    {
        using var snapshot = Replica!.OpenSnapshot();
        return snapshot.TryGet(TreeId.Kv, Encoding.UTF8.GetBytes($"write{writeId:D8}"), out _);
    }

    private static void Read(ReadSnapshot snapshot, int key, Action<Etag, long> done)
    {
        using (snapshot)
        {
            var found = snapshot.TryGet(TreeId.Kv, Encoding.UTF8.GetBytes($"key{key}"), out var stored);
            done(Etag.FromValue(snapshot.Etag), found ? BinaryPrimitives.ReadInt64LittleEndian(KvValue.Read(stored, out _)) : 0);
        }
    }

    private static bool Completed<T>(Task<T> task, Action<T> done)
    {
        if (!task.IsCompleted)
            return false;
        done(task.GetAwaiter().GetResult());
        return true;
    }

    private void Poll(Func<bool> completed)
    {
        if (!completed())
            _pending.Add(completed);
    }

    // After each item: what failed fails the run, and answers are seen at once.
    private void Guarded(Action item)
    {
        item();
        if (Replica?.Failure is { } failure)
            throw new InvalidOperationException($"the replica on node {Id} stopped: {failure.Message}", failure);
        foreach (var completed in _pending.ToArray())
        {
            if (completed())
                _pending.Remove(completed);
        }
    }

    private sealed class Transport(ClusterRun run, ClusterNode node) : IPeerTransport
    {
        public void Send(uint to, Frame frame) => run.Send(node.Id, to, frame);
    }

    private sealed class Coordination(ClusterRun run, ClusterNode node) : IShardCoordination
    {
        public void Read(uint shard, Action<ShardRecordRead> done) => Answer(() => new ShardRecordRead(run.Record, run.Revision, null), done);

        public void CompareAndSet(uint shard, ShardRecord record, long expectedRevision, Action<CompareAndSetResult> done)
        {
            var ambiguous = !run.Healed && run.Random.Next(6) == 0;
            Answer(
                () =>
                {
                    var won = run.TryPut(record, expectedRevision);
                    return ambiguous ? new CompareAndSetResult(CompareAndSetOutcome.Unknown, 0) : new CompareAndSetResult(won ? CompareAndSetOutcome.Won : CompareAndSetOutcome.Lost, run.Revision);
                },
                done);
        }

        private void Answer<T>(Func<T> act, Action<T> done)
        {
            var replica = node.Replica;
            run.Time.After(run.Random.NextInt64(100, 3_000), () =>
            {
                var result = act();
                run.Time.After(run.Random.NextInt64(100, 3_000), () =>
                {
                    if (node.Replica == replica)
                        done(result);
                });
            });
        }
    }
}
