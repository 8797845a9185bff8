// Checks, when a node starts, whether it is already running. The lock file does not show this, because a copied directory has its own. Thread pool only.
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.V1;

namespace KvCluster.Node.Hosting;

/// <summary>Finds a process that is registered as a node and answers.</summary>
internal static class DuplicateNodeProbe
{
    /// <summary>A machine that is gone does not even refuse connections. So its node, started elsewhere, waits for three connections that time out.</summary>
    private const int Attempts = 3;

    private static readonly TimeSpan AnswerTimeMax = TimeSpan.FromSeconds(3);

    /// <summary>The address at which the registered process answers as the node; null if it does not answer or none is registered.</summary>
    /// <param name="coordinator">Provides the node's last registration, which remains for some seconds after its death.</param>
    /// <param name="key">The node's key.</param>
    /// <param name="channelTo">Creates a connection to that node at an address.</param>
    /// <param name="cancellationToken">Cancels the requests.</param>
    /// <exception cref="CoordinatorUnavailableException">The coordinator does not answer.</exception>
    public static async Task<string?> FindAsync(
        ICoordinator coordinator, string key, Func<NodeId, string, GrpcChannel> channelTo, CancellationToken cancellationToken)
    {
        var read = await coordinator.GetAsync(key, cancellationToken).ConfigureAwait(false);
        if (read.Value is null)
            return null;
        var record = RecordText.Parse<NodeRecord>(read.Value);
        for (var attempt = 0; attempt < Attempts; attempt++)
        {
            try
            {
                // For no existing shard, so that the answer waits for no replica.
                using var channel = channelTo(record.NodeId, record.Address);
                var answer = await new V1.Cluster.ClusterClient(channel.Calls()).GetStatusAsync(
                    new GetStatusRequest { Shard = uint.MaxValue }, deadline: DateTime.UtcNow + AnswerTimeMax,
                    cancellationToken: cancellationToken).ConfigureAwait(false);
                return answer.Nodes.Any(node => node.Node == record.Node && node.Incarnation == record.Incarnation) ? record.Address : null;
            }
            catch (Exception failure) when (failure is RpcException or ArgumentException or UriFormatException && !cancellationToken.IsCancellationRequested)
            {
                // Most likely nobody is there. Or the node stalls, and is asked again.
            }
        }
        return null;
    }
}
