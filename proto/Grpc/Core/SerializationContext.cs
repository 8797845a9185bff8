using System.Buffers;

namespace Grpc.Core;

/// <summary>
/// Where a marshaller writes one message. Either <see cref="SetPayloadLength"/>, <see cref="GetBufferWriter"/> and
/// <see cref="Complete()"/>, which writes in place, or <see cref="Complete(byte[])"/>.
/// </summary>
internal abstract class SerializationContext
{
    /// <summary>Announces the exact length in bytes, before the writer is asked for. Without it the message is buffered once more.</summary>
    public abstract void SetPayloadLength(int payloadLength);

    /// <summary>The output itself.</summary>
    public abstract IBufferWriter<byte> GetBufferWriter();

    /// <summary>The message has been written.</summary>
    public abstract void Complete();

    /// <summary>The message is this array.</summary>
    public abstract void Complete(byte[] payload);
}
