namespace Grpc.Core;

/// <summary>Common to all kinds of client calls. Implemented by the calls of a channel, and with delegates for interceptors.</summary>
internal interface ICallState : IDisposable
{
    Task<Metadata> ResponseHeadersAsync { get; }

    /// <exception cref="InvalidOperationException">The call has not ended.</exception>
    Status GetStatus();

    /// <exception cref="InvalidOperationException">The call has not ended.</exception>
    Metadata GetTrailers();
}

/// <summary>The state of a call that an interceptor assembled from its own parts.</summary>
internal sealed class DelegateCallState(
    Task<Metadata> responseHeadersAsync,
    Func<Status> getStatus,
    Func<Metadata> getTrailers,
    Action dispose) : ICallState
{
    public Task<Metadata> ResponseHeadersAsync => responseHeadersAsync;

    public Status GetStatus() => getStatus();

    public Metadata GetTrailers() => getTrailers();

    public void Dispose() => dispose();
}
