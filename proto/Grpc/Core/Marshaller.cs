namespace Grpc.Core;

/// <summary>Turns messages of a type into bytes and back.</summary>
internal sealed class Marshaller<T>
{
    /// <summary>
    /// A marshaller on contexts: it writes straight into the output buffer and reads where the bytes lie. Bytes that the
    /// deserializer is shown belong to the buffer and are valid only until it returns.
    /// </summary>
    public Marshaller(Action<T, SerializationContext> serializer, Func<DeserializationContext, T> deserializer)
    {
        ContextualSerializer = serializer;
        ContextualDeserializer = deserializer;
    }

    /// <summary>A marshaller on arrays; copies.</summary>
    public Marshaller(Func<T, byte[]> serializer, Func<byte[], T> deserializer)
        : this((message, context) => context.Complete(serializer(message)), context => deserializer(context.PayloadAsNewBuffer()))
    {
    }

    public Action<T, SerializationContext> ContextualSerializer { get; }

    public Func<DeserializationContext, T> ContextualDeserializer { get; }
}
