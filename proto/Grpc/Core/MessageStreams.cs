using System.Runtime.CompilerServices;

namespace Grpc.Core;

/// <summary>The messages that the other side streams. One reader at a time.</summary>
internal interface IAsyncStreamReader<out T>
{
    /// <summary>The message that the last <see cref="MoveNext"/> found.</summary>
    T Current { get; }

    /// <summary>Waits for the next message; returns false at the end of the stream.</summary>
    /// <exception cref="RpcException">At a client: the call ended with a status other than OK.</exception>
    Task<bool> MoveNext(CancellationToken cancellationToken);
}

/// <summary>Adapts streams to the language's async streams.</summary>
internal static class AsyncStreamReaderExtensions
{
    public static Task<bool> MoveNext<T>(this IAsyncStreamReader<T> reader)
        where T : class => reader.MoveNext(CancellationToken.None);

    public static async IAsyncEnumerable<T> ReadAllAsync<T>(
        this IAsyncStreamReader<T> reader,
        [EnumeratorCancellation] CancellationToken cancellationToken = default)
    {
        while (await reader.MoveNext(cancellationToken).ConfigureAwait(false))
            yield return reader.Current;
    }
}

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

/// <summary>The messages that a caller streams to the handler.</summary>
internal interface IClientStreamWriter<in T> : IAsyncStreamWriter<T>
{
    /// <summary>Ends the messages; the handler sees the end of its stream.</summary>
    Task CompleteAsync();
}

/// <summary>The messages that a handler streams to its caller.</summary>
internal interface IServerStreamWriter<in T> : IAsyncStreamWriter<T>;

/// <summary>How the messages of a stream are written from now on.</summary>
internal sealed class WriteOptions(WriteFlags flags = WriteFlags.None)
{
    public static readonly WriteOptions Default = new();

    public WriteFlags Flags { get; } = flags;
}

/// <summary>How one message of a stream is written.</summary>
[Flags]
internal enum WriteFlags
{
    None = 0,

    /// <summary>More messages follow at once, so this one need not be sent alone.</summary>
    BufferHint = 1,

    /// <summary>Accepted for compatibility; this stack never compresses what it sends.</summary>
    NoCompress = 2,
}
