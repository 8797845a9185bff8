using Grpc.Core;
using KvCluster.Internal.V1;
using KvCluster.Node.Recovery;
using KvCluster.Node.Transport;
using KvCluster.Tls;

namespace KvCluster.Node.Api;

/// <summary>The Recovery service: what this node has of the coordinator's records. With TLS only nodes get an answer. Any thread.</summary>
/// <param name="reporter">This node's report.</param>
/// <param name="cluster">The cluster's name.</param>
/// <param name="credentials">Null without TLS.</param>
internal sealed class RecoveryService(NodeReporter reporter, string cluster, CredentialFiles? credentials) : Internal.V1.Recovery.RecoveryBase
{
    public override async Task<ReportResponse> Report(ReportRequest request, ServerCallContext context)
    {
        PeerTransport.RequireNode(new(request.Node), PeerService.NamesOf(context), cluster, credentials);
        return new ReportResponse { Report = await reporter.ReportAsync(context.CancellationToken).ConfigureAwait(false) };
    }
}
