using System.Buffers.Binary;
using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Journal;

/// <summary>
/// The first block of a segment (FORMAT.md, "Segment header"), synced before the first record. Headers define the line of segments: data after the end
/// that a header states for its predecessor is dead, and so is a segment that no header names.
/// </summary>
/// <param name="Number">The segment's number, as in its file name. A recycled file contains the old number until its new header is written.</param>
/// <param name="Incarnation">Identifies this use of the file. Each of its records repeats it.</param>
/// <param name="ReplicaId">The replica it belongs to.</param>
/// <param name="Shard">The shard it belongs to.</param>
/// <param name="PredecessorNumber">The previous segment of the line; 0 for the first.</param>
/// <param name="PredecessorIncarnation">The incarnation of that segment.</param>
/// <param name="PredecessorEnd">Where that segment ends, in bytes.</param>
/// <param name="LastEtag">The etag of the record before this segment's first.</param>
/// <param name="LastChecksum">The checksum of that record.</param>
internal readonly record struct SegmentHeader(
    ulong Number,
    ulong Incarnation,
    ReplicaId ReplicaId,
    ShardId Shard,
    ulong PredecessorNumber,
    ulong PredecessorIncarnation,
    long PredecessorEnd,
    Etag LastEtag,
    uint LastChecksum)
{
    /// <summary>"KVS1" as little-endian bytes.</summary>
    public const uint Magic = 0x3153_564B;

    /// <summary>The journal's format version: records may have a shard time of their own, and sessions what is left of their lifetimes.</summary>
    public const uint Version = 6;

    /// <summary>The version before, which is read too. It is written as long as nodes may have to read the journal's records that know no other.</summary>
    public const uint VersionBefore = 5;

    /// <summary>The version for the records that a replica with these options may append.</summary>
    public static uint VersionFor(StoreOptions options) => options.HasShardTimes ? Version : VersionBefore;

    /// <summary>Bytes before the first record: one block, zero after the header.</summary>
    public const int BlockBytes = RecordEnvelope.BlockBytes;

    private const int ChecksumOffset = 88;

    /// <summary>Bits of an incarnation below the segment's number.</summary>
    private const int NumberShift = 24;

    /// <summary>An incarnation that contains the segment's number. The random bits distinguish copies of files.</summary>
    public static ulong IncarnationOf(ulong number, ulong chance) => (number << NumberShift) | (chance >> (64 - NumberShift));

    /// <summary>
    /// Whether the incarnation in a record names this segment. Older stores have incarnations without the number; such an incarnation matches by
    /// chance in 1 of 2^40 cases.
    /// </summary>
    public static bool Names(ulong incarnation, ulong number) => incarnation >> NumberShift == number;

    /// <summary>Writes the whole block.</summary>
    /// <param name="block">Where to.</param>
    /// <param name="version">The version of the records that may follow.</param>
    public void WriteTo(Span<byte> block, uint version)
    {
        block[..BlockBytes].Clear();
        BinaryPrimitives.WriteUInt32LittleEndian(block, Magic);
        BinaryPrimitives.WriteUInt32LittleEndian(block[4..], version);
        BinaryPrimitives.WriteUInt64LittleEndian(block[8..], Number);
        BinaryPrimitives.WriteUInt64LittleEndian(block[16..], Incarnation);
        BinaryPrimitives.WriteUInt64LittleEndian(block[24..], ReplicaId.Value);
        BinaryPrimitives.WriteUInt32LittleEndian(block[32..], Shard.Value);
        BinaryPrimitives.WriteUInt64LittleEndian(block[40..], PredecessorNumber);
        BinaryPrimitives.WriteUInt64LittleEndian(block[48..], PredecessorIncarnation);
        BinaryPrimitives.WriteInt64LittleEndian(block[56..], PredecessorEnd);
        EtagBytes.Write(block[64..], LastEtag);
        BinaryPrimitives.WriteUInt32LittleEndian(block[80..], LastChecksum);
        BinaryPrimitives.WriteUInt32LittleEndian(block[ChecksumOffset..], Crc32C.Of(block[..ChecksumOffset]));
    }

    /// <summary>
    /// Reads a block; false when it is not a header, is damaged, or is not zero behind the fields: its write never ended then, and the segment was not used.
    /// </summary>
    /// <exception cref="FormatVersionException">An intact header of another version.</exception>
    public static bool TryRead(ReadOnlySpan<byte> block, string path, out SegmentHeader header)
    {
        header = default;
        if (block.Length < BlockBytes || BinaryPrimitives.ReadUInt32LittleEndian(block) != Magic
            || BinaryPrimitives.ReadUInt32LittleEndian(block[ChecksumOffset..]) != Crc32C.Of(block[..ChecksumOffset])
            || block[(ChecksumOffset + sizeof(uint))..BlockBytes].ContainsAnyExcept((byte)0))
            return false;
        var version = BinaryPrimitives.ReadUInt32LittleEndian(block[4..]);
        if (version is not (Version or VersionBefore))
            throw new FormatVersionException(path, version, Version);
        header = new SegmentHeader(
            BinaryPrimitives.ReadUInt64LittleEndian(block[8..]),
            BinaryPrimitives.ReadUInt64LittleEndian(block[16..]),
            new ReplicaId(BinaryPrimitives.ReadUInt64LittleEndian(block[24..])),
            new(BinaryPrimitives.ReadUInt32LittleEndian(block[32..])),
            BinaryPrimitives.ReadUInt64LittleEndian(block[40..]),
            BinaryPrimitives.ReadUInt64LittleEndian(block[48..]),
            BinaryPrimitives.ReadInt64LittleEndian(block[56..]),
            EtagBytes.Read(block[64..]),
            BinaryPrimitives.ReadUInt32LittleEndian(block[80..]));
        return true;
    }
}
