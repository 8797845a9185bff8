using KvCluster.Storage.Control;
using KvCluster.Storage.Files;
using KvCluster.Storage.Inspection;

namespace KvCluster.Storage;

/// <summary>
/// The directory of a <see cref="KvStore"/>, held for one process: LOCK, and in <c>store</c> the files of the engine (FORMAT.md, "Embedded store"). Opening
/// thread.
/// </summary>
internal sealed class StoreHome : IDisposable
{
    private const string StoreName = "store";
    private const string RestoringName = "restoring";

    /// <summary>What a process may leave behind that ended while it created or restored a store. It is removed when that is done again.</summary>
    private static readonly string[] Leftovers =
        [DirectoryLock.FileName, new StoreLayout(StoreName).Creating, RestoringName, new StoreLayout(RestoringName).Creating, DeviceProbe.DirectoryName];

    private readonly string _directory;
    private readonly DirectoryLock _lock;

    private StoreHome(string directory, DirectoryLock held) => (_directory, _lock) = (directory, held);

    /// <summary>The engine's directory, which may not exist yet.</summary>
    public string Store => Path.Combine(_directory, StoreName);

    /// <summary>The engine's directory while a backup is restored, before it gets its name.</summary>
    public string Restoring => Path.Combine(_directory, RestoringName);

    /// <summary>Takes a directory with a store, or creates a new one for it.</summary>
    /// <exception cref="DirectoryInUseException">Another process, or another store of this process, has it.</exception>
    /// <exception cref="KvStoreFormatException">There is no store in it, but something else.</exception>
    public static StoreHome Take(string directory)
    {
        directory = Path.GetFullPath(directory);
        DurableDirectory.Create(directory);
        var files = LocalDisk.Instance;
        var names = files.List(directory);
        if (!names.Contains(StoreName) && names.Except(Leftovers).FirstOrDefault() is { } other)
            throw new KvStoreFormatException(
                $"'{directory}' is not the directory of a store and is not empty: it has '{other}'. Nothing was changed; name another directory.");
        return new StoreHome(directory, DirectoryLock.Take(directory));
    }

    /// <summary>Takes a directory for a store that is restored, and removes what an earlier attempt has left.</summary>
    /// <exception cref="KvStoreFormatException">There is something in it, such as a store.</exception>
    /// <inheritdoc cref="Take" path="/exception"/>
    public static StoreHome TakeForRestore(string directory)
    {
        var home = Take(directory);
        try
        {
            if (LocalDisk.Instance.DirectoryExists(home.Store))
                throw new KvStoreFormatException($"'{home._directory}' has a store already. Nothing was changed; restore into another directory.");
            home.DiscardRestore();
            return home;
        }
        catch
        {
            home.Dispose();
            throw;
        }
    }

    /// <summary>Replaces what the options leave to a measurement of this disk, if anything.</summary>
    public KvStoreOptions Choose(KvStoreOptions options)
    {
        if (options is { FillJournal: not null, CompressJournal: not null, JournalWrites: not null })
            return options;
        var (filling, compression, writes) = DeviceProbe.MeasureOrAssume(LocalDisk.Instance, options.Time, _directory);
        var chosen = options with { FillJournal = options.FillJournal
            ?? filling, CompressJournal = options.CompressJournal ?? compression, JournalWrites = options.JournalWrites ?? writes };
        EmbeddedLog.JournalOptions(
            options.Log, _directory, chosen.FillJournal.Value ? "filled with zeros before they are used" : "only allocated",
            chosen.CompressJournal.Value ? "compressed" : "not compressed",
            chosen.JournalWrites.Value);
        return chosen;
    }

    /// <summary>Makes what was restored the store; durable when this returns.</summary>
    public void CompleteRestore()
    {
        LocalDisk.Instance.Rename(Restoring, Store);
        LocalDisk.Instance.SyncDirectory(_directory);
    }

    /// <summary>Removes what was restored so far, or what a restore that was interrupted has left.</summary>
    public void DiscardRestore()
    {
        LocalDisk.Instance.DeleteDirectory(Restoring);
        LocalDisk.Instance.DeleteDirectory(new StoreLayout(Restoring).Creating);
    }

    /// <inheritdoc/>
    public void Dispose() => _lock.Dispose();
}
