using KvCluster.Storage.Files;

namespace KvCluster.Storage.Journal;

/// <summary>
/// The segment that will be used next: newly allocated, or recycled from a dead one by renaming it, together with the empty file of its successor. Used by
/// one lane at a time. A crash leaves a file without a valid header, which recovery treats as not used yet.
/// </summary>
internal sealed class SegmentPreparation : IDisposable
{
    private const int FillBytes = 1 << 20;
    private IStorageFile? _file;
    private long _filled;

    private SegmentPreparation(ulong number, IStorageFile file, long filled)
    {
        Number = number;
        _file = file;
        _filled = filled;
    }

    /// <summary>The segment's number.</summary>
    public ulong Number { get; }

    /// <summary>The open file.</summary>
    public IStorageFile File => _file ?? throw new ObjectDisposedException(nameof(SegmentPreparation));

    /// <summary>Allocates the segment and creates the file of its successor. Both are durable when this returns.</summary>
    /// <exception cref="StorageIoException">An I/O error, or the disk is full; after a full disk the call can be repeated.</exception>
    public static SegmentPreparation Begin(IFileSystem files, string directory, ulong number, int bytes, Stack<ulong> spares)
    {
        var path = SegmentName.PathOf(directory, number);
        var recycled = spares.TryPeek(out var spare);
        if (recycled)
        {
            files.Rename(SegmentName.PathOf(directory, spare), path);
            spares.Pop();
        }
        else
        {
            CreateIfMissing(files, path);
        }
        CreateIfMissing(files, SegmentName.PathOf(directory, number + 1));
        var file = files.Open(path, new StorageFileOptions(StorageFileMode.OpenExisting, Direct: true, DataSync: true));
        try
        {
            var preparation = new SegmentPreparation(number, file, recycled ? file.Length : 0);
            preparation.GrowTo(bytes);
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
    /// continuation of the line.
    /// </summary>
    public static void EraseFront(IFileSystem files, string path)
    {
        using var file = files.Open(path, new StorageFileOptions(StorageFileMode.OpenExisting));
        Span<byte> zeros = stackalloc byte[(int)Math.Min(2 * SegmentHeader.BlockBytes, file.Length)];
        zeros.Clear();
        file.Write(zeros, 0);
        file.Sync();
    }

    /// <summary>Makes the file at least this long; the length is durable when this returns.</summary>
    public void GrowTo(int bytes)
    {
        if (File.Length >= bytes)
            return;
        File.Resize(bytes);
        File.Sync();
    }

    /// <summary>Writes one step of zeros, using the buffer; false when the whole file is filled.</summary>
    public bool FillStep(AlignedBuffer buffer)
    {
        var count = (int)Math.Min(FillBytes, File.Length - _filled);
        if (count <= 0)
            return false;
        var zeros = buffer.Span[..count];
        zeros.Clear();
        File.Write(zeros, _filled);
        _filled += count;
        return true;
    }

    /// <summary>Transfers ownership of the file to the caller.</summary>
    public IStorageFile Release()
    {
        var file = File;
        _file = null;
        return file;
    }

    /// <inheritdoc/>
    public void Dispose() => _file?.Dispose();

    private static void CreateIfMissing(IFileSystem files, string path)
    {
        if (!files.FileExists(path))
            files.Open(path, new StorageFileOptions(StorageFileMode.CreateNew)).Dispose();
    }
}
