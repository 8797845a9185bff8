using Grpc.Core;
using Grpc.Core.Interceptors;

namespace KvCluster.Client.Transport;

/// <summary>
/// Limits the open streams of one kind to one address. A handler opens another connection when the streams of its connections are used up, and the node
/// counts connections by host, so a process that opened streams without limit would keep others of its host out. A stream without a place ends as BUSY before
/// anything is sent. Used on any thread.
/// </summary>
/// <param name="kind">What the streams are, in the plural, for the error.</param>
/// <param name="streamsMax">The number of places.</param>
internal sealed class StreamPlaces(string kind, int streamsMax) : Interceptor
{
    private readonly Google.Rpc.Status _busy = CallStatus.Create(
        StatusCode.Unavailable,
        KvReasons.Busy,
        $"This process has {streamsMax} {kind} open at one node or router, which is the most; nothing was sent. Have fewer open at a time, or try again.",
        StatusDetails.NotApplied);

    private int _taken;

    public override AsyncServerStreamingCall<TResponse> AsyncServerStreamingCall<TRequest, TResponse>(
        TRequest request, ClientInterceptorContext<TRequest, TResponse> context, AsyncServerStreamingCallContinuation<TRequest, TResponse> continuation)
    {
        if (Interlocked.Increment(ref _taken) > streamsMax)
        {
            Interlocked.Decrement(ref _taken);
            return Refused<TResponse>(_busy.ToRpcException());
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

    private static AsyncServerStreamingCall<T> Refused<T>(RpcException busy)
    {
        // Nobody has to wait for the headers, and a failure there would be one that nobody has looked at.
        var headers = Task.FromCanceled<Metadata>(new CancellationToken(canceled: true));
        return new AsyncServerStreamingCall<T>(new NoStream<T>(busy), headers, () => busy.Status, () => busy.Trailers, static () => { });
    }

    private sealed class NoStream<T>(RpcException refusal) : IAsyncStreamReader<T>
    {
        public T Current => throw new InvalidOperationException("The stream has no message.");

        public Task<bool> MoveNext(CancellationToken cancellationToken) => Task.FromException<bool>(refusal);
    }
}
