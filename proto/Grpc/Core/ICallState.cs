namespace Grpc.Core;

/// <summary>What all kinds of client calls share. Implemented by the calls of a channel, and by delegates for interceptors.</summary>
internal interface ICallState : IDisposable
{
    Task<Metadata> ResponseHeadersAsync { get; }

    /// <exception cref="InvalidOperationException">The call has not ended.</exception>
    Status GetStatus();

    /// <exception cref="InvalidOperationException">The call has not ended.</exception>
    Metadata GetTrailers();
}
