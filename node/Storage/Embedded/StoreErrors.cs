using System.Diagnostics.CodeAnalysis;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;

namespace KvCluster.Storage;

/// <summary>Turns the engine's exceptions into those of <see cref="KvStore"/>, whose callers cannot name the others.</summary>
internal static class StoreErrors
{
    /// <summary>What a reader gets that finds damage.</summary>
    public static KvStoreDamagedException DamagedBy(CorruptStoreException damage) => new(damage.Message, damage);

    /// <summary>The exception to be thrown instead; false if the failure is none that the engine throws.</summary>
    public static bool TryTranslate(Exception failure, [NotNullWhen(true)] out Exception? translated)
    {
        translated = failure switch
        {
            DirectoryInUseException inUse =>
                new KvStoreInUseException($"{inUse.Message} Nothing was changed; stop that process, or close the store there.", inUse.Holder, inUse),
            FormatVersionException or ForeignStoreException or UnreadableRecordException => new KvStoreFormatException(failure.Message, failure),
            CorruptStoreException damage => DamagedBy(damage),
            SnapshotLimitException => new KvSnapshotLimitException(failure.Message, failure),
            StoreStoppedException { InnerException: { } first } => new KvStoreFailedException(failure.Message, isOutcomeUnknown: false, first),
            StoreStoppedException => new ObjectDisposedException(nameof(KvStore), "The store was disposed of."),
            StorageIoException io => new KvStoreDiskException(io.Message, io.IsDiskFull, io),
            _ => null,
        };
        return translated is not null;
    }

    /// <summary>
    /// The same for the open of a directory, where any failure of the file system is one. Most are rights that this process's user does not have, and the
    /// system's own words say neither what became of the open nor what to do.
    /// </summary>
    public static bool TryTranslateOpen(Exception failure, [NotNullWhen(true)] out Exception? translated)
    {
        var isKnown = TryTranslate(failure, out translated);
        if (translated is KvStoreDiskException { IsFull: false } || (!isKnown && failure is IOException or UnauthorizedAccessException))
        {
            translated = new KvStoreDiskException(
                $"The store was not opened. {failure.Message.TrimEnd('.')}. Check the rights of this process's user to the directory and everything in it, and "
                + "the disk.", isFull: false, failure);
        }
        return translated is not null;
    }
}
