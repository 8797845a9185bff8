using Grpc.Core;
using Grpc.Core.Interceptors;
using KvCluster.V1;

namespace KvCluster.Client.Transport;

/// <summary>
/// Limits the open streams of one kind to one address. A handler opens another connection when the streams of its connections are used up, and the node counts connections by host, so a process that opened
/// streams without limit would keep others of its host out. A stream without a place ends as BUSY before anything is sent. Used on any thread.
/// </summary>
/// <param name="kind">What the streams are, in the plural, for the error.</param>
/// <param name="streamsMax">The number of places.</param>
internal sealed class StreamPlaces(string kind, int streamsMax) : Interceptor
{
    private int _taken;

    public override AsyncServerStreamingCall<TResponse> AsyncServerStreamingCall<TRequest, TResponse>(TRequest request, ClientInterceptorContext<TRequest, TResponse> context, AsyncServerStreamingCallContinuation<TRequest, TResponse> continuation)
    {
        if (Interlocked.Increment(ref _taken) > streamsMax)
        {
            Interlocked.Decrement(ref _taken);
            var busy = CallStatus.Create(StatusCode.Unavailable, "BUSY", $"This process has {streamsMax} {kind} open at one node or router, which is the most; nothing was sent. Have fewer open at a time, or try again.", "no").ToRpcException();
            return new AsyncServerStreamingCall<TResponse>(new NoStream<TResponse>(busy), Task.FromException<Metadata>(busy), () => busy.Status, () => busy.Trailers, static () => { });
        }
        var call = continuation(request, context);
        var isOpen = 1;
        return new AsyncServerStreamingCall<TResponse>(call.ResponseStream, call.ResponseHeadersAsync, call.GetStatus, call.GetTrailers, () =>
        {
            call.Dispose();
            if (Interlocked.Exchange(ref isOpen, 0) == 1)
                Interlocked.Decrement(ref _taken);
        });
    }

    private sealed class NoStream<T>(RpcException refusal) : IAsyncStreamReader<T>
    {
        public T Current => throw new InvalidOperationException("The stream has no message.");

        public Task<bool> MoveNext(CancellationToken cancellationToken) => Task.FromException<bool>(refusal);
    }
}
