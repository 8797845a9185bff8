namespace Grpc.Core;

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
