namespace Grpc.Core;

/// <summary>The messages that this side streams. One writer at a time.</summary>
internal interface IAsyncStreamWriter<in T>
{
    WriteOptions? WriteOptions { get; set; }

    /// <summary>
    /// Writes a message, which the caller may change as soon as this returns. It is sent soon, together with others that follow at once. The task completes
    /// later if the other side does not keep up. Its completion does not mean that the message has arrived.
    /// </summary>
    Task WriteAsync(T message);

    /// <inheritdoc cref="WriteAsync(T)"/>
    Task WriteAsync(T message, CancellationToken cancellationToken);
}
