using System.Runtime.CompilerServices;

namespace Grpc.Core;

/// <summary>A call with many messages there and one back. Disposing it cancels what has not ended.</summary>
internal sealed class AsyncClientStreamingCall<TRequest, TResponse> : IDisposable
{
    private readonly ICallState _state;

    public AsyncClientStreamingCall(IClientStreamWriter<TRequest> requestStream, Task<TResponse> responseAsync, Task<Metadata> responseHeadersAsync, Func<Status> getStatusFunc, Func<Metadata> getTrailersFunc, Action disposeAction)
        : this(requestStream, responseAsync, new DelegateCallState(responseHeadersAsync, getStatusFunc, getTrailersFunc, disposeAction))
    {
    }

    internal AsyncClientStreamingCall(IClientStreamWriter<TRequest> requestStream, Task<TResponse> responseAsync, ICallState state)
    {
        RequestStream = requestStream;
        ResponseAsync = responseAsync;
        _state = state;
    }

    /// <summary>What the caller sends.</summary>
    public IClientStreamWriter<TRequest> RequestStream { get; }

    /// <summary>The answer; fails with <see cref="RpcException"/> when the call ends with another status than OK.</summary>
    public Task<TResponse> ResponseAsync { get; }

    /// <summary>Completes when the handler's headers, or its status without headers, have come.</summary>
    public Task<Metadata> ResponseHeadersAsync => _state.ResponseHeadersAsync;

    /// <summary>Awaiting the call awaits its answer.</summary>
    public TaskAwaiter<TResponse> GetAwaiter() => ResponseAsync.GetAwaiter();

    public ConfiguredTaskAwaitable<TResponse> ConfigureAwait(bool continueOnCapturedContext) => ResponseAsync.ConfigureAwait(continueOnCapturedContext);

    /// <summary>How the call ended.</summary>
    /// <exception cref="InvalidOperationException">It has not ended.</exception>
    public Status GetStatus() => _state.GetStatus();

    /// <summary>The trailers of a call that has ended.</summary>
    /// <exception cref="InvalidOperationException">It has not ended.</exception>
    public Metadata GetTrailers() => _state.GetTrailers();

    public void Dispose() => _state.Dispose();
}
