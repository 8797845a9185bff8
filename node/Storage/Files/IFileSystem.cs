namespace KvCluster.Storage.Files;

/// <summary>
/// The disk as the engine sees it. Two real implementations and the tests' simulated disk, which can crash at any call.
/// Called from the writer, journal and checkpoint executors. A failure is a <see cref="StorageIoException"/>.
/// </summary>
/// <remarks>A created, renamed or deleted name is durable only after <see cref="SyncDirectory"/> of its directory (S8).</remarks>
internal interface IFileSystem
{
    /// <summary>Opens or creates a file for reading and writing.</summary>
    IStorageFile Open(string path, StorageFileOptions options);

    /// <summary>Whether a file of this name is there.</summary>
    bool FileExists(string path);

    /// <summary>Whether a directory of this name is there.</summary>
    bool DirectoryExists(string path);

    /// <summary>The names (not paths) of the files and directories in a directory, in ordinal order.</summary>
    IReadOnlyList<string> List(string directory);

    /// <summary>Creates one directory; its parent must be there. Nothing happens when it already is.</summary>
    void CreateDirectory(string path);

    /// <summary>Removes a file's name. Open handles go on working. Nothing happens when it is not there.</summary>
    void Delete(string path);

    /// <summary>Removes a directory with all that is in it. Nothing happens when it is not there.</summary>
    void DeleteDirectory(string path);

    /// <summary>Gives a file or directory another name, replacing a file of that name.</summary>
    void Rename(string from, string to);

    /// <summary>Bytes that files in a directory may grow by before the disk is full; others may take them first.</summary>
    long AvailableBytes(string directory);

    /// <summary>Makes the directory's names durable.</summary>
    void SyncDirectory(string path);
}
