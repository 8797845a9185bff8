using System.Net;
using Grpc.Core;
using Grpc.Shared;

namespace Grpc.Net.Client.Calls;

/// <summary>A request of one message, serialized when the call is made; may be sent again on another connection.</summary>
internal sealed class SingleMessageContent : HttpContent
{
    private readonly MessageBuffer _frame = new();

    /// <exception cref="RpcException">RESOURCE_EXHAUSTED: larger than the limit.</exception>
    public void Write<T>(T message, Marshaller<T> marshaller, int messageBytesMax) =>
        new FrameWriter().Write(_frame, message, marshaller, messageBytesMax);

    /// <summary>Gives the buffer back; to be called only after the call ended in order, when the connection has it no more.</summary>
    public void Free() => _frame.Free();

    protected override Task SerializeToStreamAsync(Stream stream, TransportContext? context) => SerializeToStreamAsync(stream, context, CancellationToken.None);

    protected override Task SerializeToStreamAsync(Stream stream, TransportContext? context, CancellationToken cancellationToken) =>
        stream.WriteAsync(_frame.Written, cancellationToken).AsTask();

    protected override bool TryComputeLength(out long length)
    {
        length = _frame.Count;
        return false;
    }
}
