using Grpc.Core;
using KvCluster.Internal.Etcd;
using KvCluster.Node.Coordination.Etcd;

namespace KvCluster.Node.Coordination.Embedded;

/// <summary>etcd's Maintenance service over an embedded coordinator, as far as `etcdctl endpoint status` needs it.</summary>
internal sealed class EtcdMaintenanceService(EmbeddedCoordinator coordinator) : Maintenance.MaintenanceBase
{
    public override Task<StatusResponse> Status(StatusRequest request, ServerCallContext context) => EtcdStatus.Answer(() =>
    {
        var header = coordinator.Header();
        return new StatusResponse
        {
            Header = header,
            Version = "3.6.0",
            DbSize = coordinator.FileBytes,
            Leader = header.MemberId,
            RaftIndex = (ulong)header.Revision,
            RaftTerm = header.RaftTerm,
        };
    });
}
