using KvCluster.Storage.DataFile;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage;

/// <summary>
/// What a store tells about itself, for metrics, status and tests. The engine decides nothing by it. Any thread, unless a member says otherwise; a value
/// may be out of date when it is read.
/// </summary>
internal sealed class StoreStatistics(
    PageStore pages, JournalIndex index, JournalWriter journal, CheckpointSchedule checkpoints, Scrub scrub, TimeProvider time)
{
    private readonly SnapshotAgeReading _oldestSnapshot = new(pages.Roots.Readers, time);

    /// <summary>Keys in the published state.</summary>
    public ulong Keys => pages.Roots.Count(TreeId.Kv);

    /// <summary>Length of the data file in bytes.</summary>
    public long DataBytes => pages.FileBytes;

    /// <summary>Bytes that the data file takes from the file system: less than its length where holes were made. Writer executor.</summary>
    public long DataAllocatedBytes => pages.AllocatedBytes;

    /// <summary>Size of the live journal segments in bytes.</summary>
    public long JournalBytes => journal.Bytes;

    /// <summary>The part of it that only followers may need, without the rest of their segments.</summary>
    public long JournalKeptBytes => checkpoints.JournalKeptBytes;

    /// <summary>Bytes of changed pages in memory that the next checkpoint writes or that readers still need.</summary>
    public long ScratchBytes => pages.ScratchBytes;

    /// <inheritdoc cref="PageStore.PinnedBytes"/>
    public long PinnedBytes => pages.PinnedBytes;

    /// <inheritdoc cref="PageStore.CheckpointCounts"/>
    public WriteCounts CheckpointCounts => pages.CheckpointCounts;

    /// <summary>Open snapshots.</summary>
    public int Readers => pages.Roots.Readers.Count();

    /// <summary>Whether a restart would have to replay more of the journal than a quiescent store may leave.</summary>
    public bool HasMuchToReplay => checkpoints.HasMuchToCover;

    /// <summary>Pages of the data file whose checksums the scrub has verified since the store was opened.</summary>
    public long ScrubbedPages => scrub.PagesChecked;

    /// <summary>How many times the scrub has read the whole data file since the store was opened.</summary>
    public long ScrubPasses => scrub.Passes;

    /// <inheritdoc cref="SnapshotAgeReading.Age"/>
    public TimeSpan OldestSnapshotAge() => _oldestSnapshot.Age();

    /// <summary>Journal bytes of the records after an etag, as far as the live segments reach back. Writer executor.</summary>
    public long JournalBytesBehind(Etag etag) => index.BytesAfter(etag);
}
