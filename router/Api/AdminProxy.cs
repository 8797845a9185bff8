using Grpc.Core;
using KvCluster.Client.Transport;
using KvCluster.V1;

namespace KvCluster.Router.Api;

/// <summary>The service Admin of a router: has every node do it. A singleton.</summary>
internal sealed class AdminProxy(NodeFanOut nodes, RouterOptions options) : Admin.AdminBase
{
    public override Task<CheckpointResponse> Checkpoint(CheckpointRequest request, ServerCallContext context) =>
        nodes.CheckpointAsync(request, Deadlines.Of(context, options.Timeout), context.CancellationToken);
}
