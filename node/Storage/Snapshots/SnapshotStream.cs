using System.Buffers.Binary;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Snapshots;

/// <summary>
/// The format in which a checkpoint is sent to another replica (FORMAT.md, "Snapshot stream"): a header, the table of page runs, then the pages of the
/// runs, the two meta pages first. This class is the part before the pages. Pure; any thread.
/// </summary>
internal sealed class SnapshotStream
{
    /// <summary>"KVT1" as little-endian bytes.</summary>
    public const uint Magic = 0x3154_564B;

    /// <summary>Version of the stream.</summary>
    public const uint Version = 1;

    /// <summary>Length of the header; the table follows.</summary>
    public const int HeaderBytes = 48;

    /// <summary>The most runs that are accepted: every second page of the longest data file, and the two meta pages.</summary>
    public static readonly int RunsMax = (int)(FreeMap.FilePagesMax / 2) + 1;

    private const int ChecksumOffset = HeaderBytes - sizeof(uint);
    private const int RunBytes = 16;
    private readonly long[] _starts;

    /// <summary>Describes a checkpoint.</summary>
    public SnapshotStream(Etag etag, uint chainChecksum, long filePages, IReadOnlyList<PageRun> runs)
    {
        Etag = etag;
        ChainChecksum = chainChecksum;
        FilePages = filePages;
        Runs = runs;
        _starts = new long[runs.Count + 1];
        for (var index = 0; index < runs.Count; index++)
            _starts[index + 1] = _starts[index] + (runs[index].Count * Page.Bytes);
    }

    /// <summary>The last record that it covers.</summary>
    public Etag Etag { get; }

    /// <summary>The checksum of that record.</summary>
    public uint ChainChecksum { get; }

    /// <summary>Length of the data file in pages.</summary>
    public long FilePages { get; }

    /// <summary>The pages in the stream, in ascending order.</summary>
    public IReadOnlyList<PageRun> Runs { get; }

    /// <summary>Bytes before the first page.</summary>
    public long PrefixBytes => PrefixBytesOf(Runs.Count);

    /// <summary>Bytes of the whole stream.</summary>
    public long BytesTotal => PrefixBytes + _starts[^1];

    /// <summary>Bytes before the first page for a number of runs.</summary>
    public static long PrefixBytesOf(int runCount) => HeaderBytes + ((long)runCount * RunBytes);

    /// <summary>Encodes the part before the pages.</summary>
    public byte[] EncodePrefix()
    {
        var bytes = new byte[PrefixBytes];
        for (var index = 0; index < Runs.Count; index++)
        {
            BinaryPrimitives.WriteInt64LittleEndian(bytes.AsSpan(HeaderBytes + (index * RunBytes)), Runs[index].First);
            BinaryPrimitives.WriteInt64LittleEndian(bytes.AsSpan(HeaderBytes + (index * RunBytes) + 8), Runs[index].Count);
        }
        BinaryPrimitives.WriteUInt32LittleEndian(bytes, Magic);
        BinaryPrimitives.WriteUInt32LittleEndian(bytes.AsSpan(4), Version);
        BinaryPrimitives.WriteInt32LittleEndian(bytes.AsSpan(8), Runs.Count);
        BinaryPrimitives.WriteUInt32LittleEndian(bytes.AsSpan(12), Crc32C.Of(bytes.AsSpan(HeaderBytes)));
        BinaryPrimitives.WriteInt64LittleEndian(bytes.AsSpan(16), FilePages);
        EtagBytes.Write(bytes.AsSpan(24), Etag);
        BinaryPrimitives.WriteUInt32LittleEndian(bytes.AsSpan(40), ChainChecksum);
        BinaryPrimitives.WriteUInt32LittleEndian(bytes.AsSpan(ChecksumOffset), Crc32C.Of(bytes.AsSpan(0, ChecksumOffset)));
        return bytes;
    }

    /// <summary>The number of runs in a stream, from its header.</summary>
    /// <exception cref="CorruptStoreException">The bytes are not the header of a stream.</exception>
    /// <exception cref="FormatVersionException">The stream has another version.</exception>
    public static int ReadRunCount(ReadOnlySpan<byte> header, string receiver)
    {
        if (BinaryPrimitives.ReadUInt32LittleEndian(header) != Magic
            || BinaryPrimitives.ReadUInt32LittleEndian(header[ChecksumOffset..]) != Crc32C.Of(header[..ChecksumOffset]))
            throw new CorruptStoreException($"The snapshot for '{receiver}' does not start with an intact header.");
        if (BinaryPrimitives.ReadUInt32LittleEndian(header[4..]) is var version && version != Version)
            throw new FormatVersionException(receiver, version, Version);
        var count = BinaryPrimitives.ReadInt32LittleEndian(header[8..]);
        return count >= 1 && count <= RunsMax ? count
            : throw new CorruptStoreException($"The snapshot for '{receiver}' lists an invalid number of page runs, {count}.");
    }

    /// <summary>Decodes the whole part before the pages.</summary>
    /// <exception cref="CorruptStoreException">That part is damaged.</exception>
    public static SnapshotStream Decode(ReadOnlySpan<byte> prefix, string receiver)
    {
        var runs = new PageRun[ReadRunCount(prefix, receiver)];
        if (BinaryPrimitives.ReadUInt32LittleEndian(prefix[12..]) != Crc32C.Of(prefix[HeaderBytes..]))
            throw new CorruptStoreException($"The snapshot for '{receiver}' has a damaged table of pages.");
        var filePages = BinaryPrimitives.ReadInt64LittleEndian(prefix[16..]);
        if (filePages > FreeMap.FilePagesMax)
            throw new CorruptStoreException(
                $"The snapshot for '{receiver}' is of a file with {filePages} pages, but a file can have at most {FreeMap.FilePagesMax}.");
        for (var index = 0; index < runs.Length; index++)
        {
            runs[index] = new PageRun(
                BinaryPrimitives.ReadInt64LittleEndian(prefix[(HeaderBytes + (index * RunBytes))..]),
                BinaryPrimitives.ReadInt64LittleEndian(prefix[(HeaderBytes + (index * RunBytes) + 8)..]));
            if (runs[index].First < 0 || runs[index].Count < 1 || runs[index].Count > filePages || runs[index].First > filePages - runs[index].Count)
                throw new CorruptStoreException($"The snapshot for '{receiver}' lists pages outside its file.");
            if (index == 0 ? runs[0].First != 0 || runs[0].Count < 2 : runs[index].First <= runs[index - 1].First + runs[index - 1].Count - 1)
                throw new CorruptStoreException($"The snapshot for '{receiver}' lists page runs out of order.");
        }
        var etag = EtagBytes.Read(prefix[24..]);
        return new SnapshotStream(etag, BinaryPrimitives.ReadUInt32LittleEndian(prefix[40..]), filePages, runs);
    }

    /// <summary>Where a byte of the stream after the prefix belongs in the data file, and how many bytes follow it there.</summary>
    public (long FileOffset, long Bytes) Locate(long streamOffset)
    {
        var offset = streamOffset - PrefixBytes;
        var run = Array.BinarySearch(_starts, offset);
        if (run < 0)
            run = ~run - 1;
        return ((Runs[run].First * Page.Bytes) + (offset - _starts[run]), _starts[run + 1] - offset);
    }
}
