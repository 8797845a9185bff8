using KvCluster.Storage.Files;

namespace KvCluster.Storage.Journal;

/// <summary>
/// Allocated space that is released when the disk is full, so that deletes and a checkpoint are still possible. Used by the journal and checkpoint
/// executors, hence the lock.
/// </summary>
internal sealed class SpaceReserve(IFileSystem files, string path, int bytes)
{
    private readonly Lock _lock = new();
    private volatile bool _isHeld = IsWhole(files, path, bytes);

    /// <summary>Its size in bytes.</summary>
    public int Bytes => bytes;

    /// <summary>Whether the space is still reserved. Any thread.</summary>
    public bool IsHeld => _isHeld;

    /// <summary>Releases the space. False when it was released before, or when even the delete needs space, as on a file system that copies on write.</summary>
    public bool Release()
    {
        lock (_lock)
        {
            if (!_isHeld)
                return false;
            try
            {
                files.Delete(path);
            }
            catch (StorageIoException failure) when (failure.IsDiskFull && files.FileExists(path))
            {
                return false;
            }
            catch (StorageIoException failure) when (failure.IsDiskFull)
            {
                // Deleted all the same.
            }
            _isHeld = false;
            return true;
        }
    }

    /// <summary>Allocates the space again.</summary>
    /// <exception cref="StorageIoException">There is still no space.</exception>
    public void Renew()
    {
        lock (_lock)
        {
            if (_isHeld)
                return;
            // A file left by a crash during an earlier attempt holds only part of the space, or none.
            if (files.FileExists(path))
                files.Delete(path);
            using var file = files.Open(path, new StorageFileOptions(StorageFileMode.CreateNew));
            try
            {
                file.Resize(bytes);
                file.Sync();
                _isHeld = true;
            }
            catch (StorageIoException)
            {
                files.Delete(path);
                throw;
            }
        }
    }

    /// <summary>False also for the file that a crash between its creation and its growth leaves, which reserves nothing.</summary>
    private static bool IsWhole(IFileSystem files, string path, int bytes)
    {
        if (!files.FileExists(path))
            return false;
        using var file = files.Open(path, new StorageFileOptions(StorageFileMode.OpenExisting));
        return file.Length >= bytes;
    }
}
