// The disk itself. Calls that are banned in the core are made here.
#pragma warning disable RS0030

namespace KvCluster.Storage.Files;

/// <summary>
/// The disk on systems other than Linux, through the runtime's own calls: buffered, durable after <see cref="IStorageFile.Sync"/>. Stateless; any thread.
/// </summary>
internal sealed class PortableFileSystem : IFileSystem
{
    /// <summary>The only instance of the process.</summary>
    public static readonly PortableFileSystem Instance = new();

    private PortableFileSystem()
    {
    }

    /// <inheritdoc/>
    public IStorageFile Open(string path, StorageFileOptions options) => Attempt("open", path, () =>
    {
        var mode = options.Mode == StorageFileMode.CreateNew ? FileMode.CreateNew : FileMode.Open;
        var flags = options.DataSync ? FileOptions.WriteThrough : FileOptions.None;
        var access = options.Mode == StorageFileMode.ReadOnly ? FileAccess.Read : FileAccess.ReadWrite;
        return new PortableFile(path, File.OpenHandle(path, mode, access, FileShare.ReadWrite | FileShare.Delete, flags), options.DataSync);
    });

    /// <inheritdoc/>
    public bool FileExists(string path) => File.Exists(path);

    /// <inheritdoc/>
    public bool DirectoryExists(string path) => Directory.Exists(path);

    /// <inheritdoc/>
    public IReadOnlyList<string> List(string directory) => Attempt("list", directory, () =>
    {
        var names = Directory.GetFileSystemEntries(directory).Select(path => Path.GetFileName(path)).ToArray();
        Array.Sort(names, StringComparer.Ordinal);
        return names;
    });

    /// <inheritdoc/>
    public void CreateDirectory(string path) => Attempt("create directory", path, () => Directory.CreateDirectory(path));

    /// <inheritdoc/>
    public void Delete(string path) => Attempt("delete", path, () =>
    {
        File.Delete(path);
        return true;
    });

    /// <inheritdoc/>
    public void DeleteDirectory(string path) => Attempt("delete directory", path, () =>
    {
        if (Directory.Exists(path))
            Directory.Delete(path, recursive: true);
        return true;
    });

    /// <inheritdoc/>
    public void Rename(string from, string to) => Attempt("rename", from, () =>
    {
        if (Directory.Exists(from))
            Directory.Move(from, to);
        else
            File.Move(from, to, overwrite: true);
        return true;
    });

    /// <inheritdoc/>
    public long AvailableBytes(string directory) => Attempt("determine the free space of", directory, () => new DriveInfo(Path.GetFullPath(directory)).AvailableFreeSpace);

    /// <inheritdoc/>
    /// <remarks>Windows has no such call; its file system journals names itself.</remarks>
    public void SyncDirectory(string path)
    {
        if (!OperatingSystem.IsWindows())
            LinuxFileSystem.Instance.SyncDirectory(path);
    }

    private static T Attempt<T>(string operation, string path, Func<T> action)
    {
        try
        {
            return action();
        }
        catch (Exception exception) when (exception is (IOException or UnauthorizedAccessException) and not StorageIoException)
        {
            throw PortableFile.Failure(operation, path, exception);
        }
    }
}
