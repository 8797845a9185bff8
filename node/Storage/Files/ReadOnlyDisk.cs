namespace KvCluster.Storage.Files;

/// <summary>
/// A disk on which nothing can be changed, for tools that only look. Files are opened for reading. Any call that would change something is refused.
/// </summary>
internal sealed class ReadOnlyDisk(IFileSystem disk) : IFileSystem
{
    /// <inheritdoc/>
    /// <remarks>Through the page cache, whatever the options say: no lane waits for these reads, and small ones need no alignment.</remarks>
    public IStorageFile Open(string path, StorageFileOptions options) => options.Mode == StorageFileMode.CreateNew
        ? throw Refused("create", path)
        : disk.Open(path, new StorageFileOptions(StorageFileMode.ReadOnly));

    /// <inheritdoc/>
    public bool FileExists(string path) => disk.FileExists(path);

    /// <inheritdoc/>
    public bool DirectoryExists(string path) => disk.DirectoryExists(path);

    /// <inheritdoc/>
    public IReadOnlyList<string> List(string directory) => disk.List(directory);

    /// <inheritdoc/>
    public void CreateDirectory(string path) => throw Refused("create directory", path);

    /// <inheritdoc/>
    public void Delete(string path) => throw Refused("delete", path);

    /// <inheritdoc/>
    public void DeleteDirectory(string path) => throw Refused("delete directory", path);

    /// <inheritdoc/>
    public void Rename(string from, string to) => throw Refused("rename", from);

    /// <inheritdoc/>
    public long AvailableBytes(string directory) => disk.AvailableBytes(directory);

    /// <inheritdoc/>
    public void SyncDirectory(string path) => throw Refused("sync directory", path);

    private static StorageIoException Refused(string operation, string path) => new(operation, path, "it was opened to be read only");
}
