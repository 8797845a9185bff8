using Grpc.Core;
using KvCluster.V1;

namespace KvCluster.Client.Transport;

/// <summary>Calls that every node answers for itself, made to all nodes of the map at once. Used by the client library and the router.</summary>
internal sealed class NodeFanOut(CallRouter calls, NodeChannels channels)
{
    private const int RetryPauseMs = 100;

    /// <summary>Returns the status of every node. A node that does not answer is listed with its error.</summary>
    public async Task<GetStatusResponse> GetStatusAsync(GetStatusRequest request, long deadlineMs, CancellationToken cancellationToken)
    {
        await RequireMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
        var answers = await Task.WhenAll(calls.Table.Nodes.OrderBy(node => node.Key).Select(async node =>
        {
            try
            {
                var answer = await new Cluster.ClusterClient(channels.To(node.Value))
                    .GetStatusAsync(request, deadline: ToDeadline(deadlineMs), cancellationToken: cancellationToken).ConfigureAwait(false);
                return answer.Nodes.Single();
            }
            catch (RpcException failure) when (!cancellationToken.IsCancellationRequested)
            {
                return new V1.NodeStatus { Node = node.Key, Address = node.Value, Error = failure.Status.Detail };
            }
        })).ConfigureAwait(false);
        return new GetStatusResponse { Cluster = calls.Table.Cluster, Nodes = { answers } };
    }

    /// <summary>Makes every replica of every node write a checkpoint. A node that does not answer is listed with its error, as shard 0.</summary>
    public async Task<CheckpointResponse> CheckpointAsync(CheckpointRequest request, long deadlineMs, CancellationToken cancellationToken)
    {
        await RequireMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
        var answers = await Task.WhenAll(calls.Table.Nodes.OrderBy(node => node.Key).Select(async node =>
        {
            try
            {
                var answer = await new Admin.AdminClient(channels.To(node.Value))
                    .CheckpointAsync(request, deadline: ToDeadline(deadlineMs), cancellationToken: cancellationToken).ConfigureAwait(false);
                return answer.Replicas;
            }
            catch (RpcException failure) when (!cancellationToken.IsCancellationRequested)
            {
                return [new V1.ReplicaCheckpoint { Node = node.Key, Error = failure.Status.Detail }];
            }
        })).ConfigureAwait(false);
        var all = new CheckpointResponse();
        foreach (var replicas in answers)
            all.Replicas.AddRange(replicas);
        return all;
    }

    /// <summary>Makes every node examine its machine and the coordinator. A node that does not answer is listed with its error.</summary>
    public async Task<ExamineResponse> ExamineAsync(ExamineRequest request, long deadlineMs, CancellationToken cancellationToken)
    {
        await RequireMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
        var answers = await Task.WhenAll(calls.Table.Nodes.OrderBy(node => node.Key).Select(async node =>
        {
            try
            {
                var answer = await new Admin.AdminClient(channels.To(node.Value))
                    .ExamineAsync(request, deadline: ToDeadline(deadlineMs), cancellationToken: cancellationToken).ConfigureAwait(false);
                return answer.Nodes.Single();
            }
            catch (RpcException failure) when (!cancellationToken.IsCancellationRequested)
            {
                return new V1.NodeExamination { Node = node.Key, Address = node.Value, Error = failure.Status.Detail };
            }
        })).ConfigureAwait(false);
        return new ExamineResponse { Nodes = { answers } };
    }

    /// <summary>Asks the leader of a shard to transfer its leadership. Repeats while the leader is not known or has just changed.</summary>
    public Task<TransferResponse> TransferAsync(TransferRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskLeaderAsync(request.Shard, (leader, deadline) => leader.TransferAsync(request, deadline: deadline, cancellationToken: cancellationToken), deadlineMs, cancellationToken);

    /// <summary>Asks the leader of a shard to replace a replica. Repeats in the same cases.</summary>
    public Task<ReplaceResponse> ReplaceAsync(ReplaceRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskLeaderAsync(request.Shard, (leader, deadline) => leader.ReplaceAsync(request, deadline: deadline, cancellationToken: cancellationToken), deadlineMs, cancellationToken);

    /// <summary>Makes a node take its replica of a shard out of service.</summary>
    public Task<QuarantineResponse> QuarantineAsync(QuarantineRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskNodeAsync(request.Node, (node, deadline) => node.QuarantineAsync(request, deadline: deadline, cancellationToken: cancellationToken), deadlineMs, cancellationToken);

    /// <summary>Asks a node to transfer its leaderships, or to take some again.</summary>
    public Task<DrainResponse> DrainAsync(DrainRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskNodeAsync(request.Node, (node, deadline) => node.DrainAsync(request, deadline: deadline, cancellationToken: cancellationToken), deadlineMs, cancellationToken);

    /// <summary>Sets where replicas may be placed, at the first node that answers.</summary>
    public async Task<PlaceResponse> PlaceAsync(PlaceRequest request, long deadlineMs, CancellationToken cancellationToken)
    {
        var attempts = new Attempts();
        while (true)
        {
            await RequireMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
            foreach (var address in calls.Table.Nodes.Values)
            {
                try
                {
                    return await new Admin.AdminClient(channels.To(address)).PlaceAsync(request, deadline: ToDeadline(deadlineMs), cancellationToken: cancellationToken).ConfigureAwait(false);
                }
                catch (RpcException failure)
                {
                    // Repeating it is harmless, and the next node may be reachable.
                    attempts.Note(failure);
                    if (failure.StatusCode != StatusCode.Unavailable || Environment.TickCount64 >= deadlineMs || cancellationToken.IsCancellationRequested)
                        throw attempts.Weakest();
                }
            }
            await Task.Delay(RetryPauseMs, cancellationToken).ConfigureAwait(false);
        }
    }

    private async Task<string> AddressOfAsync(uint node, long deadlineMs, CancellationToken cancellationToken)
    {
        await RequireMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
        return calls.Table.Nodes.TryGetValue(node, out var address)
            ? address
            : throw CallStatus.Create(StatusCode.NotFound, "NO_NODE", $"There is no node {node}.", "no").ToRpcException();
    }

    private async Task<TResponse> AskNodeAsync<TResponse>(
        uint node, Func<Admin.AdminClient, DateTime, AsyncUnaryCall<TResponse>> ask, long deadlineMs, CancellationToken cancellationToken)
    {
        var address = await AddressOfAsync(node, deadlineMs, cancellationToken).ConfigureAwait(false);
        try
        {
            return await ask(new Admin.AdminClient(channels.To(address)), ToDeadline(deadlineMs)).ConfigureAwait(false);
        }
        catch (RpcException failure)
        {
            throw OperatorCalls.Judge(failure).ToRpcException();
        }
    }

    private async Task<TResponse> AskLeaderAsync<TResponse>(
        uint shard, Func<Admin.AdminClient, DateTime, AsyncUnaryCall<TResponse>> ask, long deadlineMs, CancellationToken cancellationToken)
    {
        await RequireMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
        var attempts = new Attempts();
        while (true)
        {
            var changed = calls.Table.NextChange();
            var route = calls.Table.Map.Routes.FirstOrDefault(route => route.Shard == shard)
                ?? throw CallStatus.Create(StatusCode.NotFound, "NO_SHARD", $"There is no shard {shard}.", "no").ToRpcException();
            try
            {
                if (calls.Table.Nodes.TryGetValue(route.Leader, out var address))
                    return await ask(new Admin.AdminClient(channels.To(address)), ToDeadline(deadlineMs)).ConfigureAwait(false);
            }
            catch (RpcException failure)
            {
                attempts.Note(failure);
                if (failure.StatusCode != StatusCode.Unavailable || Environment.TickCount64 >= deadlineMs || cancellationToken.IsCancellationRequested)
                    throw attempts.Weakest();
                if (failure.GetRpcStatus()?.GetDetail<RouteHint>() is { } hint)
                    calls.Table.Fold(hint);
            }
            if (Environment.TickCount64 >= deadlineMs)
            {
                attempts.Note(CallStatus.Unavailable($"shard {shard} has no leader").ToRpcException());
                throw attempts.Weakest();
            }
            await Task.WhenAny(changed, Task.Delay(RetryPauseMs, cancellationToken)).ConfigureAwait(false);
            cancellationToken.ThrowIfCancellationRequested();
        }
    }

    private static DateTime ToDeadline(long deadlineMs) => DateTime.UtcNow.AddMilliseconds(Math.Max(0, deadlineMs - Environment.TickCount64));

    private async Task RequireMapAsync(long deadlineMs, CancellationToken cancellationToken)
    {
        if (!await calls.WaitForMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false))
            throw CallStatus.Unavailable(calls.MapFailure).ToRpcException();
    }

    /// <summary>
    /// The attempts at a call that changes something. After an attempt of unknown outcome, no later refusal may say that nothing was applied.
    /// </summary>
    private sealed class Attempts
    {
        private Google.Rpc.Status? _unknown;
        private Google.Rpc.Status? _last;

        public void Note(RpcException failure)
        {
            _last = OperatorCalls.Judge(failure);
            if (CallStatus.IsUnknown(_last))
                _unknown = _last;
        }

        public RpcException Weakest() => (_unknown ?? _last)!.ToRpcException();
    }
}
