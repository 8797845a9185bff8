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
