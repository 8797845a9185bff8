using System.Buffers.Binary;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Journal;

/// <summary>
/// Precedes a body in a segment and exists only there (FORMAT.md, "Envelope"). It ties the record to this incarnation of the segment, so that a record of
/// an earlier incarnation never validates (S6), and states what was durable when the record was submitted to the disk. Pure; any thread.
/// </summary>
internal readonly record struct RecordEnvelope(ulong Incarnation, Etag DurableAtSubmission, int BodyBytes, uint BodyChecksum)
{
    /// <summary>"KVE1" as little-endian bytes.</summary>
    public const uint Magic = 0x3145_564B;

    /// <summary>Length in bytes; the body follows.</summary>
    public const int Bytes = 40;

    /// <summary>Records start at multiples of this, so that a torn write never damages an adjacent record.</summary>
    public const int BlockBytes = AlignedBuffer.Alignment;

    /// <summary>Bytes that a record with such a body takes in a segment.</summary>
    public static int RecordBytes(int bodyBytes) => RoundUp(Bytes + bodyBytes);

    /// <summary>Rounds up to a block boundary.</summary>
    public static int RoundUp(int bytes) => AlignedBuffer.RoundUp(bytes);

    /// <summary>Writes the envelope.</summary>
    public void WriteTo(Span<byte> destination)
    {
        BinaryPrimitives.WriteUInt32LittleEndian(destination, Magic);
        BinaryPrimitives.WriteInt32LittleEndian(destination[4..], BodyBytes);
        BinaryPrimitives.WriteUInt64LittleEndian(destination[8..], Incarnation);
        EtagBytes.Write(destination[16..], DurableAtSubmission);
        BinaryPrimitives.WriteUInt32LittleEndian(destination[32..], BodyChecksum);
        BinaryPrimitives.WriteUInt32LittleEndian(destination[36..], Crc32C.Of(destination[..36]));
    }

    /// <summary>Reads an envelope; false when the bytes are not an envelope, or are damaged.</summary>
    public static bool TryRead(ReadOnlySpan<byte> source, out RecordEnvelope envelope)
    {
        envelope = default;
        if (source.Length < Bytes || BinaryPrimitives.ReadUInt32LittleEndian(source) != Magic
            || BinaryPrimitives.ReadUInt32LittleEndian(source[36..]) != Crc32C.Of(source[..36]))
            return false;
        envelope = new RecordEnvelope(
            BinaryPrimitives.ReadUInt64LittleEndian(source[8..]),
            EtagBytes.Read(source[16..]),
            BinaryPrimitives.ReadInt32LittleEndian(source[4..]),
            BinaryPrimitives.ReadUInt32LittleEndian(source[32..]));
        return envelope.BodyBytes is >= RecordBody.HeaderBytes + RecordBody.TrailerBytes and <= RecordBody.BytesMax;
    }
}
