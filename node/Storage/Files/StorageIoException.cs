namespace KvCluster.Storage.Files;

/// <summary>
/// The disk refused or failed an operation. This stops the engine, except on a full disk, when puts are refused until there is space again. Except after a
/// full disk, a failed write is never retried.
/// </summary>
internal sealed class StorageIoException : IOException
{
    /// <summary>An operation on a path failed.</summary>
    /// <param name="operation">The operation as a verb in lower case whose object is the path, such as "read" or "start a segment in".</param>
    /// <param name="path">The file or directory.</param>
    /// <param name="reason">Why it failed.</param>
    /// <param name="isDiskFull">Whether there was no space or no quota left.</param>
    /// <param name="inner">The exception of the runtime, if there is one.</param>
    public StorageIoException(string operation, string path, string reason, bool isDiskFull = false, Exception? inner = null)
        : base($"Could not {operation} '{path}': {reason}", inner)
    {
        Path = path;
        IsDiskFull = isDiskFull;
    }

    /// <summary>The file or directory.</summary>
    public string Path { get; }

    /// <summary>Whether there was no space or no quota left.</summary>
    public bool IsDiskFull { get; }
}
