// What the other nodes go by. Asked once by a node that starts, before it follows its coordinator: a node without which the records were rebuilt knows of no
// recovery, so it would take the store of before, which is back and whose address it still has, for the cluster's. On the thread pool. A node that does not
// answer is no reason to wait.
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Internal.V1;
using KvCluster.Node.Hosting;

namespace KvCluster.Node.CoordinatorRecovery;

/// <summary>The latest recovery that another node has joined.</summary>
/// <param name="Node">That node.</param>
/// <param name="Number">The recovery's number.</param>
internal sealed record JoinedElsewhere(NodeId Node, ulong Number)
{
    /// <summary>A node that is there answers from memory. One that is paused, or behind a network that drops everything, delays the start by this.</summary>
    private static readonly TimeSpan AnswerTimeMax = TimeSpan.FromSeconds(3);

    /// <summary>Asks the nodes of the cluster that a data directory knows.</summary>
    /// <param name="node">The node that asks.</param>
    /// <param name="known">Its records.</param>
    /// <param name="channelTo">Creates a connection to a node at an address; disposed by this method.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>Null if no other node of the same cluster and lineage answers.</returns>
    public static async Task<JoinedElsewhere?> FindAsync(
        NodeId node, KnownRecords known, Func<NodeId, string, GrpcChannel> channelTo, CancellationToken cancellationToken)
    {
        if (known.Cluster is not { } own)
            return null;
        var others = known.Nodes.Where(other => other.NodeId != node && other.PeerAddress.Length > 0).ToList();
        var answers = await Task.WhenAll(others.Select(other => AskAsync(node, other, own, channelTo, cancellationToken))).ConfigureAwait(false);
        return answers.OfType<JoinedElsewhere>().MaxBy(static joined => joined.Number);
    }

    /// <summary>
    /// Why a coordinator has an earlier state of the cluster; null if it does not. A recovery is complete only with a majority of every shard, so nobody needs
    /// an earlier one any more.
    /// </summary>
    /// <param name="record">The cluster's record there.</param>
    public string? WhyOlder(ClusterRecord record) =>
        record.Recovery < Number ? $"its records are older, of recovery {record.Recovery}, and node {Node} has joined recovery {Number}" : null;

    private static async Task<JoinedElsewhere?> AskAsync(
        NodeId node, NodeRecord other, ClusterRecord own, Func<NodeId, string, GrpcChannel> channelTo, CancellationToken cancellationToken)
    {
        try
        {
            using var channel = channelTo(other.NodeId, other.PeerAddress);
            var request = new ReportRequest { Node = node.Value, ClusterOnly = true };
            var answer = await new Internal.V1.Recovery.RecoveryClient(channel.Calls())
                .ReportAsync(request, deadline: DateTime.UtcNow + AnswerTimeMax, cancellationToken: cancellationToken).ConfigureAwait(false);
            return answer.Report is { Cluster: { } joined } report
                && report.Node == other.Node && joined.ClusterId == own.ClusterId && joined.Lineage.Equals(own.Lineage)
                ? new JoinedElsewhere(other.NodeId, joined.Recovery)
                : null;
        }
        catch (Exception failure) when (failure is RpcException or ArgumentException or UriFormatException)
        {
            // A call that was cancelled ends with its status, and a node that is stopped meanwhile has not failed.
            cancellationToken.ThrowIfCancellationRequested();
            // The other node is down, or starts at the same time. Its answer is not needed for safety, because this node's replicas count for nothing in a
            // recovery that was made without them.
            return null;
        }
    }
}
