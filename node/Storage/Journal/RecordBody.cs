using System.Buffers.Binary;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Journal;

/// <summary>The codec of a record's body, which is identical on every disk and on the wire (FORMAT.md, "Body"). Pure; any thread.</summary>
internal static class RecordBody
{
    /// <summary>"KVR1" as little-endian bytes.</summary>
    public const uint Magic = 0x3152_564B;

    /// <summary>Bytes before the payload, and before the shard time of a record that has one of its own.</summary>
    public const int HeaderBytes = 72;

    /// <summary>Bytes of a shard time behind the header.</summary>
    public const int ShardTimeBytes = sizeof(long);

    /// <summary>Bytes after the payload.</summary>
    public const int TrailerBytes = 4;

    /// <summary>The longest body that is read or written: a transaction of 16 MiB plus the largest batch that it may complete.</summary>
    public const int BytesMax = 20 << 20;

    private const RecordFlags KnownFlags = RecordFlags.EpochOpen | RecordFlags.ResultOnly | RecordFlags.Control | RecordFlags.Lz4 | RecordFlags.ShardTime;

    /// <summary>
    /// Reads the header of a whole body. False when the bytes are not a body of this length in this format. It does not check the payload; see
    /// <see cref="TryVerify"/>.
    /// </summary>
    public static bool TryReadHeader(ReadOnlySpan<byte> body, out RecordRef header)
    {
        header = default;
        return body.Length >= HeaderBytes + TrailerBytes
            && TryReadHeader(body[..HeaderBytes], body.Length, BinaryPrimitives.ReadUInt32LittleEndian(body[^TrailerBytes..]), out header);
    }

    /// <summary>
    /// Reads the header of a body whose length and checksum are known from another source. False when the bytes are not the header of such a body.
    /// </summary>
    public static bool TryReadHeader(ReadOnlySpan<byte> front, int bodyBytes, uint checksum, out RecordRef header)
    {
        header = default;
        if (bodyBytes > BytesMax
            || BinaryPrimitives.ReadUInt32LittleEndian(front) != Magic || BinaryPrimitives.ReadUInt32LittleEndian(front[4..]) != (uint)bodyBytes)
            return false;
        var flags = Flags(front);
        if ((flags & ~KnownFlags) != 0 || LastChange(front) < FirstChange(front) || bodyBytes < BytesOf(0, flags))
            return false;
        header = new RecordRef(
            new Etag(Epoch(front), LastChange(front)),
            EtagBytes.Read(front[40..]),
            checksum,
            BinaryPrimitives.ReadUInt32LittleEndian(front[56..]),
            bodyBytes,
            flags);
        return true;
    }

    /// <summary>Reads the header of a whole, intact body. False if its magic, length or checksum is wrong.</summary>
    public static bool TryVerify(ReadOnlySpan<byte> body, out RecordRef header) =>
        TryReadHeader(body, out header) && Crc32C.Of(body[..^TrailerBytes]) == header.Checksum;

    /// <summary>The epoch of the record.</summary>
    public static ulong Epoch(ReadOnlySpan<byte> body) => BinaryPrimitives.ReadUInt64LittleEndian(body[16..]);

    /// <summary>The change of the first operation; operation i has change first + i.</summary>
    public static ulong FirstChange(ReadOnlySpan<byte> body) => BinaryPrimitives.ReadUInt64LittleEndian(body[24..]);

    /// <summary>The record's last change.</summary>
    public static ulong LastChange(ReadOnlySpan<byte> body) => BinaryPrimitives.ReadUInt64LittleEndian(body[32..]);

    /// <summary>
    /// When the record was made by the leader's wall clock, in microseconds since 1970 and never less than in an earlier record; 0 if that is not known,
    /// because the record has only its shard time.
    /// </summary>
    public static long WallTimeMicroseconds(ReadOnlySpan<byte> body) => HasShardTime(body) ? BinaryPrimitives.ReadInt64LittleEndian(body[64..]) : 0;

    /// <summary>The shard time of the record in microseconds, by which lives are counted. The body is whole.</summary>
    public static long ShardTimeMicroseconds(ReadOnlySpan<byte> body) =>
        BinaryPrimitives.ReadInt64LittleEndian(body[(HasShardTime(body) ? HeaderBytes : 64)..]);

    /// <summary>The payload of a whole body: the encoded operations, which may be compressed.</summary>
    public static Range Payload(ReadOnlySpan<byte> body) => PayloadStart(Flags(body))..^TrailerBytes;

    /// <summary>Bytes before the payload of a body with these flags.</summary>
    public static int PayloadStart(RecordFlags flags) => HeaderBytes + ((flags & RecordFlags.ShardTime) == 0 ? 0 : ShardTimeBytes);

    /// <summary>Number of operations in the payload.</summary>
    public static int OperationCount(ReadOnlySpan<byte> body) => BinaryPrimitives.ReadInt32LittleEndian(body[12..]);

    /// <summary>The record's kind, and whether its payload is compressed.</summary>
    public static RecordFlags Flags(ReadOnlySpan<byte> body) => (RecordFlags)BinaryPrimitives.ReadUInt16LittleEndian(body[8..]);

    /// <summary>Builds the body that follows <paramref name="previous"/>, in a new array that may be kept and sent to followers.</summary>
    /// <param name="previous">The record it is chained to.</param>
    /// <param name="flags">Its kind.</param>
    /// <param name="epoch">The epoch it belongs to.</param>
    /// <param name="operationCount">Operations in the payload. A record without any takes one change too.</param>
    /// <param name="wallTimeMicroseconds">The wall time, or without <see cref="RecordFlags.ShardTime"/> the shard time.</param>
    /// <param name="payload">The encoded operations, or with <see cref="RecordFlags.Lz4"/> what <see cref="RecordPayload.Compress"/> has made of them.</param>
    /// <param name="record">What <see cref="TryVerify"/> would read of it.</param>
    /// <param name="shardTimeMicroseconds">The shard time, with that flag.</param>
    public static byte[] Encode(
        in RecordRef previous, RecordFlags flags,
        ulong epoch, int operationCount, long wallTimeMicroseconds, ReadOnlySpan<byte> payload, out RecordRef record, long shardTimeMicroseconds = 0)
    {
        var body = GC.AllocateUninitializedArray<byte>(BytesOf(payload.Length, flags));
        payload.CopyTo(body.AsSpan(PayloadStart(flags)));
        Seal(body, previous, flags, epoch, operationCount, wallTimeMicroseconds, out record, shardTimeMicroseconds);
        return body;
    }

    /// <summary>The length of a body with a payload of this length.</summary>
    public static int BytesOf(int payloadBytes, RecordFlags flags) => PayloadStart(flags) + payloadBytes + TrailerBytes;

    /// <summary>The same in memory of <see cref="BytesOf"/> bytes that has the payload in its place: writes what is before and behind it.</summary>
    public static void Seal(
        Span<byte> body, in RecordRef previous,
        RecordFlags flags, ulong epoch, int operationCount, long wallTimeMicroseconds, out RecordRef record, long shardTimeMicroseconds = 0)
    {
        var first = previous.Change + 1;
        var last = first + (ulong)Math.Max(operationCount, 1) - 1;
        BinaryPrimitives.WriteUInt32LittleEndian(body, Magic);
        BinaryPrimitives.WriteUInt32LittleEndian(body[4..], (uint)body.Length);
        BinaryPrimitives.WriteUInt16LittleEndian(body[8..], (ushort)flags);
        BinaryPrimitives.WriteUInt16LittleEndian(body[10..], 0);
        BinaryPrimitives.WriteInt32LittleEndian(body[12..], operationCount);
        BinaryPrimitives.WriteUInt64LittleEndian(body[16..], epoch);
        BinaryPrimitives.WriteUInt64LittleEndian(body[24..], first);
        BinaryPrimitives.WriteUInt64LittleEndian(body[32..], last);
        EtagBytes.Write(body[40..], previous.Etag);
        BinaryPrimitives.WriteUInt32LittleEndian(body[56..], previous.Checksum);
        BinaryPrimitives.WriteUInt32LittleEndian(body[60..], 0);
        BinaryPrimitives.WriteInt64LittleEndian(body[64..], wallTimeMicroseconds);
        if ((flags & RecordFlags.ShardTime) != 0)
            BinaryPrimitives.WriteInt64LittleEndian(body[HeaderBytes..], shardTimeMicroseconds);
        var checksum = Crc32C.Of(body[..^TrailerBytes]);
        BinaryPrimitives.WriteUInt32LittleEndian(body[^TrailerBytes..], checksum);
        record = new RecordRef(new Etag(epoch, last), previous.Etag, checksum, previous.Checksum, body.Length, flags);
    }

    private static bool HasShardTime(ReadOnlySpan<byte> body) => (Flags(body) & RecordFlags.ShardTime) != 0;
}
