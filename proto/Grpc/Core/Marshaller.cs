using System.Buffers;

namespace Grpc.Core;

/// <summary>Serializes and deserializes messages of one type.</summary>
internal sealed class Marshaller<T>
{
    /// <summary>
    /// Creates a marshaller on contexts, which writes directly into the output buffer and reads in place. The bytes that the deserializer gets belong to the
    /// buffer and are valid only until it returns.
    /// </summary>
    public Marshaller(Action<T, SerializationContext> serializer, Func<DeserializationContext, T> deserializer)
    {
        ContextualSerializer = serializer;
        ContextualDeserializer = deserializer;
    }

    /// <summary>Creates a marshaller on arrays, which copies.</summary>
    public Marshaller(Func<T, byte[]> serializer, Func<byte[], T> deserializer)
        : this((message, context) => context.Complete(serializer(message)), context => deserializer(context.PayloadAsNewBuffer()))
    {
    }

    public Action<T, SerializationContext> ContextualSerializer { get; }

    public Func<DeserializationContext, T> ContextualDeserializer { get; }
}

/// <summary>Creates marshallers; called by generated code.</summary>
internal static class Marshallers
{
    public static Marshaller<T> Create<T>(Action<T, SerializationContext> serializer, Func<DeserializationContext, T> deserializer) =>
        new(serializer, deserializer);

    public static Marshaller<T> Create<T>(Func<T, byte[]> serializer, Func<byte[], T> deserializer) => new(serializer, deserializer);
}

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

/// <summary>The context from which a marshaller reads one message. Valid until the marshaller returns.</summary>
internal abstract class DeserializationContext
{
    public abstract int PayloadLength { get; }

    /// <summary>A copy that the caller may keep.</summary>
    public abstract byte[] PayloadAsNewBuffer();

    /// <summary>The bytes in place; they must not be kept.</summary>
    public abstract ReadOnlySequence<byte> PayloadAsReadOnlySequence();
}
