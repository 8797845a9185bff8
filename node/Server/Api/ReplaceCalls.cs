using KvCluster.Node.Placement;
using KvCluster.Node.Runtime;
using KvCluster.Node.Shards;
using KvCluster.V1;

namespace KvCluster.Node.Api;

/// <summary>Executes replacements of replicas that operators and other nodes ask for, as the leader of the shard. Any thread.</summary>
internal sealed class ReplaceCalls(NodeIdentity identity, OperatorShards shards, LeaderPlacement placement, ReplicaReplacement replacement)
{
    /// <summary>Completes when the replacement is done.</summary>
    /// <exception cref="Grpc.Core.RpcException">It is not; the status says why, and the shard's record how far it got.</exception>
    public async Task ReplaceAsync(Replacement request, CancellationToken cancellationToken)
    {
        var shard = shards.LedHere(request.Shard);
        if (request.From == identity.Node)
        {
            // The next leader does it. A leader does not remove itself, and it does not transfer for a replacement that the next leader would refuse.
            if (await replacement.ForeseeOwnAsync(shard, request).ConfigureAwait(false) is { } known)
            {
                Require(request.Shard, known);
                return;
            }
            var (next, transferred) = await placement.TransferAsync(shard, NodeId.None).ConfigureAwait(false);
            Require(request.Shard, transferred);
            throw ApiErrors.NotLeader(new ShardRoute(shard.Route) { LeaderId = next }, identity.Node).ToStatus().ToRpcException();
        }
        Require(request.Shard, await replacement.ReplaceAsync(shard, request, cancellationToken).ConfigureAwait(false));
    }

    private static void Require(ShardId shard, OrderResult result)
    {
        if (!result.Done)
            throw ApiErrors.NotReplaced(shard, result.Reason).ToStatus().ToRpcException();
    }
}
