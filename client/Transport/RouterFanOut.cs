using System.Runtime.CompilerServices;
using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.V1;
using AdminClient = KvCluster.Admin.V1.Admin.AdminClient;

namespace KvCluster.Client.Transport;

/// <summary>
/// The calls for operators of a client in gateway mode, through one of the routers. If one cannot be reached, the next one is asked; a change only if it was
/// not sent. Thread-safe.
/// </summary>
internal sealed class RouterFanOut(GatewayChoice gateways, NodeChannels channels) : IOperatorCalls
{
    public Task<GetStatusResponse> GetStatusAsync(GetStatusRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskAsync((router, options) => new Cluster.ClusterClient(router).GetStatusAsync(request, options), isChange: false, deadlineMs, cancellationToken);

    public Task<CheckpointResponse> CheckpointAsync(CheckpointRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskAsync((router, options) => new AdminClient(router).CheckpointAsync(request, options), isChange: false, deadlineMs, cancellationToken);

    public Task<ExamineResponse> ExamineAsync(ExamineRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskAsync((router, options) => new AdminClient(router).ExamineAsync(request, options), isChange: false, deadlineMs, cancellationToken);

    public Task<TransferResponse> TransferAsync(TransferRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskAsync((router, options) => new AdminClient(router).TransferAsync(request, options), isChange: true, deadlineMs, cancellationToken);

    public Task<DrainResponse> DrainAsync(DrainRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskAsync((router, options) => new AdminClient(router).DrainAsync(request, options), isChange: true, deadlineMs, cancellationToken);

    public Task<ReplaceResponse> ReplaceAsync(ReplaceRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskAsync((router, options) => new AdminClient(router).ReplaceAsync(request, options), isChange: true, deadlineMs, cancellationToken);

    public Task<GetOperationResponse> GetOperationAsync(GetOperationRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskAsync((router, options) => new AdminClient(router).GetOperationAsync(request, options), isChange: false, deadlineMs, cancellationToken);

    public Task<CancelOperationResponse> CancelOperationAsync(CancelOperationRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskAsync((router, options) => new AdminClient(router).CancelOperationAsync(request, options), isChange: true, deadlineMs, cancellationToken);

    public Task<ListOperationsResponse> ListOperationsAsync(ListOperationsRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskAsync((router, options) => new AdminClient(router).ListOperationsAsync(request, options), isChange: false, deadlineMs, cancellationToken);

    public async IAsyncEnumerable<WatchOperationResponse> WatchOperationAsync(WatchOperationRequest request, long deadlineMs, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        while (true)
        {
            var address = await NextAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
            using var stream = new AdminClient(channels.To(address)).WatchOperation(request, deadline: OperationStream.ToDeadline(deadlineMs), cancellationToken: cancellationToken);
            while (await OperationStream.NextAsync(stream.ResponseStream, deadlineMs, failure => gateways.Pause(address, $"{address}: {failure.Status.Detail}"), cancellationToken).ConfigureAwait(false) is { } state)
            {
                yield return state;
                if (OperationStream.IsLast(state))
                    yield break;
            }
            await Task.Delay(OperationStream.Pause, cancellationToken).ConfigureAwait(false);
        }
    }

    public Task<QuarantineResponse> QuarantineAsync(QuarantineRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskAsync((router, options) => new AdminClient(router).QuarantineAsync(request, options), isChange: true, deadlineMs, cancellationToken);

    public Task<PlaceResponse> PlaceAsync(PlaceRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskAsync((router, options) => new AdminClient(router).PlaceAsync(request, options), isChange: true, deadlineMs, cancellationToken);

    public Task<LevelsResponse> LevelsAsync(LevelsRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        AskAsync((router, options) => new AdminClient(router).LevelsAsync(request, options), isChange: request.Raise, deadlineMs, cancellationToken);

    private async Task<string> NextAsync(long deadlineMs, CancellationToken cancellationToken)
    {
        while (true)
        {
            if (gateways.TryNext(out var address))
                return address;
            if (Environment.TickCount64 >= deadlineMs)
                throw CallStatus.Unavailable(gateways.Failure).ToRpcException();
            await gateways.WaitAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
        }
    }

    private async Task<TResponse> AskAsync<TResponse>(
        Func<CallInvoker, CallOptions, AsyncUnaryCall<TResponse>> call, bool isChange, long deadlineMs, CancellationToken cancellationToken)
    {
        while (true)
        {
            var address = await NextAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
            try
            {
                var options = new CallOptions(deadline: DateTime.UtcNow.AddMilliseconds(Math.Max(1, deadlineMs - Environment.TickCount64)), cancellationToken: cancellationToken);
                return await call(channels.To(address), options).ConfigureAwait(false);
            }
            catch (RpcException failure) when (failure.StatusCode == StatusCode.Unavailable && failure.GetRpcStatus() is null
                && (!isChange || OperatorOutcomes.WasNotSent(failure)) && Environment.TickCount64 < deadlineMs && !cancellationToken.IsCancellationRequested)
            {
                // Another router may be reachable.
                gateways.Pause(address, $"{address}: {failure.Status.Detail}");
            }
            catch (RpcException failure) when (isChange)
            {
                throw OperatorOutcomes.Judge(failure, $"the router at {address}").ToRpcException();
            }
        }
    }
}
