using System.Runtime.CompilerServices;
using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.V1;
using AdminClient = KvCluster.Admin.V1.Admin.AdminClient;

namespace KvCluster.Client.Transport;

/// <summary>
/// The calls for operators, made to the nodes: to all nodes of the map at once, to the one that is named, to the first that answers, or to the leader of a
/// shard, which is asked again while it is not known or has just changed. Used by the client library and the router. Thread-safe.
/// </summary>
internal sealed class NodeFanOut(CallRouter calls, NodeChannels channels) : IOperatorCalls
{
    private const int RetryPauseMs = 100;

    /// <summary>How long one node is waited for where another can answer. A node that stands still must not take the time of all.</summary>
    private const int NodeWaitMs = 2_000;

    /// <summary>How long a read waits for the answer of each node. Then it names those that are silent.</summary>
    private const int ReadWaitMs = 4_000;

    public async Task<GetStatusResponse> GetStatusAsync(GetStatusRequest request, long deadlineMs, CancellationToken cancellationToken)
    {
        var answers = await AskAllAsync(
            () => calls.Table.Nodes,
            async (node, deadline) => (await new Cluster.ClusterClient(node).GetStatusAsync(request, deadline: deadline, cancellationToken: cancellationToken).ConfigureAwait(false)).Nodes.Single(),
            static (node, address, error) => new V1.NodeStatus { NodeId = node, Address = address, Error = error },
            // A digest reads the whole tree.
            request.Digest ? deadlineMs : ReadDeadline(deadlineMs), cancellationToken).ConfigureAwait(false);
        return new GetStatusResponse { Cluster = calls.Table.Cluster, Nodes = { answers } };
    }

    public async Task<CheckpointResponse> CheckpointAsync(CheckpointRequest request, long deadlineMs, CancellationToken cancellationToken)
    {
        var answers = await AskAllAsync(
            () => calls.Table.AdminAddresses,
            async (node, deadline) => (await new AdminClient(node).CheckpointAsync(request, deadline: deadline, cancellationToken: cancellationToken).ConfigureAwait(false)).Replicas,
            static (node, _, error) => [new Admin.V1.ReplicaCheckpoint { NodeId = node, Error = error }],
            deadlineMs, cancellationToken).ConfigureAwait(false);
        return new CheckpointResponse { Replicas = { answers.SelectMany(static replicas => replicas) } };
    }

    public async Task<ExamineResponse> ExamineAsync(ExamineRequest request, long deadlineMs, CancellationToken cancellationToken)
    {
        var answers = await AskAllAsync(
            () => calls.Table.AdminAddresses,
            async (node, deadline) => (await new AdminClient(node).ExamineAsync(request, deadline: deadline, cancellationToken: cancellationToken).ConfigureAwait(false)).Nodes.Single(),
            static (node, address, error) => new Admin.V1.NodeExamination { NodeId = node, Address = address, Error = error },
            deadlineMs, cancellationToken).ConfigureAwait(false);
        return new ExamineResponse { Nodes = { answers } };
    }

    public Task<TransferResponse> TransferAsync(TransferRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskLeaderAsync(Required(request.HasShard, request.Shard), (leader, deadline) => leader.TransferAsync(request, deadline: deadline, cancellationToken: cancellationToken), deadlineMs, cancellationToken);

    public Task<ReplaceResponse> ReplaceAsync(ReplaceRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskLeaderAsync(Required(request.HasShard, request.Shard), (leader, deadline) => leader.ReplaceAsync(request, deadline: deadline, cancellationToken: cancellationToken), deadlineMs, cancellationToken);

    public Task<GetOperationResponse> GetOperationAsync(GetOperationRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskLeaderAsync(ShardOf(request.Id), (leader, deadline) => leader.GetOperationAsync(request, deadline: deadline, cancellationToken: cancellationToken), deadlineMs, cancellationToken);

    public Task<CancelOperationResponse> CancelOperationAsync(CancelOperationRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskLeaderAsync(ShardOf(request.Id), (leader, deadline) => leader.CancelOperationAsync(request, deadline: deadline, cancellationToken: cancellationToken), deadlineMs, cancellationToken);

    public async Task<ListOperationsResponse> ListOperationsAsync(ListOperationsRequest request, long deadlineMs, CancellationToken cancellationToken)
    {
        var answers = await AskAllAsync(
            () => calls.Table.AdminAddresses,
            async (node, deadline) => (Silent: (SilentNode?)null, (await new AdminClient(node).ListOperationsAsync(request, deadline: deadline, cancellationToken: cancellationToken).ConfigureAwait(false)).Operations),
            static (node, _, error) => (new SilentNode { Node = node.Value, Error = error }, []),
            ReadDeadline(deadlineMs), cancellationToken).ConfigureAwait(false);
        return new ListOperationsResponse
        {
            Operations = { answers.SelectMany(static answer => answer.Operations).OrderBy(static operation => operation.State != OperationState.Running).ThenBy(static operation => operation.StartedUs) },
            Silent = { answers.Select(static answer => answer.Silent).OfType<SilentNode>() },
        };
    }

    public async IAsyncEnumerable<WatchOperationResponse> WatchOperationAsync(WatchOperationRequest request, long deadlineMs, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        var shard = ShardOf(request.Id);
        while (true)
        {
            var address = await LeaderAddressAsync(shard, deadlineMs, cancellationToken).ConfigureAwait(false);
            using var stream = new AdminClient(channels.To(address)).WatchOperation(request, deadline: OperationStream.ToDeadline(deadlineMs), cancellationToken: cancellationToken);
            while (await OperationStream.NextAsync(stream.ResponseStream, deadlineMs, FoldHint, cancellationToken).ConfigureAwait(false) is { } state)
            {
                yield return state;
                if (OperationStream.IsLast(state))
                    yield break;
            }
            await Task.Delay(OperationStream.Pause, cancellationToken).ConfigureAwait(false);
        }
    }

    public Task<QuarantineResponse> QuarantineAsync(QuarantineRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskNodeAsync(request.NodeId, (node, deadline) => node.QuarantineAsync(request, deadline: deadline, cancellationToken: cancellationToken), deadlineMs, cancellationToken);

    public Task<DrainResponse> DrainAsync(DrainRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskNodeAsync(request.NodeId, (node, deadline) => node.DrainAsync(request, deadline: deadline, cancellationToken: cancellationToken), deadlineMs, cancellationToken);

    public Task<PlaceResponse> PlaceAsync(PlaceRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskAnyAsync((node, deadline) => node.PlaceAsync(request, deadline: deadline, cancellationToken: cancellationToken), deadlineMs, cancellationToken);

    public Task<LevelsResponse> LevelsAsync(LevelsRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskAnyAsync((node, deadline) => node.LevelsAsync(request, deadline: deadline, cancellationToken: cancellationToken), deadlineMs, cancellationToken);

    private static string NameOf(NodeId node) => $"node {node}";

    private static long ReadDeadline(long deadlineMs) => Math.Min(deadlineMs, Environment.TickCount64 + ReadWaitMs);

    // For calls that any node answers, and that may be repeated.
    private async Task<TResponse> AskAnyAsync<TResponse>(Func<AdminClient, DateTime, AsyncUnaryCall<TResponse>> ask, long deadlineMs, CancellationToken cancellationToken)
    {
        var attempts = new Attempts();
        while (true)
        {
            await RequireMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
            foreach (var (node, address) in calls.Table.AdminAddresses)
            {
                try
                {
                    var untilMs = Math.Min(deadlineMs, Environment.TickCount64 + NodeWaitMs);
                    return await ask(new AdminClient(channels.To(address)), OperationStream.ToDeadline(untilMs)).ConfigureAwait(false);
                }
                catch (RpcException failure)
                {
                    // Repeating it is harmless, and the next node may be reachable and answer.
                    attempts.Note(failure, node);
                    if (failure.StatusCode is not (StatusCode.Unavailable or StatusCode.DeadlineExceeded) || Environment.TickCount64 >= deadlineMs || cancellationToken.IsCancellationRequested)
                        throw attempts.Weakest();
                }
            }
            // The map may name no node. Then no node was asked.
            if (Environment.TickCount64 >= deadlineMs)
                throw attempts.WeakestOr(CallStatus.Create(StatusCode.Unavailable, "NODE_UNREACHABLE", "The shard map names no node that could be asked. Nothing was applied; try again.", "no"));
            await Task.Delay(RetryPauseMs, cancellationToken).ConfigureAwait(false);
        }
    }

    // A node that does not answer is listed with its error.
    private async Task<TAnswer[]> AskAllAsync<TAnswer>(
        Func<IReadOnlyDictionary<NodeId, string>> addresses, Func<CallInvoker, DateTime, Task<TAnswer>> ask, Func<NodeId, string, string, TAnswer> failed, long deadlineMs, CancellationToken cancellationToken)
    {
        await RequireMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
        return await Task.WhenAll(addresses().OrderBy(node => node.Key).Select(async node =>
        {
            try
            {
                return await ask(channels.To(node.Value), OperationStream.ToDeadline(deadlineMs)).ConfigureAwait(false);
            }
            catch (RpcException failure) when (!cancellationToken.IsCancellationRequested)
            {
                return failed(node.Key, node.Value, failure.Status.Detail);
            }
        })).ConfigureAwait(false);
    }

    private async Task<string> AddressOfAsync(NodeId node, long deadlineMs, CancellationToken cancellationToken)
    {
        await RequireMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
        return calls.Table.AdminAddresses.TryGetValue(node, out var address)
            ? address
            : throw CallStatus.Create(StatusCode.NotFound, "NO_NODE", $"There is no node {node}.", "no").ToRpcException();
    }

    private async Task<TResponse> AskNodeAsync<TResponse>(
        NodeId node, Func<AdminClient, DateTime, AsyncUnaryCall<TResponse>> ask, long deadlineMs, CancellationToken cancellationToken)
    {
        var address = await AddressOfAsync(node, deadlineMs, cancellationToken).ConfigureAwait(false);
        try
        {
            return await ask(new AdminClient(channels.To(address)), OperationStream.ToDeadline(deadlineMs)).ConfigureAwait(false);
        }
        catch (RpcException failure)
        {
            throw OperatorOutcomes.Judge(failure, NameOf(node)).ToRpcException();
        }
    }

    private async Task<TResponse> AskLeaderAsync<TResponse>(
        ShardId shard, Func<AdminClient, DateTime, AsyncUnaryCall<TResponse>> ask, long deadlineMs, CancellationToken cancellationToken)
    {
        await RequireMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
        var attempts = new Attempts();
        while (true)
        {
            var changed = calls.Table.NextChange();
            var (leader, address) = LeaderOf(shard);
            try
            {
                if (address is not null)
                    return await ask(new AdminClient(channels.To(address)), OperationStream.ToDeadline(deadlineMs)).ConfigureAwait(false);
            }
            catch (RpcException failure)
            {
                attempts.Note(failure, leader);
                if (failure.StatusCode != StatusCode.Unavailable || Environment.TickCount64 >= deadlineMs || cancellationToken.IsCancellationRequested)
                    throw attempts.Weakest();
                FoldHint(failure);
            }
            if (Environment.TickCount64 >= deadlineMs)
            {
                attempts.Note(CallStatus.Unavailable($"shard {shard} has no leader").ToRpcException(), leader);
                throw attempts.Weakest();
            }
            await WaitForNewsAsync(changed, cancellationToken).ConfigureAwait(false);
        }
    }

    private void FoldHint(RpcException failure)
    {
        if (failure.GetRpcStatus()?.GetDetail<RouteHint>() is { } hint)
            calls.Table.Fold(hint);
    }

    private async Task<string> LeaderAddressAsync(ShardId shard, long deadlineMs, CancellationToken cancellationToken)
    {
        await RequireMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
        while (true)
        {
            var changed = calls.Table.NextChange();
            if (LeaderOf(shard) is (_, { } address))
                return address;
            if (Environment.TickCount64 >= deadlineMs)
                throw CallStatus.Unavailable($"shard {shard} has no leader").ToRpcException();
            await WaitForNewsAsync(changed, cancellationToken).ConfigureAwait(false);
        }
    }

    // The address is null if the map names no leader, or not its address.
    private (NodeId Node, string? Address) LeaderOf(ShardId shard)
    {
        var route = calls.Table.Map.Routes.FirstOrDefault(route => route.ShardId == shard)
            ?? throw CallStatus.Create(StatusCode.NotFound, "NO_SHARD", $"There is no shard {shard}.", "no").ToRpcException();
        return (route.LeaderId, calls.Table.AdminAddresses.GetValueOrDefault(route.LeaderId));
    }

    private static async Task WaitForNewsAsync(Task changed, CancellationToken cancellationToken)
    {
        await Task.WhenAny(changed, Task.Delay(RetryPauseMs, cancellationToken)).ConfigureAwait(false);
        cancellationToken.ThrowIfCancellationRequested();
    }

    private static ShardId ShardOf(string operation) => OperationId.TryParse(operation, out var id)
        ? id.Shard
        : throw CallStatus.Create(StatusCode.NotFound, "NO_OPERATION", "There is no such operation.", "no").ToRpcException();

    private static ShardId Required(bool isPresent, uint shard) =>
        isPresent ? new(shard) : throw CallStatus.Invalid("BAD_REQUEST", "The request names no shard; nothing was changed.").ToRpcException();

    private async Task RequireMapAsync(long deadlineMs, CancellationToken cancellationToken)
    {
        if (!await calls.WaitForMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false))
            throw calls.MapError.ToRpcException();
    }

    /// <summary>
    /// The attempts at a call that changes something. After an attempt of unknown outcome, no later refusal may say that nothing was applied.
    /// </summary>
    private sealed class Attempts
    {
        private Google.Rpc.Status? _unknown;
        private Google.Rpc.Status? _last;

        public void Note(RpcException failure, NodeId asked)
        {
            _last = OperatorOutcomes.Judge(failure, NameOf(asked));
            if (CallStatus.IsUnknown(_last))
                _unknown = _last;
        }

        public RpcException Weakest() => (_unknown ?? _last)!.ToRpcException();

        /// <param name="untried">The error if there was no attempt.</param>
        public RpcException WeakestOr(Google.Rpc.Status untried) => (_unknown ?? _last ?? untried).ToRpcException();
    }
}
