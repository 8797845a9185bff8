using System.Buffers.Binary;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Shared;

/// <summary>
/// A file of the shared journal: a header block and then blocks, up to a fixed length. <see cref="SharedJournal"/> changes it under its lock; lanes write to
/// different places of it at once.
/// </summary>
internal sealed class SharedFile : IDisposable
{
    /// <summary>Bytes before the first block.</summary>
    public const int HeaderBytes = AlignedBuffer.Alignment;

    /// <summary>"KVJ1" as little-endian bytes.</summary>
    private const uint Magic = 0x314A_564B;
    private const uint Version = 1;
    private const int ChecksumOffset = 24;
    private const int FillBytes = 1 << 20;
    private readonly IStorageFile _file;

    private SharedFile(IStorageFile file, int bytes) => (_file, Length) = (file, bytes);

    /// <summary>Its path.</summary>
    public string Path => _file.Path;

    /// <summary>Its length in bytes.</summary>
    public int Length { get; }

    /// <summary>Which use of a file this is. The first has 1.</summary>
    public long Use { get; private set; }

    /// <summary>Where the next block goes.</summary>
    public int End { get; private set; }

    /// <summary>The number of the newest block in it.</summary>
    public ulong Newest { get; private set; }

    /// <summary>Blocks that are being written, or whose records are not in the page cache of their segments yet.</summary>
    public int Users { get; set; }

    /// <summary>The path of a file in the directory of a shared journal.</summary>
    public static string PathOf(string directory, int index) =>
        System.IO.Path.Combine(directory, index.ToString(System.Globalization.CultureInfo.InvariantCulture));

    /// <summary>
    /// Creates a file with zeros that were written. Its name and content are durable when this returns. Null if the file system has no direct I/O.
    /// </summary>
    /// <exception cref="StorageIoException">An I/O error, or the disk is full. The file may be there.</exception>
    public static SharedFile? TryCreate(IFileSystem files, string directory, int index, int bytes)
    {
        var path = PathOf(directory, index);
        files.Delete(path);
        var file = files.Open(path, new StorageFileOptions(StorageFileMode.CreateNew, Direct: true, DataSync: true));
        try
        {
            if (!file.IsDirect)
            {
                file.Dispose();
                files.Delete(path);
                return null;
            }
            file.Resize(bytes);
            file.Sync();
            using var zeros = new AlignedBuffer(FillBytes);
            for (var at = 0; at < bytes; at += FillBytes)
                file.Write(zeros.Span[..Math.Min(FillBytes, bytes - at)], at);
            files.SyncDirectory(directory);
            return new SharedFile(file, bytes);
        }
        catch
        {
            file.Dispose();
            throw;
        }
    }

    /// <summary>
    /// Writes the header of the file's next use, which is durable when this returns: the segments have, durable, what is in blocks below a number.
    /// </summary>
    public void Begin(long use, ulong journal, ulong neededFrom)
    {
        WriteHeader(_file, journal, neededFrom);
        (Use, End, Newest) = (use, HeaderBytes, 0);
    }

    /// <summary>Writes a header; see <see cref="Begin"/>.</summary>
    public static void WriteHeader(IStorageFile file, ulong journal, ulong neededFrom)
    {
        using var block = new AlignedBuffer(HeaderBytes);
        BinaryPrimitives.WriteUInt32LittleEndian(block.Span, Magic);
        BinaryPrimitives.WriteUInt32LittleEndian(block.Span[4..], Version);
        BinaryPrimitives.WriteUInt64LittleEndian(block.Span[8..], journal);
        BinaryPrimitives.WriteUInt64LittleEndian(block.Span[16..], neededFrom);
        BinaryPrimitives.WriteUInt32LittleEndian(block.Span[ChecksumOffset..], Crc32C.Of(block.Span[..ChecksumOffset]));
        file.Write(block.Span, 0);
    }

    /// <summary>Reads a header; false if the block is none, or is damaged.</summary>
    /// <exception cref="FormatVersionException">An intact header of another version.</exception>
    public static bool TryReadHeader(ReadOnlySpan<byte> block, string path, out ulong journal, out ulong neededFrom)
    {
        (journal, neededFrom) = (0, 0);
        if (block.Length < HeaderBytes || BinaryPrimitives.ReadUInt32LittleEndian(block) != Magic
            || BinaryPrimitives.ReadUInt32LittleEndian(block[ChecksumOffset..]) != Crc32C.Of(block[..ChecksumOffset]))
            return false;
        if (BinaryPrimitives.ReadUInt32LittleEndian(block[4..]) is var version and not Version)
            throw new FormatVersionException(path, version, Version);
        journal = BinaryPrimitives.ReadUInt64LittleEndian(block[8..]);
        neededFrom = BinaryPrimitives.ReadUInt64LittleEndian(block[16..]);
        return true;
    }

    /// <summary>Takes the place of a block.</summary>
    public int Take(ulong number, int bytes)
    {
        var at = End;
        (End, Newest) = (at + bytes, number);
        Users++;
        return at;
    }

    /// <summary>Writes a block, which is durable when this returns.</summary>
    /// <exception cref="StorageIoException">An I/O error. The block may have arrived.</exception>
    public void WriteDurable(ReadOnlySpan<byte> block, int offset) => _file.Write(block, offset);

    /// <inheritdoc/>
    public void Dispose() => _file.Dispose();
}
