namespace Grpc.Core;

/// <summary>The messages that this side streams. One writer at a time.</summary>
internal interface IAsyncStreamWriter<in T>
{
    WriteOptions? WriteOptions { get; set; }

    /// <summary>
    /// Takes the message, which may be changed by the caller as soon as this returns, and sends it soon, together with others
    /// that follow at once. Completes later where the other side does not keep up. A completed write says nothing of its arrival.
    /// </summary>
    Task WriteAsync(T message);

    /// <inheritdoc cref="WriteAsync(T)"/>
    Task WriteAsync(T message, CancellationToken cancellationToken);
}
