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
