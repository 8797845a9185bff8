using Grpc.Core;
using KvCluster.Internal.Etcd;
using KvCluster.Node.Coordination.Etcd;

namespace KvCluster.Node.Coordination.Embedded;

/// <summary>etcd's Lease service over an embedded coordinator.</summary>
internal sealed class EtcdLeaseService(EmbeddedCoordinator coordinator) : Lease.LeaseBase
{
    public override Task<LeaseGrantResponse> LeaseGrant(LeaseGrantRequest request, ServerCallContext context) =>
        EtcdStatus.Answer(() => coordinator.Grant(request));

    public override Task<LeaseRevokeResponse> LeaseRevoke(LeaseRevokeRequest request, ServerCallContext context) =>
        EtcdStatus.Answer(() => coordinator.TryEnd(request.ID)
            ? new LeaseRevokeResponse { Header = coordinator.Header() }
            : throw new CoordinatorRequestException("etcdserver: requested lease not found", isNotFound: true));

    public override async Task LeaseKeepAlive(
        IAsyncStreamReader<LeaseKeepAliveRequest> requestStream, IServerStreamWriter<LeaseKeepAliveResponse> responseStream, ServerCallContext context)
    {
        while (await requestStream.MoveNext(context.CancellationToken).ConfigureAwait(false))
        {
            var lease = requestStream.Current.ID;
            await responseStream.WriteAsync(await EtcdStatus.Answer(() => coordinator.KeepAlive(lease)).ConfigureAwait(false)).ConfigureAwait(false);
        }
    }
}
