namespace KvCluster.Storage.Files;

/// <summary>Whether a file must exist or must not.</summary>
internal enum StorageFileMode
{
    /// <summary>The file must exist.</summary>
    OpenExisting,

    /// <summary>The file must not exist; it is created empty.</summary>
    CreateNew,
}

/// <summary>How to open a file.</summary>
/// <param name="Mode">Whether it must exist.</param>
/// <param name="Direct">Bypass the page cache where the file system supports it (probed at the open); see <see cref="IStorageFile.IsDirect"/>.</param>
/// <param name="DataSync">Each write is durable when it returns.</param>
internal readonly record struct StorageFileOptions(StorageFileMode Mode, bool Direct = false, bool DataSync = false);
