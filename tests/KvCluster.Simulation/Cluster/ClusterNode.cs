using System.Buffers.Binary;
using System.Text;
using KvCluster.Disk;
using KvCluster.Node.Shards;
using KvCluster.Replication;
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
    private readonly NodeClock _clock = new(run.Time);
    private List<Action> _whilePaused = [];
    private ReplicaStore? _store;
    private DigestsCompared? _compared;
    private int _paused;
    private ulong _starts;

    public uint Id { get; } = id;

    public SimulatedDisk Disk { get; } = new();

    public ShardReplica? Replica { get; private set; }

    public ulong ReplicaId => Id * 11;

    /// <summary>Its disk was damaged: it may refuse to start, or stop, and is then gone for this run.</summary>
    public bool Damaged { get; private set; }

    /// <summary>Gone for good.</summary>
    public bool Lost { get; private set; }

    public void Start()
    {
        if (Lost)
            return;
        run.Trace($"node {Id} starts");
        var writer = new VirtualExecutor(run.Time, run.Random, () => 20, Guarded);
        VirtualExecutor[] lanes = [.. Enumerable.Range(0, 2).Select(_ => new VirtualExecutor(run.Time, run.Random, () => run.SyncUs, Guarded))];
        var checkpoints = new VirtualExecutor(run.Time, run.Random, () => 5 * run.SyncUs, Guarded);
        var completions = new VirtualExecutor(run.Time, run.Random, () => 20, Guarded);
        _executors = [writer, .. lanes, checkpoints, completions];
        // While one lane writes, the writer and the other lane go on, so that a later write may be durable before it.
        Disk.DuringWrite = _ =>
        {
            if (lanes.Any(lane => lane.IsRunning) && run.Random.Next(4) == 0 && writer.RunOneBeside())
                lanes.Any(lane => lane.RunOneBeside());
        };
        var options = new StoreOptions { SegmentBytesMin = 64 << 10, SegmentBytesMax = 256 << 10, RetainedJournalBytes = 64 << 10, Pages = new PageStoreOptions { MapBytes = 64 << 20 } };
        var storage = new StoreContext(Disk, writer, lanes, checkpoints, _clock, NullLogger.Instance, options, completions);
        Disk.CreateDirectory("/data");
        Disk.SyncDirectory("/");
        try
        {
            _store = Disk.DirectoryExists(Directory)
                ? ReplicaStore.Open(storage, Directory)
                : ReplicaStore.Create(storage, Directory, new ControlState { ReplicaId = ReplicaId, Shard = 0 });
        }
        catch (Exception refused) when (Damaged && refused is RecoveryRefusedException or CorruptStoreException)
        {
            Lose(refused);
            return;
        }

        var context = new ShardReplicaContext(
            Id, (++_starts << 32) | (uint)run.Random.Next(), storage, _clock, new Transport(run, this), new Coordination(run, this), run.Options,
            (ulong)run.Random.NextInt64(), route => run.LeaderHint = route.Leader == 0 ? run.LeaderHint : route.Leader, NullLogger.Instance);
        Replica = new ShardReplica(context, _store, run.Record, run.Revision);
        Replica.Start();
    }

    public void Crash()
    {
        if (Replica is null)
            return;
        run.Trace($"node {Id} crashes");
        End();
        Disk.Restart((UnsyncedWrites)run.Random.Next(4), run.Random.Next());
    }

    /// <summary>While it is down, one bit of one file of its replica changes.</summary>
    public void Damage()
    {
        var files = FilesIn(Directory).Where(file => Disk.ReadAll(file).Length > 0).ToArray();
        var path = files[run.Random.Next(files.Length)];
        // Where something is written more often than not: behind what is used nothing is read.
        var length = Disk.ReadAll(path).Length;
        var offset = run.Random.Next(run.Random.Next(2) == 0 ? length : Math.Min(length, 64 << 10));
        run.Trace($"a bit of {path} of node {Id} flips at {offset}");
        Disk.FlipBit(path, offset);
        Damaged = true;
    }

    /// <summary>Stops the process as SIGSTOP does: everything that reaches it waits.</summary>
    public void Pause(long forUs)
    {
        run.Trace($"node {Id} is stopped for {forUs / 1000} ms");
        _paused++;
        run.Time.After(forUs, () =>
        {
            _paused--;
            var waiting = _whilePaused;
            _whilePaused = [];
            foreach (var action in waiting)
                Deliver(action);
        });
    }

    /// <summary>Its wall clock jumps; its boot clock does not.</summary>
    public void JumpWallClock(TimeSpan by) => _clock.WallOffset += by;

    public void Receive(Frame frame) => Deliver(() => Replica?.Receive(frame));

    public void NodeSilent(uint node) => Deliver(() => Replica?.NodeSilent(node));

    public void RecordChanged(ShardRecord record, long revision) => Deliver(() => Replica?.RecordChanged(record, revision));

    /// <summary>Puts the keys and a key of its own for the write, if the first key has the value expected.</summary>
    public void Put(int[] keys, long writeId, long? expected, Action<WriteResult> done) => Deliver(() =>
    {
        if (Replica is null)
            return;
        var request = WriteRequest.Rent();
        if (expected == 0)
            request.AddCondition(Key(keys[0]), ConditionKind.Absent);
        else if (expected is { } value)
            request.AddCondition(Key(keys[0]), ConditionKind.ValueEquals, value: Value(value));
        foreach (var key in keys)
            request.Put(Key(key), Value(writeId));
        request.Put(Marker(writeId), Value(writeId));
        Poll(Replica.WriteAsync(request).AsTask(), done);
    });

    /// <summary>Reads keys at one snapshot, linearizably.</summary>
    public void Get(int[] keys, bool quorum, Action<Etag, long[]> done) => Deliver(() =>
    {
        if (Replica is null)
            return;
        if (!quorum && Replica.TryOpenLinearizable(out var snapshot))
        {
            Read(snapshot, keys, done);
            return;
        }

        var replica = Replica;
        Poll(replica.ConfirmReadAsync(CancellationToken.None), confirmed =>
        {
            if (confirmed is not null)
                Read(replica.OpenSnapshot(), keys, done);
        });
    });

    public void Checkpoint() => Deliver(() =>
    {
        if (Replica is not null)
            Poll(Replica.CheckpointAsync(), _ => { });
    });

    /// <summary>An operator asks it to hand its leadership over.</summary>
    public void HandOver(ulong replica) => Deliver(() =>
    {
        if (Replica is null)
            return;
        run.Trace($"node {Id} is asked to hand over");
        // Its end comes over the thread pool, at a poll that may be another one the next time: it is counted, and not part of the course that replays.
        Poll(Replica.TransferAsync(replica), result => run.HandOvers += result.Done ? 1 : 0);
    });

    public Etag Published()
    {
        using var snapshot = Replica!.OpenSnapshot();
        return Etag.FromValue(snapshot.Etag);
    }

    /// <summary>Digest of the published state; null if damage was found, which ends this node.</summary>
    public string? Digest()
    {
        try
        {
            using var snapshot = Replica!.OpenSnapshot();
            return Convert.ToHexString(ReplicaStore.Digest(snapshot));
        }
        catch (CorruptStoreException found) when (Damaged)
        {
            Lose(found);
            return null;
        }
    }

    /// <summary>Where a write is in the published state; none: not there.</summary>
    public Etag EtagOf(long writeId)
    {
        using var snapshot = Replica!.OpenSnapshot();
        if (!snapshot.TryGet(TreeId.Kv, Marker(writeId), out var stored))
            return Etag.None;
        KvValue.Read(stored, out var etag);
        return Etag.FromValue(etag);
    }

    private IEnumerable<string> FilesIn(string directory) => Disk.List(directory)
        .Order(StringComparer.Ordinal)
        .Select(name => $"{directory}/{name}")
        .SelectMany(path => Disk.DirectoryExists(path) ? FilesIn(path) : [path]);

    private static byte[] Key(int key) => Encoding.UTF8.GetBytes($"key{key}");

    private static byte[] Marker(long writeId) => Encoding.UTF8.GetBytes($"write{writeId:D8}");

    private static byte[] Value(long writeId)
    {
        var value = new byte[8];
        BinaryPrimitives.WriteInt64LittleEndian(value, writeId);
        return value;
    }

    private void Read(ReadSnapshot snapshot, int[] keys, Action<Etag, long[]> done)
    {
        using (snapshot)
        {
            var values = new long[keys.Length];
            try
            {
                for (var i = 0; i < keys.Length; i++)
                {
                    if (snapshot.TryGet(TreeId.Kv, Key(keys[i]), out var stored))
                        values[i] = BinaryPrimitives.ReadInt64LittleEndian(KvValue.Read(stored, out _));
                }
            }
            catch (CorruptStoreException found) when (Damaged)
            {
                Lose(found);
                return;
            }

            done(Etag.FromValue(snapshot.Etag), values);
        }
    }

    private void Lose(Exception found)
    {
        run.Trace($"node {Id} is lost: {found.Message}");
        Lost = true;
        if (Replica is not null)
            End();
    }

    private void End()
    {
        foreach (var executor in _executors)
            executor.Kill();
        Replica = null;
        _pending.Clear();
        _whilePaused.Clear();
        _store!.Dispose();
    }

    private void Poll<T>(Task<T> task, Action<T> done)
    {
        bool Completed()
        {
            if (!task.IsCompleted)
                return false;
            // An answer that is an error: the process stops, or is asked to and had stopped before. What it means, the replica's own failure says.
            if (task.IsCompletedSuccessfully)
                done(task.Result);
            return true;
        }

        if (!Completed())
            _pending.Add(Completed);
    }

    private void Deliver(Action action)
    {
        if (_paused > 0)
            _whilePaused.Add(action);
        else
            action();
    }

    // After each item: what failed fails the run, and answers are seen at once.
    private void Guarded(Action item) => Deliver(() =>
    {
        if (Replica is null && _store is null)
            return;
        item();
        if (Replica?.Failure is { } failure)
        {
            Violation.Unless(Damaged, failure is Replication.InvariantException ? Rule.Invariant : Rule.GoesOn, $"the replica on node {Id} stops: {failure.Message}");
            Lose(failure);
            return;
        }

        if (Replica?.DigestsCompared is { } compared && compared != _compared)
        {
            _compared = compared;
            run.DigestsCompared++;
        }

        foreach (var completed in _pending.ToArray())
        {
            if (completed())
                _pending.Remove(completed);
        }
    });

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
