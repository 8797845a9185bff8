using KvCluster.Storage.Files;
using KvCluster.Storage.Shared;

namespace KvCluster.Storage.Journal;

/// <summary>
/// A segment that is open for writing. <see cref="WriteDurable"/> is the sync of a commit: the file is opened such that the disk has the data when a write
/// returns (<c>O_DSYNC</c>). That is one system call per commit instead of a write and a sync. Used by the journal's lanes; while the file
/// <see cref="IsDirect"/>, several may write to different places of it at once. What a shared journal has made durable is written through the page cache
/// instead (<see cref="UnsyncedIn"/>); nothing is ever written in both ways into one block.
/// </summary>
internal sealed class SegmentFile : IDisposable
{
    private readonly IStorageFile _file;
    private readonly Lock _lock = new();

    /// <summary>The shared journal that has records for it.</summary>
    private SharedJournal? _shared;
    private UnsyncedFile? _unsynced;

    /// <summary>False at first, because the file may have grown in an attempt that ended before its sync.</summary>
    private bool _isLengthDurable;

    private SegmentFile(IStorageFile file) => _file = file;

    /// <summary>Its length in bytes.</summary>
    public long Length => _file.Length;

    /// <inheritdoc cref="IStorageFile.IsDirect"/>
    public bool IsDirect => _file.IsDirect;

    /// <summary>Opens an existing file.</summary>
    public static SegmentFile Open(IFileSystem files, string path) =>
        new(files.Open(path, new StorageFileOptions(StorageFileMode.OpenExisting, Direct: true, DataSync: true)));

    /// <summary>Writes whole blocks from aligned memory; they are durable when it returns.</summary>
    /// <exception cref="StorageIoException">An I/O error, or the disk is full. What was written is then unknown.</exception>
    public void WriteDurable(ReadOnlySpan<byte> blocks, long offset) => _file.Write(blocks, offset);

    /// <summary>The file as it is written through the page cache after a block of a shared journal. Any lane.</summary>
    /// <exception cref="StorageIoException">It cannot be opened a second time.</exception>
    public UnsyncedFile UnsyncedIn(SharedJournal shared)
    {
        lock (_lock)
        {
            _shared = shared;
            return _unsynced ??= shared.Open(_file.Path);
        }
    }

    /// <summary>Makes the file at least this long; the length is durable when this returns.</summary>
    /// <exception cref="StorageIoException">An I/O error, or the disk is full; after a full disk the call can be repeated.</exception>
    public void GrowTo(int bytes)
    {
        if (_file.Length >= bytes && _isLengthDurable)
            return;
        _isLengthDurable = false;
        if (_file.Length < bytes)
            _file.Resize(bytes);
        _file.Sync();
        _isLengthDurable = true;
    }

    /// <summary>Makes the file at most this long; the length is durable when this returns.</summary>
    /// <exception cref="StorageIoException">An I/O error, or the disk is full.</exception>
    public void CutTo(int bytes)
    {
        if (_file.Length <= bytes)
            return;
        _isLengthDurable = false;
        _file.Resize(bytes);
        _file.Sync();
        _isLengthDurable = true;
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        if (_unsynced is not null)
            _shared!.Release(_unsynced);
        _unsynced = null;
        _file.Dispose();
    }
}
