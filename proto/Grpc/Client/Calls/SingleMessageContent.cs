using System.Net;
using Grpc.Core;
using Grpc.Shared;

namespace Grpc.Net.Client.Calls;

/// <summary>A request of one message, serialized when the call is made. It may be sent again on another connection.</summary>
/// <remarks>
/// Derives from an array's content for one reason only: HttpClient assumes that other contents may be answered before they end, and flushes their headers
/// separately, which costs a write to the socket per call.
/// </remarks>
internal sealed class SingleMessageContent : ByteArrayContent
{
    private readonly MessageBuffer _frame = new();
    private readonly FrameWriter _frames = new();
    private volatile Task? _sending;

    public SingleMessageContent()
        : base([]) => Headers.TryAddWithoutValidation("Content-Type", "application/grpc");

    /// <summary>Whether HttpClient has taken all of it.</summary>
    public bool IsSent => _sending is { IsCompletedSuccessfully: true };

    /// <summary>Sets the message, replacing an earlier one.</summary>
    /// <exception cref="RpcException">RESOURCE_EXHAUSTED: larger than the limit.</exception>
    public void Write<T>(T message, Marshaller<T> marshaller, int messageBytesMax)
    {
        _sending = null;
        _frame.Clear();
        _frames.Write(_frame, message, marshaller, messageBytesMax);
    }

    protected override Task SerializeToStreamAsync(Stream stream, TransportContext? context) => SerializeToStreamAsync(stream, context, CancellationToken.None);

    // Returns the write's own task, because an async method would add an object and a continuation per call.
    protected override Task SerializeToStreamAsync(Stream stream, TransportContext? context, CancellationToken cancellationToken) =>
        _sending = stream.WriteAsync(_frame.Written, cancellationToken).AsTask();

    protected override bool TryComputeLength(out long length)
    {
        length = 0;
        return false;
    }
}
