using Grpc.Core;
using KvCluster.Client.Transport;
using KvCluster.ServiceDefaults.Calls;
using KvCluster.V1;

namespace KvCluster.Router.Api;

/// <summary>The service Cluster of a router: the shard map as the router knows it, and the status of every node. A singleton.</summary>
internal sealed class ClusterProxy(CallRouter calls, NodeFanOut nodes, RouterOptions options) : Cluster.ClusterBase
{
    public override async Task WatchShards(WatchShardsRequest request, IServerStreamWriter<V1.ShardMap> responseStream, ServerCallContext context)
    {
        if (!await calls.WaitForMapAsync(long.MaxValue, context.CancellationToken).ConfigureAwait(false))
            return;
        ForeignCalls.Check(request.ClusterId, calls.Table.ClusterId);
        var sent = new Sent();
        while (true)
        {
            var change = calls.Table.NextChange();
            if (Since(sent) is { } message)
                await responseStream.WriteAsync(message).ConfigureAwait(false);
            await change.WaitAsync(context.CancellationToken).ConfigureAwait(false);
        }
    }

    public override Task<GetStatusResponse> GetStatus(GetStatusRequest request, ServerCallContext context) =>
        new Cluster.ClusterClient(nodes).GetStatusAsync(
            request, OperatorInvoker.OptionsOf(Deadlines.OfAll(context, options.Timeout), context.CancellationToken)).ResponseAsync;

    // If a shard or a node is gone, the whole map is sent again. Null if nothing has changed.
    private V1.ShardMap? Since(Sent sent)
    {
        var table = calls.Table;
        ShardRoute[] routes = [.. table.Map.Routes];
        var (nodes, admin) = (table.Nodes, table.AdminAddresses);
        var complete = sent.Shards.Count == 0
            || sent.Shards.Keys.Except(routes.Select(route => route.ShardId)).Any() || sent.Nodes.Keys.Except(nodes.Keys).Any();
        if (complete)
        {
            sent.Shards.Clear();
            sent.Nodes.Clear();
        }
        var message =
            new V1.ShardMap { Cluster = table.Cluster, ClusterId = table.ClusterId, Complete = complete, Revision = table.Revision, Lineage = table.Lineage };
        foreach (var route in routes)
        {
            if (sent.Shards.TryGetValue(route.ShardId, out var known) && ReferenceEquals(known, route))
                continue;
            sent.Shards[route.ShardId] = route;
            message.Shards.Add(route);
        }
        foreach (var (node, address) in nodes)
        {
            // A router's callers make operators' calls through it, or at the nodes.
            var described = new NodeAddress { NodeId = node, Address = address, AdminAddress = admin.GetValueOrDefault(node, address) };
            if (sent.Nodes.TryGetValue(node, out var known) && known.Equals(described))
                continue;
            sent.Nodes[node] = described;
            message.Nodes.Add(described);
        }
        return complete || message.Shards.Count > 0 || message.Nodes.Count > 0 ? message : null;
    }

    // The routes and nodes that one stream has sent.
    private sealed class Sent
    {
        public Dictionary<ShardId, ShardRoute> Shards { get; } = [];

        public Dictionary<NodeId, NodeAddress> Nodes { get; } = [];
    }
}
