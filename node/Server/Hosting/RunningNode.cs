// Asks, when a node starts, whether it runs already: a copied folder has no lock in common with the original. Thread pool only.
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Node.Coordination;
using KvCluster.V1;

namespace KvCluster.Node.Hosting;

/// <summary>Finds the process that is registered as a node and answers.</summary>
internal static class RunningNode
{
    /// <summary>A machine that is gone answers nothing: its node, started elsewhere, waits for three connections that are not made.</summary>
    private const int Attempts = 3;

    private static readonly TimeSpan AnswerTimeMax = TimeSpan.FromSeconds(3);

    /// <summary>Where the node answers as the process that is registered; null: it does not, or is not registered.</summary>
    /// <param name="coordinator">Knows where each node registered last, for some seconds after its death, too.</param>
    /// <param name="key">The node's.</param>
    /// <param name="channelTo">Makes a connection to that node at an address.</param>
    /// <param name="cancellationToken">Stops asking.</param>
    /// <exception cref="CoordinatorUnavailableException">The coordinator does not answer.</exception>
    public static async Task<string?> FindAsync(ICoordinator coordinator, string key, Func<uint, string, GrpcChannel> channelTo, CancellationToken cancellationToken)
    {
        var read = await coordinator.GetAsync(key, cancellationToken).ConfigureAwait(false);
        if (read.Value is null)
            return null;
        var record = RecordText.Parse<NodeRecord>(read.Value);
        for (var attempt = 0; attempt < Attempts; attempt++)
        {
            try
            {
                // Of no shard, so that the answer waits for no replica.
                using var channel = channelTo(record.Node, record.Address);
                var answer = await new V1.Cluster.ClusterClient(channel).GetStatusAsync(new GetStatusRequest { Shard = uint.MaxValue }, deadline: DateTime.UtcNow + AnswerTimeMax, cancellationToken: cancellationToken).ConfigureAwait(false);
                return answer.Nodes.Any(node => node.Node == record.Node && node.Incarnation == record.Incarnation) ? record.Address : null;
            }
            catch (Exception failure) when (failure is RpcException or ArgumentException or UriFormatException && !cancellationToken.IsCancellationRequested)
            {
                // Nobody there, most likely; or one that stalls, and is asked again.
            }
        }
        return null;
    }
}
