using Google.Protobuf;
using KvCluster.Disk;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Runtime;
using KvCluster.Node.Shards;
using KvCluster.Node.Shards.Context;
using KvCluster.Node.Telemetry;
using KvCluster.Replication.Protocol;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Threads;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>What other shards have left for the end of a writer thread's pass in which one shard's turn takes long. The test runs the thread.</summary>
public sealed class LongTurnTests
{
    /// <summary>Other shards' records, acknowledgements and answers waited for a turn with megabytes.</summary>
    [Theory]
    [InlineData(1 << 10, 0)]
    [InlineData(256 << 10, 1)]
    public async Task Turn_WithManyBytes_GivesFirstWhatOthersHaveLeft(int bytes, int given)
    {
        await using var metrics = new NodeMetrics(new NodeIdentity("turns", "", new(1), 1, ""), shardSeriesMax: 0);
        using var disk = new SimulatedDisk();
        var (writer, rest, others) = (new StepExecutor(), new StepExecutor(), new Others());
        var (woken, answered) = (0, 0);
        var (wakeUps, answers) = (new HeldPosts(writer, _ => woken++), new HeldPosts(writer, _ => answered++));
        var storage = new StoreContext(
            disk, writer, [rest], rest, new ManualTime(), NullLogger.Instance, new StoreOptions { SegmentBytesMin = 256 << 10, ReserveBytes = 4096 }, rest)
        {
            WakeUps = wakeUps,
            AnswerPosts = answers,
        };
        using var store = ReplicaStore.Create(storage, "/shard", new ControlState { ReplicaId = new(1), Shard = new(1) });
        var context = new ShardReplicaContext(
            new(1), 1, storage, storage.Time, others, others, new ReplicationOptions(), 1, static _ => { }, NullLogger.Instance)
        {
            Metrics = metrics,
            Telemetry = new ShardTelemetry(new(1), metrics),
        };
        var record = new ShardRecord { Shard = 1, Generation = 1, Replicas = { new ReplicaRecord { Replica = 1, NodeId = new(1), Created = true } } };
        var replica = new ShardReplica(context, store, record, revision: 1);
        replica.Start();
        while (writer.RunOne() || rest.RunOne())
        {
        }
        others.Given = 0;
        (woken, answered) = (0, 0);
        replica.Mailbox.Receive(new Frame { Shard = 1, Append = new Append { Bodies = { UnsafeByteOperations.UnsafeWrap(new byte[bytes]) } } });
        var item = new WorkAction(static () => { });
        wakeUps.Hold(() => item);
        answers.Hold(() => item);
        Assert.True(writer.RunOne());
        Assert.Equal((given, given, given), (others.Given, woken, answered));
        Assert.Null(replica.Failure);
    }

    /// <summary>The other nodes and the coordinator, which answer nothing.</summary>
    private sealed class Others : IPeerTransport, IShardRecords
    {
        public int Given { get; set; }

        public void Send(NodeId node, Frame frame)
        {
        }

        public void SendLeft() => Given++;

        public void Read(ShardId shard, Action<ShardRecordRead> done)
        {
        }

        public void CompareAndSet(ShardId shard, ShardRecord record, long expectedRevision, Action<CompareAndSetResult> done)
        {
        }
    }
}
