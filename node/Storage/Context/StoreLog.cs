using Microsoft.Extensions.Logging;

namespace KvCluster.Storage.Context;

/// <summary>Log messages of a store, when it is opened and while it works: one line per decision.</summary>
internal static partial class StoreLog
{
    [LoggerMessage(Level = LogLevel.Information, Message = "Opening '{Directory}': {Row}: {Description}")]
    public static partial void Opening(ILogger log, string directory, string row, string description);

    [LoggerMessage(Level = LogLevel.Warning, Message = "Opening '{Directory}': {Row}: {Description}. What is missing comes from the shard's other replicas")]
    public static partial void OpeningWithLoss(ILogger log, string directory, string row, string description);

    [LoggerMessage(
        Level = LogLevel.Information,
        Message = "Opening '{Directory}': scanned {JournalMebibytes} MiB of journal in {ReadMilliseconds} ms, replayed {Records} records ({Mebibytes} MiB) in "
            + "{ReplayMilliseconds} ms")]
    public static partial void Replayed(
        ILogger log, string directory, long journalMebibytes, long readMilliseconds, int records, long mebibytes, long replayMilliseconds);

    [LoggerMessage(
        Level = LogLevel.Warning,
        Message = "Part of the journal kept for followers is damaged and no longer used; a follower that needs it gets a snapshot instead: {Damage}")]
    public static partial void CoveredJournalDamaged(ILogger log, string damage);

    [LoggerMessage(Level = LogLevel.Warning, Message = "'{Directory}' could not be marked as open, so an unclean shutdown will not be detected: {Reason}")]
    public static partial void NotMarked(ILogger log, string directory, string reason);

    [LoggerMessage(
        Level = LogLevel.Warning, Message = "The mark that '{Directory}' is open could not be removed, so the next start will check all its pages: {Reason}")]
    public static partial void StaysMarked(ILogger log, string directory, string reason);

    [LoggerMessage(Level = LogLevel.Information, Message = "'{Directory}' was not closed cleanly; all its pages are now read and checked in the background")]
    public static partial void ScrubsAtOnce(ILogger log, string directory);

    [LoggerMessage(
        Level = LogLevel.Warning, Message = "The received part of a failed snapshot could not be removed; the next snapshot or start will remove it: {Reason}")]
    public static partial void SnapshotNotRemoved(ILogger log, string reason);

    [LoggerMessage(Level = LogLevel.Warning, Message = "The disk has no space to open a received snapshot; this is retried every second: {Reason}")]
    public static partial void SnapshotWaitsForRoom(ILogger log, string reason);

    [LoggerMessage(
        Level = LogLevel.Error,
        Message = "What the shared journal has of '{Directory}' could not be synced there: {Reason}. The node must end; its next start puts it back")]
    public static partial void JournalNotSettled(ILogger log, string directory, string reason);

    [LoggerMessage(Level = LogLevel.Warning, Message = "The shared journal could not be removed; the next start puts back what it has: {Reason}")]
    public static partial void SharedJournalLeft(ILogger log, string reason);

    [LoggerMessage(Level = LogLevel.Warning, Message = "A truncated record is damaged and is not kept in the aside directory: {Damage}")]
    public static partial void CutRecordDamaged(ILogger log, string damage);
}
