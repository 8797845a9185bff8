using System.Buffers;

namespace Grpc.Core;

/// <summary>
/// The context to which a marshaller writes one message. It calls either <see cref="SetPayloadLength"/>, <see cref="GetBufferWriter"/> and
/// <see cref="Complete()"/>, which writes in place, or <see cref="Complete(byte[])"/>.
/// </summary>
internal abstract class SerializationContext
{
    /// <summary>Announces the exact length in bytes, before the buffer writer is requested. Without it the message is buffered once more.</summary>
    public abstract void SetPayloadLength(int payloadLength);

    /// <summary>The output itself.</summary>
    public abstract IBufferWriter<byte> GetBufferWriter();

    /// <summary>Completes the message.</summary>
    public abstract void Complete();

    /// <summary>Completes the message with this array as its content.</summary>
    public abstract void Complete(byte[] payload);
}
