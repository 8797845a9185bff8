using System.Buffers.Binary;

namespace KvCluster.Storage.Encoding;

/// <summary>An etag as the files have it: epoch and change, 8 little-endian bytes each. Pages have them the other way round. Pure; any thread.</summary>
internal static class EtagBytes
{
    /// <summary>Writes the 16 bytes.</summary>
    public static void Write(Span<byte> destination, Etag etag)
    {
        BinaryPrimitives.WriteUInt64LittleEndian(destination, etag.Epoch);
        BinaryPrimitives.WriteUInt64LittleEndian(destination[sizeof(ulong)..], etag.Change);
    }

    /// <summary>Reads what <see cref="Write"/> has written.</summary>
    public static Etag Read(ReadOnlySpan<byte> source) =>
        new(BinaryPrimitives.ReadUInt64LittleEndian(source), BinaryPrimitives.ReadUInt64LittleEndian(source[sizeof(ulong)..]));
}
