using Microsoft.Extensions.Logging;

namespace KvCluster.Storage.Context;

/// <summary>Log messages of a store, when it is opened and while it works: one line per decision.</summary>
internal static partial class StoreLog
{
    [LoggerMessage(Level = LogLevel.Information, Message = "Opening '{Directory}': {Row}: {Description}")]
    public static partial void Opening(ILogger log, string directory, string row, string description);

    [LoggerMessage(
        Level = LogLevel.Information,
        Message = "Opening '{Directory}': {JournalMebibytes} MiB of journal looked through in {ReadMilliseconds} ms, replayed {Records} records, {Mebibytes} MiB, in {ReplayMilliseconds} ms")]
    public static partial void Replayed(
        ILogger log, string directory, long journalMebibytes, long readMilliseconds, int records, long mebibytes, long replayMilliseconds);

    [LoggerMessage(Level = LogLevel.Warning, Message = "Journal kept for followers is damaged and is not used any more: {Damage}")]
    public static partial void CoveredJournalDamaged(ILogger log, string damage);

    [LoggerMessage(Level = LogLevel.Warning, Message = "'{Directory}' could not be marked as open, so that an unclean end will not be seen: {Reason}")]
    public static partial void NotMarked(ILogger log, string directory, string reason);

    [LoggerMessage(Level = LogLevel.Warning, Message = "The mark of an open '{Directory}' stays, and the next start checks all its pages: {Reason}")]
    public static partial void StaysMarked(ILogger log, string directory, string reason);

    [LoggerMessage(Level = LogLevel.Information, Message = "'{Directory}' was not closed: all its pages are read and compared now, in the background")]
    public static partial void ScrubsAtOnce(ILogger log, string directory);

    [LoggerMessage(Level = LogLevel.Warning, Message = "What was received of a snapshot that failed is not removed: {Reason}; the next snapshot or start removes it")]
    public static partial void SnapshotNotRemoved(ILogger log, string reason);

    [LoggerMessage(Level = LogLevel.Warning, Message = "A received state waits for room on the disk to be opened: {Reason}; it is tried again every second")]
    public static partial void SnapshotWaitsForRoom(ILogger log, string reason);

    [LoggerMessage(Level = LogLevel.Warning, Message = "A record that is cut off is damaged and is not kept aside: {Damage}")]
    public static partial void CutRecordDamaged(ILogger log, string damage);
}
