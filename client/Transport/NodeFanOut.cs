using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.Client.Routing;
using KvCluster.V1;

namespace KvCluster.Client.Transport;

/// <summary>
/// The calls for operators, made to the nodes: to all nodes of the map at once, to the one that is named, to the first that answers, or to the leader of a
/// shard, which is asked again while it is not known or has just changed. Used by the client library and the router. Thread-safe.
/// </summary>
internal sealed class NodeFanOut(CallRouter calls, NodeChannels channels) : OperatorInvoker
{
    private const int RetryPauseMs = 100;

    /// <summary>How long one node is waited for where another can answer. A node that stands still must not take the time of all.</summary>
    private const int NodeWaitMs = 2_000;

    /// <summary>How long a read waits for the answer of each node. Then it names those that are silent.</summary>
    private const int ReadWaitMs = 4_000;

    /// <summary>Whether the answer to a request combines those of all nodes.</summary>
    public static bool IsForAll(object request) => request is GetStatusRequest or CheckpointRequest or ExamineRequest or ListOperationsRequest;

    protected override async Task<TResponse> AskAsync<TRequest, TResponse>(
        Method<TRequest, TResponse> method, TRequest request, long deadlineMs, CancellationToken cancellationToken)
    {
        Task<TResponse> Ask(CallInvoker node, long untilMs) =>
            node.AsyncUnaryCall(method, null, OptionsOf(untilMs, cancellationToken), request).ResponseAsync;
        Task<TResponse> AskLeader(ShardId shard) => AskLeaderAsync(shard, Ask, deadlineMs, cancellationToken);
        Task answer = request switch
        {
            GetStatusRequest status => AskAllAsync<GetStatusResponse>(
                () => calls.Table.Nodes,
                Ask,
                static (node, address, error) => new GetStatusResponse { Nodes = { new V1.NodeStatus { NodeId = node, Address = address, Error = error } } },
                answers => new GetStatusResponse { Cluster = calls.Table.Cluster, Nodes = { answers.SelectMany(static answer => answer.Nodes) } },
                // A digest reads the whole tree.
                status.Digest ? deadlineMs : ReadDeadline(deadlineMs), cancellationToken),
            CheckpointRequest => AskAllAsync<CheckpointResponse>(
                () => calls.Table.AdminAddresses,
                Ask,
                static (node, _, error) => new CheckpointResponse { Replicas = { new Admin.V1.ReplicaCheckpoint { NodeId = node, Error = error } } },
                static answers => new CheckpointResponse { Replicas = { answers.SelectMany(static answer => answer.Replicas) } },
                deadlineMs, cancellationToken),
            ExamineRequest => AskAllAsync<ExamineResponse>(
                () => calls.Table.AdminAddresses,
                Ask,
                static (node, address, error) =>
                    new ExamineResponse { Nodes = { new Admin.V1.NodeExamination { NodeId = node, Address = address, Error = error } } },
                static answers => new ExamineResponse { Nodes = { answers.SelectMany(static answer => answer.Nodes) } },
                deadlineMs, cancellationToken),
            ListOperationsRequest => AskAllAsync<ListOperationsResponse>(
                () => calls.Table.AdminAddresses,
                Ask,
                static (node, _, error) => new ListOperationsResponse { Silent = { new SilentNode { Node = node.Value, Error = error } } },
                static answers => new ListOperationsResponse
                {
                    Operations =
                    {
                        answers.SelectMany(static answer => answer.Operations)
                            .OrderBy(static operation => operation.State != OperationState.Running).ThenBy(static operation => operation.StartedUs),
                    },
                    Silent = { answers.SelectMany(static answer => answer.Silent) },
                },
                ReadDeadline(deadlineMs), cancellationToken),
            TransferRequest transfer => AskLeader(Required(transfer.HasShard, transfer.Shard)),
            ReplaceRequest replace => AskLeader(Required(replace.HasShard, replace.Shard)),
            GetOperationRequest get => AskLeader(ShardOf(get.Id)),
            CancelOperationRequest cancel => AskLeader(ShardOf(cancel.Id)),
            QuarantineRequest quarantine => AskNodeAsync(quarantine.NodeId, Ask, deadlineMs, cancellationToken),
            DrainRequest drain => AskNodeAsync(drain.NodeId, Ask, deadlineMs, cancellationToken),
            PlaceRequest or LevelsRequest => AskAnyAsync(Ask, deadlineMs, cancellationToken),
            _ => throw new NotSupportedException($"It is not known which node answers {method.FullName}."),
        };
        return await ((Task<TResponse>)answer).ConfigureAwait(false);
    }

    protected override IAsyncEnumerable<TResponse> FollowAsync<TRequest, TResponse>(
        Method<TRequest, TResponse> method, TRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        OperationStream.FollowAsync(
            method,
            request,
            channels,
            () => LeaderAddressAsync(ShardOf(((WatchOperationRequest)(object)request).Id), deadlineMs, cancellationToken),
            (_, failure) => RouteHints.Fold(calls.Table, failure),
            deadlineMs,
            cancellationToken);

    private static string NameOf(NodeId node) => $"node {node}";

    private static long ReadDeadline(long deadlineMs) => Math.Min(deadlineMs, Environment.TickCount64 + ReadWaitMs);

    // For calls that any node answers, and that may be repeated.
    private async Task<TResponse> AskAnyAsync<TResponse>(Func<CallInvoker, long, Task<TResponse>> ask, long deadlineMs, CancellationToken cancellationToken)
    {
        var attempts = new Attempts();
        while (true)
        {
            await RequireMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
            foreach (var (node, address) in calls.Table.AdminAddresses)
            {
                try
                {
                    return await ask(channels.To(address), Math.Min(deadlineMs, Environment.TickCount64 + NodeWaitMs)).ConfigureAwait(false);
                }
                catch (RpcException failure)
                {
                    // Repeating it is harmless, and the next node may be reachable and answer.
                    attempts.Note(failure, node);
                    if (failure.StatusCode is not (StatusCode.Unavailable or StatusCode.DeadlineExceeded)
                        || Environment.TickCount64 >= deadlineMs || cancellationToken.IsCancellationRequested)
                        throw attempts.Weakest();
                }
            }
            // The map may name no node. Then no node was asked.
            if (Environment.TickCount64 >= deadlineMs)
                throw attempts.WeakestOr(CallStatus.Create(
                    StatusCode.Unavailable, "NODE_UNREACHABLE", "The shard map names no node that could be asked. Nothing was applied; try again.",
                    StatusDetails.NotApplied));
            await Task.Delay(RetryPauseMs, cancellationToken).ConfigureAwait(false);
        }
    }

    // A node that does not answer is listed with its error.
    private async Task<TAnswer> AskAllAsync<TAnswer>(
        Func<IReadOnlyDictionary<NodeId, string>> addresses,
        Func<CallInvoker, long, Task> ask,
        Func<NodeId, string, string, TAnswer> failed,
        Func<TAnswer[], TAnswer> combine,
        long deadlineMs,
        CancellationToken cancellationToken)
    {
        await RequireMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
        return combine(await Task.WhenAll(addresses().OrderBy(node => node.Key).Select(async node =>
        {
            try
            {
                return await ((Task<TAnswer>)ask(channels.To(node.Value), deadlineMs)).ConfigureAwait(false);
            }
            catch (RpcException failure) when (!cancellationToken.IsCancellationRequested)
            {
                return failed(node.Key, node.Value, failure.Status.Detail);
            }
        })).ConfigureAwait(false));
    }

    private async Task<string> AddressOfAsync(NodeId node, long deadlineMs, CancellationToken cancellationToken)
    {
        await RequireMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
        return calls.Table.AdminAddresses.TryGetValue(node, out var address)
            ? address
            : throw CallStatus.Create(StatusCode.NotFound, "NO_NODE", $"There is no node {node}.", StatusDetails.NotApplied).ToRpcException();
    }

    private async Task<TResponse> AskNodeAsync<TResponse>(
        NodeId node, Func<CallInvoker, long, Task<TResponse>> ask, long deadlineMs, CancellationToken cancellationToken)
    {
        var address = await AddressOfAsync(node, deadlineMs, cancellationToken).ConfigureAwait(false);
        try
        {
            return await ask(channels.To(address), deadlineMs).ConfigureAwait(false);
        }
        catch (RpcException failure)
        {
            throw OperatorOutcomes.Judge(failure, NameOf(node)).ToRpcException();
        }
    }

    private async Task<TResponse> AskLeaderAsync<TResponse>(
        ShardId shard, Func<CallInvoker, long, Task<TResponse>> ask, long deadlineMs, CancellationToken cancellationToken)
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
                    return await ask(channels.To(address), deadlineMs).ConfigureAwait(false);
            }
            catch (RpcException failure)
            {
                attempts.Note(failure, leader);
                if (failure.StatusCode != StatusCode.Unavailable || Environment.TickCount64 >= deadlineMs || cancellationToken.IsCancellationRequested)
                    throw attempts.Weakest();
                RouteHints.Fold(calls.Table, failure);
            }
            if (Environment.TickCount64 >= deadlineMs)
            {
                attempts.Note(CallStatus.Unavailable($"shard {shard} has no leader").ToRpcException(), leader);
                throw attempts.Weakest();
            }
            await WaitForNewsAsync(changed, cancellationToken).ConfigureAwait(false);
        }
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
            ?? throw CallStatus.Create(StatusCode.NotFound, "NO_SHARD", $"There is no shard {shard}.", StatusDetails.NotApplied).ToRpcException();
        return (route.LeaderId, calls.Table.AdminAddresses.GetValueOrDefault(route.LeaderId));
    }

    private static async Task WaitForNewsAsync(Task changed, CancellationToken cancellationToken)
    {
        await Task.WhenAny(changed, Task.Delay(RetryPauseMs, cancellationToken)).ConfigureAwait(false);
        cancellationToken.ThrowIfCancellationRequested();
    }

    private static ShardId ShardOf(string operation) => OperationId.TryParse(operation, out var id)
        ? id.Shard
        : throw CallStatus.Create(StatusCode.NotFound, "NO_OPERATION", "There is no such operation.", StatusDetails.NotApplied).ToRpcException();

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
