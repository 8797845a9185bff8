namespace Grpc.Core;

/// <summary>A call that an interceptor puts together from parts of its own.</summary>
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
