namespace KvCluster.Storage.Files;

/// <summary>
/// The disk refused or failed an operation. In the engine it ends the engine, except a full disk, which refuses puts until there is
/// room again; nothing that failed is tried again on the same bytes.
/// </summary>
internal sealed class StorageIoException : IOException
{
    /// <summary>An operation on a path failed.</summary>
    public StorageIoException(string operation, string path, string reason, bool isDiskFull = false, Exception? inner = null)
        : base($"{operation} of '{path}' failed: {reason}", inner)
    {
        Path = path;
        IsDiskFull = isDiskFull;
    }

    /// <summary>The file or directory.</summary>
    public string Path { get; }

    /// <summary>No space, or no quota, was left.</summary>
    public bool IsDiskFull { get; }
}
