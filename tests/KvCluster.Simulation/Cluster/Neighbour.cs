using System.Buffers.Binary;
using Google.Protobuf;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Shards;
using KvCluster.Node.Shards.Context;
using KvCluster.Node.Telemetry;
using KvCluster.Replication.Protocol;
using KvCluster.Storage;
using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// Another shard in a node's process, with its only replica there: the real <see cref="ShardReplica"/> on the executors and the disk of the shard
/// under test. It must accept writes as long as the process runs, whatever becomes of the shard under test.
/// </summary>
internal sealed class Neighbour(ClusterRun run, ClusterNode node) : IPeerTransport, IShardRecords
{
    private const string Directory = "/data/neighbour";
    private const long IntervalUs = 20_000;

    // It elects itself after a wait for its former grants, and a write takes some syncs.
    private const long SilentMaxUs = 3_000_000;

    private ShardRecord _record = new()
    {
        Shard = node.Id.Value,
        // Without gaps, so that a watch can go over several.
        Start = ByteString.CopyFromUtf8(node.Id.Value == 1 ? "n" : $"n{node.Id}/"),
        End = ByteString.CopyFromUtf8($"n{node.Id.Value + 1}/"),
        Generation = 1,
        Replicas = { new ReplicaRecord { Replica = 1_000_000 + node.Id.Value, NodeId = node.Id, Created = true } },
    };

    private long _revision = 1;
    private ReplicaStore? _store;
    private ShardReplica? _replica;
    private Task<WriteResult>? _write;
    private long _writeLast;
    private long _acknowledgedLast;
    private long _heardUs;

    /// <summary>The number of writes answered as applied.</summary>
    public long Acknowledged { get; private set; }

    public bool IsServing => _replica is { IsServing: true };

    /// <summary>Null if its process does not run.</summary>
    public ShardReplica? Replica => _replica;

    /// <summary>Its record at the coordinator. Each node's neighbour has its own range.</summary>
    public ShardRecord Record => _record;

    public long Revision => _revision;

    /// <summary>The process has started.</summary>
    /// <param name="context">The context of the replica beside it.</param>
    public void Open(ShardReplicaContext context)
    {
        _store = node.Disk.Files.DirectoryExists(Directory)
            ? ReplicaStore.Open(context.Storage, Directory)
            : ReplicaStore.Create(context.Storage, Directory, new ControlState { ReplicaId = _record.Replicas[0].ReplicaId, Shard = new(node.Id.Value) });
        var opened = _replica = new ShardReplica(
            context with
            {
                Peers = this,
                Records = this,
                RouteChanged = _ => node.RenewMap(),
                Telemetry = new ShardTelemetry(new(node.Id.Value), context.Metrics),
                Failed = failure =>
                    _ = node.Disk.Files.IsOff ? failure : throw new Violation(Rule.GoesOn, $"the other shard on node {node.Id} stops: {failure.Message}"),
            },
            _store, _record, _revision);
        _heardUs = run.NowUs;
        opened.Start();
        Later(IntervalUs, Write);
    }

    /// <summary>The process has ended, with its executors.</summary>
    public void End()
    {
        _store?.Dispose();
        (_store, _replica, _write) = (null, null, null);
    }

    /// <summary>A work item of the process has run.</summary>
    public void Look()
    {
        if (_write is not { IsCompleted: true } write)
            return;
        _write = null;
        if (write.Result.Outcome != WriteOutcome.Applied)
            return;
        (_acknowledgedLast, _heardUs) = (_writeLast, run.NowUs);
        Acknowledged++;
    }

    void IPeerTransport.Send(NodeId to, Frame frame) => throw new Violation(Rule.Contract, $"a shard's only replica sends a frame to node {to}");

    void IShardRecords.Read(ShardId shard, Action<ShardRecordRead> done) => Later(1_000, () => done(new ShardRecordRead(_record, _revision)));

    void IShardRecords.CompareAndSet(ShardId shard, ShardRecord record, long expectedRevision, Action<CompareAndSetResult> done) => Later(1_000, () =>
    {
        var won = expectedRevision == _revision;
        if (won)
            (_record, _revision) = (record, _revision + 1);
        done(new CompareAndSetResult(won ? SetOutcome.Won : SetOutcome.Lost, _revision));
    });

    private static byte[] Key => "last"u8.ToArray();

    private void Write()
    {
        Violation.Unless(run.NowUs - _heardUs <= SilentMaxUs, Rule.GoesOn, $"the other shard on node {node.Id} has taken no write for {SilentMaxUs / 1000} ms");
        if (_write is null && IsServing)
        {
            CheckKept();
            var request = WriteRequest.Rent();
            var value = new byte[sizeof(long)];
            BinaryPrimitives.WriteInt64LittleEndian(value, ++_writeLast);
            request.Put(Key, value);
            _write = _replica!.Writes.SubmitAsync(request).AsTask();
        }

        Later(IntervalUs, Write);
    }

    // Including everything acknowledged before a restart.
    private void CheckKept()
    {
        using var snapshot = _replica!.Reads.OpenSnapshot();
        var kept = snapshot.TryGet(TreeId.Kv, Key, out var stored) ? BinaryPrimitives.ReadInt64LittleEndian(KvValue.Read(stored, out _)) : 0;
        Violation.Unless(
            kept >= _acknowledgedLast && kept <= _writeLast, Rule.CommittedStays,
            $"the other shard on node {node.Id} has write {kept}, of {_writeLast} sent and {_acknowledgedLast} acknowledged");
    }

    // Acts in the process that asked, or not at all.
    private void Later(long afterUs, Action action)
    {
        var asked = _replica;
        run.Time.After(afterUs, () =>
        {
            if (asked is not null && asked == _replica)
                action();
        });
    }
}
