using System.Buffers.Binary;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Sessions;

/// <summary>The state of a session in the tree <c>sessions</c> (FORMAT.md, "Sessions"). Pure; any thread.</summary>
/// <param name="LowestOpen">Requests below this sequence are settled: their results are dropped, and they are refused.</param>
/// <param name="Next">One more than the greatest sequence with a result.</param>
/// <param name="ActiveMicroseconds">Shard time of the last record with a result of the session, or of the one that opened it.</param>
/// <param name="Owner">The owner that opened it.</param>
/// <param name="Opened">The etag of its opening, by which the keys that it owns name it.</param>
/// <param name="LifetimeMilliseconds">How long it lives without a KeepAlive; 0 = it has no lifetime, owns no keys, and ends when it is idle.</param>
internal readonly record struct SessionState(ulong LowestOpen, ulong Next, long ActiveMicroseconds, QuotaOwner Owner, Etag Opened, ulong LifetimeMilliseconds)
{
    /// <summary>Bytes of a stored state.</summary>
    public const int Bytes = 56;

    /// <summary>Reads a stored state.</summary>
    public static SessionState Read(ReadOnlySpan<byte> stored) => stored.Length == Bytes
        ? new SessionState(
            BinaryPrimitives.ReadUInt64LittleEndian(stored),
            BinaryPrimitives.ReadUInt64LittleEndian(stored[8..]),
            BinaryPrimitives.ReadInt64LittleEndian(stored[16..]),
            new QuotaOwner(BinaryPrimitives.ReadUInt64LittleEndian(stored[24..])),
            EtagBytes.Read(stored[32..]),
            BinaryPrimitives.ReadUInt64LittleEndian(stored[48..]))
        : throw new CorruptStoreException($"A session's entry has {stored.Length} bytes instead of {Bytes}.");

    /// <summary>Writes <see cref="Bytes"/> bytes.</summary>
    public void WriteTo(Span<byte> destination)
    {
        BinaryPrimitives.WriteUInt64LittleEndian(destination, LowestOpen);
        BinaryPrimitives.WriteUInt64LittleEndian(destination[8..], Next);
        BinaryPrimitives.WriteInt64LittleEndian(destination[16..], ActiveMicroseconds);
        BinaryPrimitives.WriteUInt64LittleEndian(destination[24..], Owner.Value);
        EtagBytes.Write(destination[32..], Opened);
        BinaryPrimitives.WriteUInt64LittleEndian(destination[48..], LifetimeMilliseconds);
    }
}
