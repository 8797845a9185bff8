using System.Buffers;

namespace Grpc.Core;

/// <summary>The context from which a marshaller reads one message. Valid until the marshaller returns.</summary>
internal abstract class DeserializationContext
{
    public abstract int PayloadLength { get; }

    /// <summary>A copy that the caller may keep.</summary>
    public abstract byte[] PayloadAsNewBuffer();

    /// <summary>The bytes in place; they must not be kept.</summary>
    public abstract ReadOnlySequence<byte> PayloadAsReadOnlySequence();
}
