using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.V1;

namespace KvCluster.Client.Transport;

/// <summary>
/// The calls for operators of a client in gateway mode, through one of the routers. If one cannot be reached, the next one is asked; a change only if it was
/// not sent. Thread-safe.
/// </summary>
internal sealed class RouterFanOut(GatewayChoice gateways, NodeChannels channels) : OperatorInvoker
{
    protected override async Task<TResponse> AskAsync<TRequest, TResponse>(
        Method<TRequest, TResponse> method, TRequest request, long deadlineMs, CancellationToken cancellationToken)
    {
        var isChange = request is not (
            GetStatusRequest or CheckpointRequest or ExamineRequest or GetOperationRequest or ListOperationsRequest or LevelsRequest { Raise: false });
        while (true)
        {
            var address = await NextAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
            try
            {
                return await channels.To(address).AsyncUnaryCall(method, null, OptionsOf(deadlineMs, cancellationToken), request).ConfigureAwait(false);
            }
            catch (RpcException failure) when (failure.StatusCode == StatusCode.Unavailable && failure.GetRpcStatus() is null
                && (!isChange || OperatorOutcomes.WasNotSent(failure)) && Environment.TickCount64 < deadlineMs && !cancellationToken.IsCancellationRequested)
            {
                // Another router may be reachable.
                Pause(address, failure);
            }
            catch (RpcException failure) when (isChange)
            {
                throw OperatorOutcomes.Judge(failure, $"the router at {address}").ToRpcException();
            }
        }
    }

    protected override IAsyncEnumerable<TResponse> FollowAsync<TRequest, TResponse>(
        Method<TRequest, TResponse> method, TRequest request, long deadlineMs, CancellationToken cancellationToken) =>
        OperationStream.FollowAsync(method, request, channels, () => NextAsync(deadlineMs, cancellationToken), Pause, deadlineMs, cancellationToken);

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

    private void Pause(string address, RpcException failure) => gateways.Pause(address, $"{address}: {failure.Status.Detail}");
}
