using System.Runtime.CompilerServices;

namespace Grpc.Core;

/// <summary>A call with one message each way. Disposing it cancels it if it has not ended.</summary>
internal sealed class AsyncUnaryCall<TResponse> : IDisposable
{
    private readonly ICallState _state;

    public AsyncUnaryCall(Task<TResponse> responseAsync, Task<Metadata> responseHeadersAsync, Func<Status> getStatusFunc, Func<Metadata> getTrailersFunc, Action disposeAction)
        : this(responseAsync, new DelegateCallState(responseHeadersAsync, getStatusFunc, getTrailersFunc, disposeAction))
    {
    }

    internal AsyncUnaryCall(Task<TResponse> responseAsync, ICallState state)
    {
        ResponseAsync = responseAsync;
        _state = state;
    }

    /// <summary>The response; fails with <see cref="RpcException"/> if the call ends with a status other than OK.</summary>
    public Task<TResponse> ResponseAsync { get; }

    /// <summary>Completes when the handler's headers, or its status without headers, have arrived.</summary>
    public Task<Metadata> ResponseHeadersAsync => _state.ResponseHeadersAsync;

    /// <summary>Awaits the response.</summary>
    public TaskAwaiter<TResponse> GetAwaiter() => ResponseAsync.GetAwaiter();

    public ConfiguredTaskAwaitable<TResponse> ConfigureAwait(bool continueOnCapturedContext) => ResponseAsync.ConfigureAwait(continueOnCapturedContext);

    /// <summary>The status that the call ended with.</summary>
    /// <exception cref="InvalidOperationException">The call has not ended.</exception>
    public Status GetStatus() => _state.GetStatus();

    /// <summary>The trailers of a call that has ended.</summary>
    /// <exception cref="InvalidOperationException">The call has not ended.</exception>
    public Metadata GetTrailers() => _state.GetTrailers();

    public void Dispose() => _state.Dispose();
}
