using Grpc.Core;
using KvCluster.Client.Transport;
using KvCluster.V1;

namespace KvCluster.Router.Api;

/// <summary>The service Cluster of a router: the shard map as the router knows it, and the status of every node. A singleton.</summary>
internal sealed class ClusterProxy(CallRouter calls, NodeFanOut nodes, RouterOptions options) : Cluster.ClusterBase
{
    public override async Task WatchShards(WatchShardsRequest request, IServerStreamWriter<V1.ShardMap> responseStream, ServerCallContext context)
    {
        if (!await calls.WaitForMapAsync(long.MaxValue, context.CancellationToken).ConfigureAwait(false))
            return;
        var sent = new Dictionary<ShardId, ShardRoute>();
        while (true)
        {
            var change = calls.Table.NextChange();
            await responseStream.WriteAsync(Since(sent)).ConfigureAwait(false);
            await change.WaitAsync(context.CancellationToken).ConfigureAwait(false);
        }
    }

    public override Task<GetStatusResponse> GetStatus(GetStatusRequest request, ServerCallContext context) =>
        nodes.GetStatusAsync(request, Deadlines.OfAll(context, options.Timeout), context.CancellationToken);

    // There are few nodes, so they are sent each time. If a shard is gone, the whole map is sent again.
    private V1.ShardMap Since(Dictionary<ShardId, ShardRoute> sent)
    {
        var table = calls.Table;
        ShardRoute[] routes = [.. table.Map.Routes];
        var complete = sent.Count == 0 || sent.Keys.Except(routes.Select(route => route.ShardId)).Any();
        if (complete)
            sent.Clear();
        var message = new V1.ShardMap { Cluster = table.Cluster, ClusterId = table.ClusterId, Complete = complete };
        foreach (var route in routes)
        {
            if (sent.TryGetValue(route.ShardId, out var known) && ReferenceEquals(known, route))
                continue;
            sent[route.ShardId] = route;
            message.Shards.Add(route);
        }
        message.Nodes.AddRange(table.Nodes.Select(node => new NodeAddress { NodeId = node.Key, Address = node.Value }));
        return message;
    }
}
