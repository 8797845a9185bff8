namespace KvCluster.Storage.Files;

/// <summary>
/// The disk as the engine sees it. There are two real implementations, and the tests' simulated disk, which can crash at any call. Called from the writer,
/// journal and checkpoint executors. A failure is a <see cref="StorageIoException"/>.
/// </summary>
/// <remarks>A created, renamed or deleted name is durable only after <see cref="SyncDirectory"/> of its directory (S8).</remarks>
internal interface IFileSystem
{
    /// <summary>Opens or creates a file for reading and writing.</summary>
    IStorageFile Open(string path, StorageFileOptions options);

    /// <summary>Whether a file with this name exists.</summary>
    bool FileExists(string path);

    /// <summary>Whether a directory with this name exists.</summary>
    bool DirectoryExists(string path);

    /// <summary>The names (not paths) of the files and directories in a directory, in ordinal order.</summary>
    IReadOnlyList<string> List(string directory);

    /// <summary>Creates one directory; its parent must exist. Does nothing if it exists already.</summary>
    void CreateDirectory(string path);

    /// <summary>Removes a file's name. Open handles remain usable. Does nothing if it does not exist.</summary>
    void Delete(string path);

    /// <summary>Removes a directory with all its content. Does nothing if it does not exist.</summary>
    void DeleteDirectory(string path);

    /// <summary>Renames a file or directory, replacing a file of that name.</summary>
    void Rename(string from, string to);

    /// <summary>Bytes by which files in a directory may grow before the disk is full. Others may use them first.</summary>
    long AvailableBytes(string directory);

    /// <summary>Makes the directory's names durable.</summary>
    void SyncDirectory(string path);
}

/// <summary>Selects the file system for this machine.</summary>
internal static class LocalDisk
{
    /// <summary>The machine's own disk.</summary>
    public static IFileSystem Instance { get; } = OperatingSystem.IsLinux() ? LinuxFileSystem.Instance : PortableFileSystem.Instance;
}
