namespace KvCluster.Storage.Files;

/// <summary>Whether a file must be there or must not.</summary>
internal enum StorageFileMode
{
    /// <summary>The file must be there.</summary>
    OpenExisting,

    /// <summary>The file must not be there; it is created empty.</summary>
    CreateNew,
}

/// <summary>How to open a file.</summary>
/// <param name="Mode">Whether it must be there.</param>
/// <param name="Direct">Past the page cache where the file system can (probed at the open); see <see cref="IStorageFile.IsDirect"/>.</param>
/// <param name="DataSync">Each write is durable when it returns.</param>
internal readonly record struct StorageFileOptions(StorageFileMode Mode, bool Direct = false, bool DataSync = false);
