using System.Buffers.Binary;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Sessions;

/// <summary>The state of a session in the tree <c>sessions</c> (FORMAT.md, "Sessions"). Pure; any thread.</summary>
/// <param name="LowestOpen">Requests below this sequence are settled: their results are dropped, and they are refused.</param>
/// <param name="Next">One more than the greatest sequence with a result.</param>
/// <param name="ActiveMicroseconds">Shard time of the last record with a result of the session, or of the one that opened it.</param>
/// <param name="Owner">The owner that opened it.</param>
internal readonly record struct SessionState(ulong LowestOpen, ulong Next, long ActiveMicroseconds, SessionOwner Owner)
{
    /// <summary>Bytes of a stored state.</summary>
    public const int Bytes = 32;

    /// <summary>Reads a stored state.</summary>
    public static SessionState Read(ReadOnlySpan<byte> stored) => stored.Length == Bytes
        ? new SessionState(
            BinaryPrimitives.ReadUInt64LittleEndian(stored),
            BinaryPrimitives.ReadUInt64LittleEndian(stored[8..]),
            BinaryPrimitives.ReadInt64LittleEndian(stored[16..]),
            new SessionOwner(BinaryPrimitives.ReadUInt64LittleEndian(stored[24..])))
        : throw new CorruptStoreException($"A session's entry has {stored.Length} bytes instead of {Bytes}.");

    /// <summary>Writes <see cref="Bytes"/> bytes.</summary>
    public void WriteTo(Span<byte> destination)
    {
        BinaryPrimitives.WriteUInt64LittleEndian(destination, LowestOpen);
        BinaryPrimitives.WriteUInt64LittleEndian(destination[8..], Next);
        BinaryPrimitives.WriteInt64LittleEndian(destination[16..], ActiveMicroseconds);
        BinaryPrimitives.WriteUInt64LittleEndian(destination[24..], Owner.Value);
    }
}
