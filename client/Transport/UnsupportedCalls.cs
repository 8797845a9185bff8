using Grpc.Core;
using Grpc.Core.Interceptors;

namespace KvCluster.Client.Transport;

/// <summary>
/// Gives a reason to the refusal of a call by a peer that does not know it and does not say so: a node or router of a version before that reason, or a foreign
/// program. Without it an operator's change counted as one of unknown outcome. Used on any thread.
/// </summary>
/// <param name="address">Where the calls go.</param>
internal sealed class UnsupportedCalls(string address) : Interceptor
{
    public override AsyncUnaryCall<TResponse> AsyncUnaryCall<TRequest, TResponse>(
        TRequest request, ClientInterceptorContext<TRequest, TResponse> context, AsyncUnaryCallContinuation<TRequest, TResponse> continuation)
    {
        var call = continuation(request, context);
        return new AsyncUnaryCall<TResponse>(
            ExplainAsync(call.ResponseAsync, context.Method.FullName), call.ResponseHeadersAsync, call.GetStatus, call.GetTrailers, call.Dispose);
    }

    public override AsyncServerStreamingCall<TResponse> AsyncServerStreamingCall<TRequest, TResponse>(
        TRequest request, ClientInterceptorContext<TRequest, TResponse> context, AsyncServerStreamingCallContinuation<TRequest, TResponse> continuation)
    {
        var call = continuation(request, context);
        return new AsyncServerStreamingCall<TResponse>(
            new ExplainedStream<TResponse>(this, call.ResponseStream, context.Method.FullName), call.ResponseHeadersAsync, call.GetStatus, call.GetTrailers,
            call.Dispose);
    }

    private async Task<T> ExplainAsync<T>(Task<T> answer, string method)
    {
        try
        {
            return await answer.ConfigureAwait(false);
        }
        catch (RpcException failure) when (failure.StatusCode == StatusCode.Unimplemented && failure.GetRpcStatus() is null)
        {
            throw UnsupportedCall.RefusalWithoutReason(address, method.TrimStart('/')).ToRpcException();
        }
    }

    private sealed class ExplainedStream<T>(UnsupportedCalls calls, IAsyncStreamReader<T> inner, string method) : IAsyncStreamReader<T>
    {
        public T Current => inner.Current;

        public Task<bool> MoveNext(CancellationToken cancellationToken) =>
            inner.MoveNext(cancellationToken) is var moved && moved.IsCompletedSuccessfully ? moved : calls.ExplainAsync(moved, method);
    }
}
