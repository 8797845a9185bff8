using KvCluster.Storage.Files;

namespace KvCluster.Storage.Journal;

/// <summary>
/// Allocated space that is given up when the disk is full, so that deletes and a checkpoint still go through. Journal and checkpoint
/// executors, hence the lock.
/// </summary>
internal sealed class SpaceReserve(IFileSystem files, string path, int bytes)
{
    private readonly Lock _lock = new();
    private volatile bool _isHeld = IsWhole(files, path, bytes);

    /// <summary>How much it is, in bytes.</summary>
    public int Bytes => bytes;

    /// <summary>Whether it was not given up. Any thread.</summary>
    public bool IsHeld => _isHeld;

    /// <summary>Gives the space up; false when it was given up already, or when even that needs room, as where a file system copies on write.</summary>
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
            catch (StorageIoException failure) when (failure.IsDiskFull)
            {
                return false;
            }
            _isHeld = false;
            return true;
        }
    }

    /// <summary>Allocates the space again.</summary>
    /// <exception cref="StorageIoException">There is still no room.</exception>
    public void Renew()
    {
        lock (_lock)
        {
            if (_isHeld)
                return;
            // What a crash left of an earlier try holds no space, or not all.
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

    /// <summary>A crash between the file's creation and its growth leaves its name, and nothing reserved.</summary>
    private static bool IsWhole(IFileSystem files, string path, int bytes)
    {
        if (!files.FileExists(path))
            return false;
        using var file = files.Open(path, new StorageFileOptions(StorageFileMode.OpenExisting));
        return file.Length >= bytes;
    }
}
