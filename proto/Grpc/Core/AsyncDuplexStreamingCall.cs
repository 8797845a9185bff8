namespace Grpc.Core;

/// <summary>A call with many messages each way, independent of each other. Disposing it cancels it if it has not ended.</summary>
internal sealed class AsyncDuplexStreamingCall<TRequest, TResponse> : IDisposable
{
    private readonly ICallState _state;

    public AsyncDuplexStreamingCall(IClientStreamWriter<TRequest> requestStream, IAsyncStreamReader<TResponse> responseStream, Task<Metadata> responseHeadersAsync, Func<Status> getStatusFunc, Func<Metadata> getTrailersFunc, Action disposeAction)
        : this(requestStream, responseStream, new DelegateCallState(responseHeadersAsync, getStatusFunc, getTrailersFunc, disposeAction))
    {
    }

    internal AsyncDuplexStreamingCall(IClientStreamWriter<TRequest> requestStream, IAsyncStreamReader<TResponse> responseStream, ICallState state)
    {
        RequestStream = requestStream;
        ResponseStream = responseStream;
        _state = state;
    }

    /// <summary>The messages that the caller sends.</summary>
    public IClientStreamWriter<TRequest> RequestStream { get; }

    /// <summary>The messages that the handler sends.</summary>
    public IAsyncStreamReader<TResponse> ResponseStream { get; }

    /// <summary>Completes when the handler's headers, or its status without headers, have arrived.</summary>
    public Task<Metadata> ResponseHeadersAsync => _state.ResponseHeadersAsync;

    /// <summary>The status that the call ended with.</summary>
    /// <exception cref="InvalidOperationException">The call has not ended.</exception>
    public Status GetStatus() => _state.GetStatus();

    /// <summary>The trailers of a call that has ended.</summary>
    /// <exception cref="InvalidOperationException">The call has not ended.</exception>
    public Metadata GetTrailers() => _state.GetTrailers();

    public void Dispose() => _state.Dispose();
}
