using System.Collections.Concurrent;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Journal;

/// <summary>
/// The segment that will be used next: newly allocated, or recycled from a dead one by renaming it, together with the empty file of its successor. Used by
/// one lane at a time. A crash leaves a file without a valid header, which recovery treats as not used yet.
/// </summary>
internal sealed class SegmentPreparation : IDisposable
{
    private const int FillBytes = 1 << 20;
    private SegmentFile? _file;
    private long _filledBytes;

    private SegmentPreparation(ulong number, SegmentFile file, long filledBytes)
    {
        Number = number;
        _file = file;
        _filledBytes = filledBytes;
    }

    /// <summary>The segment's number.</summary>
    public ulong Number { get; }

    /// <summary>The open file.</summary>
    public SegmentFile File => _file ?? throw new ObjectDisposedException(nameof(SegmentPreparation));

    /// <summary>Whether every block of it was written once, as zeros or in an earlier use.</summary>
    public bool IsFilled => _filledBytes >= File.Length;

    /// <summary>Allocates the segment and creates the file of its successor. Both are durable when this returns.</summary>
    /// <exception cref="StorageIoException">An I/O error, or the disk is full; after a full disk the call can be repeated.</exception>
    public static SegmentPreparation Begin(IFileSystem files, string directory, ulong number, int bytes, ConcurrentStack<ulong> spares)
    {
        var path = SegmentName.PathOf(directory, number);
        var recycled = TryRecycle(files, directory, path, spares);
        if (!recycled)
            CreateIfMissing(files, path);
        CreateIfMissing(files, SegmentName.PathOf(directory, number + 1));
        var file = SegmentFile.Open(files, path);
        try
        {
            var preparation = new SegmentPreparation(number, file, recycled ? file.Length : 0);
            file.GrowTo(bytes);
            files.SyncDirectory(directory);
            return preparation;
        }
        catch
        {
            file.Dispose();
            throw;
        }
    }

    /// <summary>
    /// Zeroes a dead segment's header and the block of its first record, so that when the file is reused nothing in it can be mistaken for the
    /// continuation of the line. False, with nothing changed, if the file is shorter than this.
    /// </summary>
    public static bool TryEraseFront(IFileSystem files, string path, int bytesMin)
    {
        using var file = files.Open(path, new StorageFileOptions(StorageFileMode.OpenExisting));
        if (file.Length < bytesMin)
            return false;
        Span<byte> zeros = stackalloc byte[(int)Math.Min(2 * SegmentHeader.BlockBytes, file.Length)];
        zeros.Clear();
        file.Write(zeros, 0);
        file.Sync();
        return true;
    }

    /// <summary>Writes one step of zeros, using the buffer; nothing if the whole file is filled.</summary>
    public void FillStep(AlignedBuffer buffer)
    {
        var count = (int)Math.Min(FillBytes, File.Length - _filledBytes);
        if (count <= 0)
            return;
        var zeros = buffer.Span[..count];
        zeros.Clear();
        File.WriteDurable(zeros, _filledBytes);
        _filledBytes += count;
    }

    /// <summary>Gives back what is longer than this. Durable when it returns.</summary>
    public void CutTo(int bytes)
    {
        _filledBytes = Math.Min(_filledBytes, bytes);
        File.CutTo(bytes);
    }

    /// <summary>Transfers ownership of the file to the caller.</summary>
    public SegmentFile Release()
    {
        var file = File;
        _file = null;
        return file;
    }

    /// <inheritdoc/>
    public void Dispose() => _file?.Dispose();

    /// <summary>Renames a spare, which stays one if that fails. One that is gone was renamed or deleted by a call that failed all the same.</summary>
    private static bool TryRecycle(IFileSystem files, string directory, string path, ConcurrentStack<ulong> spares)
    {
        while (spares.TryPop(out var spare))
        {
            var name = SegmentName.PathOf(directory, spare);
            if (!files.FileExists(name))
                continue;
            try
            {
                files.Rename(name, path);
                return true;
            }
            catch
            {
                spares.Push(spare);
                throw;
            }
        }
        return false;
    }

    private static void CreateIfMissing(IFileSystem files, string path)
    {
        if (!files.FileExists(path))
            files.Open(path, new StorageFileOptions(StorageFileMode.CreateNew)).Dispose();
    }
}
