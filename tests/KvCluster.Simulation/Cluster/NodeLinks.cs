using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Shards.Context;
using KvCluster.Replication.Protocol;

namespace KvCluster.Simulation.Cluster;

/// <summary>Sends the frames of a node's replica to other nodes.</summary>
internal sealed class NodeTransport(ClusterRun run, ClusterNode node) : IPeerTransport
{
    // Longer than any caller may wait, and over long before replicas must agree.
    private const long HeldBackUs = 8_000_000;

    private readonly Dictionary<NodeId, long> _heldBackUntilUs = [];

    // Until the writer's pass ends. They are gone with the process.
    private readonly List<(NodeId To, Frame Frame)> _left = [];

    public void Leave(NodeId to, Frame frame) => _left.Add((to, frame));

    public void SendLeft()
    {
        foreach (var (to, frame) in _left)
            SendNow(to, frame);
        _left.Clear();
    }

    public void Send(NodeId to, Frame frame)
    {
        SendLeft();
        SendNow(to, frame);
    }

    private void SendNow(NodeId to, Frame frame)
    {
        if (run.Bug == InjectedBug.BodiesHeldBack && run.Network.IsCut(node.Id, to))
            _heldBackUntilUs[to] = run.NowUs + HeldBackUs;
        if (run.NowUs >= _heldBackUntilUs.GetValueOrDefault(to)
            || frame.PayloadCase is not (Frame.PayloadOneofCase.Append or Frame.PayloadOneofCase.Probe or Frame.PayloadOneofCase.SnapshotChunk))
            run.Network.Send(node.Id, to, frame);
    }
}

/// <summary>The requests of one process of a node to the coordinator.</summary>
internal sealed class NodeCoordination(ClusterRun run, ClusterNode node) : IShardRecords
{
    private readonly ulong _process = node.Process;

    public void Read(ShardId shard, Action<ShardRecordRead> done) =>
        run.Coordinator.Read(node.Id, InProcess<ShardRecordRead>(read => done(node.Believe(read))));

    public void CompareAndSet(ShardId shard, ShardRecord record, long expectedRevision, Action<CompareAndSetResult> done)
    {
        var told = InProcess<CompareAndSetResult>(
            result => done(result.Outcome == SetOutcome.Won && !node.TryKeep(record) ? new CompareAndSetResult(SetOutcome.Unknown, 0) : result));
        if (node.Bound is not null)
            run.Time.After(1, () => told(new CompareAndSetResult(SetOutcome.Lost, 0)));
        else
            run.Coordinator.CompareAndSet(node.Id, record, expectedRevision, told);
    }

    // Acts in the process that asked, or not at all.
    private Action<T> InProcess<T>(Action<T> done) => result => node.Events.Deliver(() =>
    {
        if (node.Replica is not null && node.Process == _process)
            done(result);
    });
}
