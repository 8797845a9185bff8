using Grpc.Core;
using KvCluster.Node.Hosting;
using KvCluster.Node.Map;
using KvCluster.Node.Placement;
using KvCluster.Node.Runtime;
using KvCluster.Node.Telemetry;
using KvCluster.ServiceDefaults.Calls;
using KvCluster.ServiceDefaults.Programs;
using KvCluster.V1;

namespace KvCluster.Node.Api.Operators;

/// <summary>The Cluster service of a node: the shard map as this node knows it, and its own status.</summary>
internal sealed class ClusterService(NodeIdentity identity, ShardDirectory directory, ShardHost shards, LeaderPlacement placement, NodeMetrics metrics)
    : Cluster.ClusterBase
{
    public override async Task WatchShards(WatchShardsRequest request, IServerStreamWriter<ShardMap> responseStream, ServerCallContext context)
    {
        ForeignCalls.Check(request.ClusterId, identity.ClusterId);
        var sent = await directory.FirstAsync(context.CancellationToken).ConfigureAwait(false);
        await responseStream.WriteAsync(sent.Describe(identity)).ConfigureAwait(false);
        while (true)
        {
            await sent.Replaced.WaitAsync(context.CancellationToken).ConfigureAwait(false);
            var current = directory.Snapshot;
            var changes = current.Since(sent, identity);
            if (changes.Complete || changes.Shards.Count > 0 || changes.Nodes.Count > 0)
                await responseStream.WriteAsync(changes).ConfigureAwait(false);
            sent = current;
        }
    }

    public override async Task<GetStatusResponse> GetStatus(GetStatusRequest request, ServerCallContext context)
    {
        var status = new NodeStatus
        {
            NodeId = identity.Node, Address = identity.Address, Version = ProgramVersion.Full, Draining = placement.Draining,
            Incarnation = identity.Incarnation, Levels = identity.Levels.ToMessage()
        };
        if (directory.CoordinatorSavedAt is { } saved)
            status.CoordinatorSnapshotUnixUs = saved.ToUnixTimeMilliseconds() * 1_000;
        if (request.Activity)
            (status.Activity, status.Memory) = (metrics.Activity.Tell(), MemoryReport.Of(shards.Memory));
        if (request.History)
            status.History = metrics.History.Tell();
        // Listed before the open ones, so that a replica that is opened meanwhile is not omitted.
        var opening = shards.Opening().Where(replica => !request.HasShard || replica.Route.Shard == request.Shard).ToList();
        var asked = shards.All.Where(shard => !request.HasShard || shard.Shard.Value == request.Shard).ToList();
        status.Replicas.AddRange(await shards.StatusAsync(asked, request.Digest, detail: request.HasShard, context.CancellationToken).ConfigureAwait(false));
        status.Replicas.AddRange(opening.Where(replica => status.Replicas.All(open => open.Route.ShardId != replica.Route.ShardId)));
        return new GetStatusResponse { Cluster = identity.Cluster, Nodes = { status } };
    }
}
