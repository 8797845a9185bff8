using System.Net;
using Grpc.Core;
using Grpc.Shared;

namespace Grpc.Net.Client.Calls;

/// <summary>A request of one message, serialized when the call is made; may be sent again on another connection.</summary>
/// <remarks>
/// An array's content by descent only: HttpClient takes any other for one that answers may come to before it ends, and flushes its headers
/// by themselves, which costs a write to the socket a call.
/// </remarks>
internal sealed class SingleMessageContent : ByteArrayContent
{
    private readonly MessageBuffer _frame = new();
    private readonly FrameWriter _frames = new();
    private volatile Task? _sending;

    public SingleMessageContent()
        : base([]) => Headers.TryAddWithoutValidation("Content-Type", "application/grpc");

    /// <summary>Whether HTTP has taken all of it.</summary>
    public bool IsSent => _sending is { IsCompletedSuccessfully: true };

    /// <summary>Takes the message, in the place of an earlier one.</summary>
    /// <exception cref="RpcException">RESOURCE_EXHAUSTED: larger than the limit.</exception>
    public void Write<T>(T message, Marshaller<T> marshaller, int messageBytesMax)
    {
        _sending = null;
        _frame.Clear();
        _frames.Write(_frame, message, marshaller, messageBytesMax);
    }

    protected override Task SerializeToStreamAsync(Stream stream, TransportContext? context) => SerializeToStreamAsync(stream, context, CancellationToken.None);

    // The write's own task, as an async method around it would be one more object and continuation a call.
    protected override Task SerializeToStreamAsync(Stream stream, TransportContext? context, CancellationToken cancellationToken) =>
        _sending = stream.WriteAsync(_frame.Written, cancellationToken).AsTask();

    protected override bool TryComputeLength(out long length)
    {
        length = 0;
        return false;
    }
}
