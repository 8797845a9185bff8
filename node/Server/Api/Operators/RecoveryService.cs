using Grpc.Core;
using KvCluster.Internal.V1;
using KvCluster.Node.CoordinatorRecovery;
using KvCluster.Node.Transport;
using KvCluster.Storage.Files;
using KvCluster.Tls;

namespace KvCluster.Node.Api.Operators;

/// <summary>The Recovery service: what this node has of the coordinator's records. With TLS only nodes get an answer. Any thread.</summary>
/// <param name="reporter">This node's report.</param>
/// <param name="cluster">The cluster's name.</param>
/// <param name="credentials">Null without TLS.</param>
internal sealed class RecoveryService(NodeReporter reporter, string cluster, CredentialFiles? credentials) : Internal.V1.Recovery.RecoveryBase
{
    public override async Task<ReportResponse> Report(ReportRequest request, ServerCallContext context)
    {
        RequireNode(request.Node, context);
        return new ReportResponse { Report = request.ClusterOnly ? reporter.ReportCluster()
            : await reporter.ReportAsync(claim: null, context.CancellationToken).ConfigureAwait(false) };
    }

    public override async Task<ReportResponse> Bind(BindRequest request, ServerCallContext context)
    {
        RequireNode(request.Node, context);
        var claim = request.Claim ?? throw new RpcException(new Status(StatusCode.InvalidArgument, "The claim is missing."));
        try
        {
            return new ReportResponse { Report = await reporter.ReportAsync(claim, context.CancellationToken).ConfigureAwait(false) };
        }
        catch (StorageIoException failure)
        {
            throw new RpcException(new Status(StatusCode.FailedPrecondition, failure.Message));
        }
    }

    public override Task<ReleaseResponse> Release(BindRequest request, ServerCallContext context)
    {
        RequireNode(request.Node, context);
        try
        {
            reporter.Release(request.Claim ?? new RecoveryClaim());
            return Task.FromResult(new ReleaseResponse());
        }
        catch (StorageIoException failure)
        {
            throw new RpcException(new Status(StatusCode.FailedPrecondition, failure.Message));
        }
    }

    private void RequireNode(uint node, ServerCallContext context) =>
        PeerCertificate.RequireNode(new(node), PeerService.NamesOf(context), cluster, credentials);
}
