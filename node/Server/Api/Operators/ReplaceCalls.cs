using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Placement;
using KvCluster.Node.Runtime;
using KvCluster.Node.Shards.Loop;
using KvCluster.V1;

namespace KvCluster.Node.Api.Operators;

/// <summary>Starts replacements of replicas that operators and other nodes ask for, as the leader of the shard, and tells of them. Any thread.</summary>
internal sealed class ReplaceCalls(
    NodeIdentity identity, OperatorShards shards, LeaderPlacement placement, ReplacementExecution replacement, OperationRegistry operations)
{
    /// <summary>Starts a replacement, or finds the one that runs for the same.</summary>
    /// <exception cref="RpcException">It cannot begin here; the status says why.</exception>
    public async Task<ReplacementOperation> StartAsync(ReplacementRequest request)
    {
        var shard = shards.LedHere(request.Shard);
        if (request.From == identity.Node)
        {
            // The next leader does it. A leader does not remove itself, and it does not transfer for a replacement that the next leader would refuse.
            if (await replacement.ForeseeOwnAsync(shard, request).ConfigureAwait(false) is not { } known)
            {
                var (next, transferred) = await placement.TransferAsync(shard, NodeId.None).ConfigureAwait(false);
                Require(request.Shard, transferred);
                throw ApiErrors.NotLeader(new ShardRoute(shard.Route) { LeaderId = next }, identity.Node).ToStatus().ToRpcException();
            }
            Require(request.Shard, known);
        }
        var (operation, refusal) = await operations.StartAsync(shard, request).ConfigureAwait(false);
        return operation ?? throw ApiErrors.NotReplaced(request.Shard, refusal).ToStatus().ToRpcException();
    }

    /// <summary>Starts a replacement and completes when it is done.</summary>
    /// <exception cref="RpcException">It is not; the status says why, and the shard's record how far it got.</exception>
    public async Task ReplaceAsync(ReplacementRequest request, CancellationToken cancellationToken)
    {
        var operation = await StartAsync(request).ConfigureAwait(false);
        await operation.Ended.WaitAsync(cancellationToken).ConfigureAwait(false);
        RequireHere(operation);
        var (state, _) = operation.Describe();
        Require(request.Shard, new OrderResult(
            state.State == OperationState.Done, state.State == OperationState.Cancelled ? "an operator cancelled it" : state.Reason));
    }

    /// <summary>An operation of a shard that this node leads.</summary>
    /// <exception cref="RpcException">There is none, or another node leads the shard.</exception>
    public async Task<ReplacementOperation> FindAsync(string text)
    {
        if (!OperationId.TryParse(text, out var id))
            throw ApiErrors.NoOperation(text).ToStatus().ToRpcException();
        // An operation that ended on this node is known here, whichever node leads now.
        return operations.Find(id) ?? await operations.FindOrResumeAsync(shards.LedHere(id.Shard), id).ConfigureAwait(false)
            ?? throw ApiErrors.NoOperation(text).ToStatus().ToRpcException();
    }

    /// <summary>Requires that an operation is, or was, executed here to its end.</summary>
    /// <exception cref="RpcException">Another node goes on with it.</exception>
    public void RequireHere(ReplacementOperation operation)
    {
        if (operation.HasLeft)
            throw ApiErrors.OperationLeft(operation.Id, operation.Next).ToStatus().ToRpcException();
    }

    /// <summary>The operations known here: the running ones first.</summary>
    public IEnumerable<Admin.V1.ClusterOperation> List() =>
        operations.All.Select(static operation => operation.Describe().State).OrderBy(static state => state.State != OperationState.Running);

    private static void Require(ShardId shard, OrderResult result)
    {
        if (!result.Done)
            throw ApiErrors.NotReplaced(shard, result.Reason).ToStatus().ToRpcException();
    }
}
