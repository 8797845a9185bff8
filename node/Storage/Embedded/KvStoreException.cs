namespace KvCluster.Storage;

/// <summary>
/// A <see cref="KvStore"/> could not do what it was asked for. The message is one line for people and says what became of the request; the type is for
/// programs. Unless its type says otherwise, nothing was changed. Mistakes of the caller, such as a key over its limit, are exceptions of .NET:
/// <see cref="ArgumentException"/> and its kind, <see cref="InvalidOperationException"/>, <see cref="ObjectDisposedException"/>.
/// </summary>
public class KvStoreException : Exception
{
    /// <summary>Creates it.</summary>
    public KvStoreException(string message, Exception? cause = null)
        : base(message, cause)
    {
    }
}

/// <summary>The directory is used by another process, or is open in this one already.</summary>
public sealed class KvStoreInUseException(string message, string? holder, Exception cause) : KvStoreException(message, cause)
{
    /// <summary>The holder's process id, program and machine; null if it cannot be determined.</summary>
    public string? Holder { get; } = holder;
}

/// <summary>
/// What is there is not a store: a directory with other things in it, a replica of a cluster, a stream that is not a backup, or the files of a version that
/// this one does not read.
/// </summary>
public sealed class KvStoreFormatException(string message, Exception? cause = null) : KvStoreException(message, cause);

/// <summary>
/// The disk, or a backup, does not have what was written to it. Nothing is repaired or skipped. A store whose checkpoint and journal cannot be read completely
/// is not opened; restore a backup, or recover what can be read with <c>kv-node storage recover DIRECTORY/store --accept-loss</c>, where DIRECTORY is the
/// store's. Without the last word, that command says what would be lost, and changes nothing.
/// </summary>
public sealed class KvStoreDamagedException(string message, Exception cause) : KvStoreException(message, cause);

/// <summary>The disk refused an operation: it is full, read-only or broken, or a file is where a directory should be.</summary>
public sealed class KvStoreDiskException(string message, bool isFull, Exception? cause = null) : KvStoreException(message, cause)
{
    /// <summary>Whether there was no space left. Puts succeed again when there is; deletes and checkpoints succeed meanwhile.</summary>
    public bool IsFull { get; } = isFull;
}

/// <summary>
/// The store has stopped after its first failure, which is the inner exception. Dispose of it and open it again: that recovers everything acknowledged, or says
/// what is damaged.
/// </summary>
public sealed class KvStoreFailedException(string message, bool isOutcomeUnknown, Exception? cause) : KvStoreException(message, cause)
{
    /// <summary>Whether the batch may have been applied: it was on its way to the disk. The store shows after the next open whether it was.</summary>
    public bool IsOutcomeUnknown { get; } = isOutcomeUnknown;
}

/// <summary>There is no tree with that name, or it was dropped.</summary>
public sealed class KvTreeNotFoundException(string name, string message) : KvStoreException(message)
{
    /// <summary>The name.</summary>
    public string Name { get; } = name;
}

/// <summary>
/// The batch has as many operations or bytes as a batch may have, and what was to be added is not part of it. Write it and begin another one.
/// </summary>
public sealed class KvBatchFullException(string message) : KvStoreException(message);

/// <summary>
/// The batch deletes a set with so many members that they cannot be removed at once, some hundred thousand short ones. Delete it with
/// <see cref="KvStore.DeleteSetAsync"/>, in steps.
/// </summary>
public sealed class KvSetTooLargeException(string message) : KvStoreException(message);

/// <summary>
/// As many snapshots are open as may be (<see cref="KvStoreOptions.SnapshotsMax"/>), or those that have ended hold much memory, because nobody disposes of
/// them. Dispose of some.
/// </summary>
public sealed class KvSnapshotLimitException(string message, Exception? cause = null) : KvStoreException(message, cause);

/// <summary>
/// Snapshots held more memory than they may, three sixteenths of <see cref="KvStoreOptions.MemoryBudgetBytes"/>, and this one held most. Dispose of it, and go
/// on with a new one. What it has returned stays valid until then.
/// </summary>
public sealed class KvSnapshotTooOldException(string message) : KvStoreException(message);
