using System.Buffers.Binary;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Shared;

/// <summary>
/// A block of the shared journal (FORMAT.md, "Shared journal"): a header, a directory of the writes in it, their records, and the directories of earlier
/// blocks, so that whose records they had is known when one of these cannot be read. Pure; any thread.
/// </summary>
/// <param name="Journal">The random id of the shared journal: nobody who writes a value can make it look like a block.</param>
/// <param name="Number">Its number. Each block has the one after that of the block before it.</param>
/// <param name="DurableBefore">All blocks with lower numbers were durable when this one was submitted to the disk.</param>
/// <param name="NeededFrom">The segments have had, durable, what is in blocks with lower numbers.</param>
/// <param name="DirectoryBytes">Length of the directory, which follows the header.</param>
/// <param name="ContentBytes">Length of all records, which follow the directory.</param>
/// <param name="RepeatedBytes">Length of the earlier directories, which follow the records.</param>
/// <param name="DirectoryChecksum">CRC-32C of the directory.</param>
/// <param name="RepeatedChecksum">CRC-32C of the earlier directories.</param>
internal readonly record struct SharedBlock(
    ulong Journal,
    ulong Number,
    ulong DurableBefore,
    ulong NeededFrom,
    int DirectoryBytes,
    int ContentBytes,
    int RepeatedBytes,
    uint DirectoryChecksum,
    uint RepeatedChecksum)
{
    /// <summary>Length of the header in bytes.</summary>
    public const int HeaderBytes = 64;

    /// <summary>Writes that a block has at most.</summary>
    public const int WritesMax = 128;

    /// <summary>Bytes of records that a block has at most.</summary>
    public const int ContentBytesMax = 256 << 10;

    /// <summary>
    /// Length of the longest block, which has room for the directories of one block for each lane, and of some more. While one is on its way for so long that
    /// there are too many, shards write alone.
    /// </summary>
    public const int BytesMax = 1 << 20;

    /// <summary>Bytes of the longest name in a directory.</summary>
    public const int NameBytesMax = 255;

    /// <summary>"KVB1" as little-endian bytes.</summary>
    private const uint Magic = 0x3142_564B;
    private const uint Version = 1;
    private const int ChecksumOffset = 60;
    private const int EntryBytes = 50;
    private const int RepeatedHeaderBytes = 12;

    /// <summary>Its length on the disk.</summary>
    public int Bytes => AlignedBuffer.RoundUp(HeaderBytes + DirectoryBytes + ContentBytes + RepeatedBytes);

    /// <summary>Where its records begin.</summary>
    public int ContentOffset => HeaderBytes + DirectoryBytes;

    /// <summary>Where the earlier directories begin.</summary>
    public int RepeatedOffset => ContentOffset + ContentBytes;

    /// <summary>Length of an entry of a directory.</summary>
    public static int EntryBytesOf(in SharedEntry entry) => EntryBytes + entry.Name.Length;

    /// <summary>Length of an earlier directory as it is repeated.</summary>
    public static int RepeatedBytesOf(ReadOnlySpan<byte> directory) => RepeatedHeaderBytes + directory.Length;

    /// <summary>Writes the header.</summary>
    public void WriteTo(Span<byte> destination)
    {
        BinaryPrimitives.WriteUInt32LittleEndian(destination, Magic);
        BinaryPrimitives.WriteUInt32LittleEndian(destination[4..], Version);
        BinaryPrimitives.WriteUInt64LittleEndian(destination[8..], Journal);
        BinaryPrimitives.WriteUInt64LittleEndian(destination[16..], Number);
        BinaryPrimitives.WriteUInt64LittleEndian(destination[24..], DurableBefore);
        BinaryPrimitives.WriteUInt64LittleEndian(destination[32..], NeededFrom);
        BinaryPrimitives.WriteInt32LittleEndian(destination[40..], DirectoryBytes);
        BinaryPrimitives.WriteInt32LittleEndian(destination[44..], ContentBytes);
        BinaryPrimitives.WriteInt32LittleEndian(destination[48..], RepeatedBytes);
        BinaryPrimitives.WriteUInt32LittleEndian(destination[52..], DirectoryChecksum);
        BinaryPrimitives.WriteUInt32LittleEndian(destination[56..], RepeatedChecksum);
        BinaryPrimitives.WriteUInt32LittleEndian(destination[ChecksumOffset..], Crc32C.Of(destination[..ChecksumOffset]));
    }

    /// <summary>Reads a header; false if the bytes are none, or are damaged.</summary>
    /// <exception cref="FormatVersionException">An intact header of another version.</exception>
    public static bool TryRead(ReadOnlySpan<byte> source, string path, out SharedBlock block)
    {
        block = default;
        if (source.Length < HeaderBytes || BinaryPrimitives.ReadUInt32LittleEndian(source) != Magic
            || BinaryPrimitives.ReadUInt32LittleEndian(source[ChecksumOffset..]) != Crc32C.Of(source[..ChecksumOffset]))
            return false;
        if (BinaryPrimitives.ReadUInt32LittleEndian(source[4..]) is var version and not Version)
            throw new FormatVersionException(path, version, Version);
        block = new SharedBlock(
            BinaryPrimitives.ReadUInt64LittleEndian(source[8..]),
            BinaryPrimitives.ReadUInt64LittleEndian(source[16..]),
            BinaryPrimitives.ReadUInt64LittleEndian(source[24..]),
            BinaryPrimitives.ReadUInt64LittleEndian(source[32..]),
            BinaryPrimitives.ReadInt32LittleEndian(source[40..]),
            BinaryPrimitives.ReadInt32LittleEndian(source[44..]),
            BinaryPrimitives.ReadInt32LittleEndian(source[48..]),
            BinaryPrimitives.ReadUInt32LittleEndian(source[52..]),
            BinaryPrimitives.ReadUInt32LittleEndian(source[56..]));
        return block is { DirectoryBytes: >= 0 and <= BytesMax, ContentBytes: >= 0 and <= BytesMax, RepeatedBytes: >= 0 and <= BytesMax };
    }

    /// <summary>Writes an entry of a directory. Returns its length.</summary>
    public static int WriteEntry(Span<byte> destination, in SharedEntry entry)
    {
        BinaryPrimitives.WriteUInt64LittleEndian(destination, entry.Replica.Value);
        BinaryPrimitives.WriteUInt64LittleEndian(destination[8..], entry.Incarnation);
        BinaryPrimitives.WriteInt64LittleEndian(destination[16..], entry.Offset);
        EtagBytes.Write(destination[24..], entry.Last);
        BinaryPrimitives.WriteInt32LittleEndian(destination[40..], entry.Bytes);
        BinaryPrimitives.WriteUInt32LittleEndian(destination[44..], entry.Checksum);
        BinaryPrimitives.WriteUInt16LittleEndian(destination[48..], (ushort)entry.Name.Length);
        entry.Name.Span.CopyTo(destination[EntryBytes..]);
        return EntryBytes + entry.Name.Length;
    }

    /// <summary>Reads the entries of an intact directory. Null if it is not one.</summary>
    public static List<SharedEntry>? ReadDirectory(ReadOnlyMemory<byte> directory)
    {
        var entries = new List<SharedEntry>();
        for (var rest = directory; !rest.IsEmpty;)
        {
            var source = rest.Span;
            if (source.Length < EntryBytes || source.Length < EntryBytes + BinaryPrimitives.ReadUInt16LittleEndian(source[48..]))
                return null;
            var entry = new SharedEntry(
                rest.Slice(EntryBytes, BinaryPrimitives.ReadUInt16LittleEndian(source[48..])),
                new ReplicaId(BinaryPrimitives.ReadUInt64LittleEndian(source)),
                BinaryPrimitives.ReadUInt64LittleEndian(source[8..]),
                BinaryPrimitives.ReadInt64LittleEndian(source[16..]),
                EtagBytes.Read(source[24..]),
                BinaryPrimitives.ReadInt32LittleEndian(source[40..]),
                BinaryPrimitives.ReadUInt32LittleEndian(source[44..]));
            entries.Add(entry);
            rest = rest[EntryBytesOf(entry)..];
        }
        return entries;
    }

    /// <summary>Repeats the directory of an earlier block. Returns the length.</summary>
    public static int WriteRepeated(Span<byte> destination, ulong number, ReadOnlySpan<byte> directory)
    {
        BinaryPrimitives.WriteUInt64LittleEndian(destination, number);
        BinaryPrimitives.WriteInt32LittleEndian(destination[8..], directory.Length);
        directory.CopyTo(destination[RepeatedHeaderBytes..]);
        return RepeatedHeaderBytes + directory.Length;
    }

    /// <summary>Reads the directories of earlier blocks from intact bytes.</summary>
    public static IEnumerable<(ulong Number, ReadOnlyMemory<byte> Directory)> ReadRepeated(ReadOnlyMemory<byte> repeated)
    {
        while (repeated.Length >= RepeatedHeaderBytes)
        {
            var number = BinaryPrimitives.ReadUInt64LittleEndian(repeated.Span);
            var bytes = BinaryPrimitives.ReadInt32LittleEndian(repeated.Span[8..]);
            if (bytes < 0 || bytes > repeated.Length - RepeatedHeaderBytes)
                yield break;
            yield return (number, repeated.Slice(RepeatedHeaderBytes, bytes));
            repeated = repeated[(RepeatedHeaderBytes + bytes)..];
        }
    }
}
