// The context from which marshallers read one message in place. Reused by one reader for all its messages.
using System.Buffers;
using Grpc.Core;

namespace Grpc.Shared;

/// <summary>One received message.</summary>
internal sealed class FramePayload : DeserializationContext
{
    private ReadOnlySequence<byte> _payload;

    public override int PayloadLength => (int)_payload.Length;

    /// <summary>Lets the marshaller read a message. The bytes may be reused when this returns.</summary>
    /// <exception cref="RpcException">INTERNAL: the marshaller cannot read it.</exception>
    public T Read<T>(ReadOnlySequence<byte> payload, Marshaller<T> marshaller)
    {
        _payload = payload;
        try
        {
            return marshaller.ContextualDeserializer(this);
        }
        catch (Exception failure) when (failure is not RpcException)
        {
            throw new RpcException(new Status(StatusCode.Internal, "Failed to deserialize the message.", failure));
        }
        finally
        {
            _payload = default;
        }
    }

    public override byte[] PayloadAsNewBuffer() => _payload.ToArray();

    public override ReadOnlySequence<byte> PayloadAsReadOnlySequence() => _payload;
}
