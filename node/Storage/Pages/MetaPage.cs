using System.Buffers.Binary;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Pages;

/// <summary>
/// What a checkpoint writes to one of the first two pages (FORMAT.md, "Meta page"). The pages it reaches are durable before it is written. Immutable.
/// </summary>
internal sealed record MetaPage
{
    /// <summary>"KVCDATA" and a zero byte.</summary>
    public const ulong Magic = 0x0041544144_43564B;

    /// <summary>The greatest version: that of a file that may have compressed values.</summary>
    public const uint FormatVersion = 7;

    /// <summary>The version of a file that may have divided values, or values of more than a quarter page in leaves, but no compressed ones.</summary>
    public const uint FormatVersionOfDividedValues = 6;

    /// <summary>
    /// The least version that is read. An empty file has it, and one of a store that divides no values, since programs may have to open it that know no other.
    /// </summary>
    public const uint FormatVersionMin = 5;

    private const int RootsOffset = 128;
    private const int RootBytes = 32;

    /// <summary>The version of the file. It never decreases.</summary>
    public uint Version { get; init; } = FormatVersionMin;

    /// <summary>Increases by one with each checkpoint. Even revisions are in page 0, odd ones in page 1.</summary>
    public required ulong Revision { get; init; }

    /// <summary>Identifies the replica whose file this is; 16 bytes.</summary>
    public required UInt128 Identity { get; init; }

    /// <summary>Pages of the file, in use or free; the file may be longer.</summary>
    public required long FilePages { get; init; }

    /// <summary>Reference to the free map's directory.</summary>
    public PageRef FreeDirectory { get; init; }

    /// <summary>Its checksum.</summary>
    public uint FreeDirectoryChecksum { get; init; }

    /// <summary>The journal's records that the checkpoint covers.</summary>
    public CheckpointPosition CheckpointPosition { get; init; }

    /// <summary>The shard time of the last record covered, in microseconds; 0 if there is none.</summary>
    public long ShardTime { get; init; }

    /// <summary>The wall time of the last record covered that has one, in microseconds since 1970; 0 if there is none.</summary>
    public long WallTime { get; init; }

    /// <summary>The trees.</summary>
    public required TreeRoot[] Trees { get; init; }

    /// <summary>The page to which this revision is written.</summary>
    public long PageNumber => (long)(Revision % 2);

    /// <summary>Writes the page.</summary>
    public void Encode(Span<byte> page)
    {
        page[..Page.Bytes].Clear();
        page[4] = (byte)PageType.Meta;
        BinaryPrimitives.WriteUInt64LittleEndian(page[8..], Magic);
        BinaryPrimitives.WriteUInt32LittleEndian(page[16..], Version);
        BinaryPrimitives.WriteUInt32LittleEndian(page[20..], Page.Bytes);
        BinaryPrimitives.WriteUInt64LittleEndian(page[24..], Revision);
        BinaryPrimitives.WriteUInt128LittleEndian(page[32..], Identity);
        BinaryPrimitives.WriteInt64LittleEndian(page[48..], FilePages);
        BinaryPrimitives.WriteUInt64LittleEndian(page[56..], FreeDirectory.Value);
        BinaryPrimitives.WriteUInt32LittleEndian(page[64..], FreeDirectoryChecksum);
        BinaryPrimitives.WriteUInt32LittleEndian(page[68..], CheckpointPosition.ChainChecksum);
        BinaryPrimitives.WriteUInt64LittleEndian(page[72..], CheckpointPosition.Etag.Change);
        BinaryPrimitives.WriteUInt64LittleEndian(page[80..], CheckpointPosition.Etag.Epoch);
        BinaryPrimitives.WriteUInt64LittleEndian(page[88..], CheckpointPosition.Position.Segment);
        BinaryPrimitives.WriteInt64LittleEndian(page[96..], CheckpointPosition.Position.Offset);
        BinaryPrimitives.WriteInt64LittleEndian(page[104..], ShardTime);
        BinaryPrimitives.WriteInt64LittleEndian(page[112..], WallTime);
        for (var i = 0; i < StoreRoot.TreesMax; i++)
        {
            var root = page[(RootsOffset + (i * RootBytes))..];
            BinaryPrimitives.WriteUInt64LittleEndian(root, Trees[i].Link.Reference.Value);
            BinaryPrimitives.WriteUInt32LittleEndian(root[8..], Trees[i].Link.Checksum);
            BinaryPrimitives.WriteUInt64LittleEndian(root[16..], Trees[i].Count);
        }
        BinaryPrimitives.WriteUInt32LittleEndian(page, Crc32C.Of(page[4..Page.Bytes]));
    }

    /// <summary>Reads a page; null when it is torn or not a meta page.</summary>
    /// <exception cref="FormatVersionException">The page is intact but has another version.</exception>
    public static MetaPage? TryDecode(ReadOnlySpan<byte> page, string path)
    {
        if (BinaryPrimitives.ReadUInt32LittleEndian(page) != Crc32C.Of(page[4..Page.Bytes]) || BinaryPrimitives.ReadUInt64LittleEndian(page[8..]) != Magic)
            return null;
        var version = BinaryPrimitives.ReadUInt32LittleEndian(page[16..]);
        if (version is < FormatVersionMin or > FormatVersion)
            throw new FormatVersionException(path, version, FormatVersion);
        var trees = new TreeRoot[StoreRoot.TreesMax];
        for (var i = 0; i < trees.Length; i++)
        {
            var root = page[(RootsOffset + (i * RootBytes))..];
            trees[i].Link.Reference = new PageRef(BinaryPrimitives.ReadUInt64LittleEndian(root));
            trees[i].Link.Checksum = BinaryPrimitives.ReadUInt32LittleEndian(root[8..]);
            trees[i].Count = BinaryPrimitives.ReadUInt64LittleEndian(root[16..]);
        }
        return new MetaPage
        {
            Version = version,
            Revision = BinaryPrimitives.ReadUInt64LittleEndian(page[24..]),
            Identity = BinaryPrimitives.ReadUInt128LittleEndian(page[32..]),
            FilePages = BinaryPrimitives.ReadInt64LittleEndian(page[48..]),
            FreeDirectory = new PageRef(BinaryPrimitives.ReadUInt64LittleEndian(page[56..])),
            FreeDirectoryChecksum = BinaryPrimitives.ReadUInt32LittleEndian(page[64..]),
            CheckpointPosition = new CheckpointPosition(
                new Etag(BinaryPrimitives.ReadUInt64LittleEndian(page[80..]), BinaryPrimitives.ReadUInt64LittleEndian(page[72..])),
                new JournalPosition(BinaryPrimitives.ReadUInt64LittleEndian(page[88..]), BinaryPrimitives.ReadInt64LittleEndian(page[96..])),
                BinaryPrimitives.ReadUInt32LittleEndian(page[68..])),
            ShardTime = BinaryPrimitives.ReadInt64LittleEndian(page[104..]),
            WallTime = BinaryPrimitives.ReadInt64LittleEndian(page[112..]),
            Trees = trees,
        };
    }
}

/// <summary>What a checkpoint covers; all zero for a store without one.</summary>
/// <param name="Etag">The last change in it.</param>
/// <param name="Position">Where replay continues.</param>
/// <param name="ChainChecksum">Body checksum of the record that ends with <paramref name="Etag"/>.</param>
internal readonly record struct CheckpointPosition(Etag Etag, JournalPosition Position, uint ChainChecksum)
{
    /// <summary>The last record in it, as far as the next one needs it: by etag and checksum.</summary>
    public RecordRef Last => new(Etag, default, ChainChecksum, 0, 0, RecordFlags.None);
}

/// <summary>Where the next record to replay starts.</summary>
/// <param name="Segment">Number of the segment file.</param>
/// <param name="Offset">Byte offset in it.</param>
internal readonly record struct JournalPosition(ulong Segment, long Offset);
