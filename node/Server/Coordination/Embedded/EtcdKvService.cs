// The embedded coordinator behind our subset of etcd's API, for nodes in other processes and for etcdctl. There are four services, each a class because of
// gRPC. Calls run on the thread pool.
using Grpc.Core;
using KvCluster.Internal.Etcd;
using KvCluster.Node.Coordination.Etcd;

namespace KvCluster.Node.Coordination.Embedded;

/// <summary>etcd's KV service.</summary>
internal sealed class EtcdKvService(EmbeddedCoordinator coordinator) : KV.KVBase
{
    public override Task<RangeResponse> Range(RangeRequest request, ServerCallContext context) => EtcdStatus.Answer(() => coordinator.Range(request));

    public override Task<PutResponse> Put(PutRequest request, ServerCallContext context) => EtcdStatus.Answer(() =>
    {
        var done = coordinator.Execute(new TxnRequest { Success = { new RequestOp { RequestPut = request } } });
        var response = done.Responses[0].ResponsePut;
        response.Header = done.Header;
        return response;
    });

    public override Task<DeleteRangeResponse> DeleteRange(DeleteRangeRequest request, ServerCallContext context) => EtcdStatus.Answer(() =>
    {
        var done = coordinator.Execute(new TxnRequest { Success = { new RequestOp { RequestDeleteRange = request } } });
        var response = done.Responses[0].ResponseDeleteRange;
        response.Header = done.Header;
        return response;
    });

    public override Task<TxnResponse> Txn(TxnRequest request, ServerCallContext context) => EtcdStatus.Answer(() => coordinator.Execute(request));
}
