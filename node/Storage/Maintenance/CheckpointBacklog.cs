using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Journal;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// How much the next checkpoint has to cover, in bytes of journal, of changed pages and of runs. How long writers pause for it is decided in
/// <see cref="StoreMemory"/> (<c>WriterPause</c>). The writer executor changes it; any thread may read it, and may then find values that are out of date.
/// </summary>
internal sealed class CheckpointBacklog(StoreContext context, PageStore pages, JournalIndex index)
{
    /// <summary>The part of what a checkpoint would write that may be other pages than those of runs, if it is due because of these: an eighth.</summary>
    private const int OtherPart = 8;

    /// <summary>The part of the runs made since the last checkpoint that may be gone by then, because they were overwritten or deleted: a quarter.</summary>
    private const int GonePart = 4;

    private readonly StoreOptions _options = context.Options;
    private long _journalBytes;

    /// <summary>The journal bytes after the running checkpoint that already existed when it began.</summary>
    private long _uncoveredBytes;

    /// <summary>Bytes of changed pages when the running checkpoint began. They count as changed until it ends.</summary>
    private long _changedBytes;

    /// <summary>What <see cref="PageStore.RunBytesMade"/> was when the last checkpoint began, and whether that one was mostly of runs.</summary>
    private long _runBytesBefore;
    private volatile bool _isOfRuns;

    /// <summary>Journal bytes after the last checkpoint that was begun.</summary>
    public long JournalBytes => Volatile.Read(ref _journalBytes);

    /// <summary>Whether the journal bytes are more than a quiescent store may leave for a restart to replay.</summary>
    public bool IsMuchToReplay => JournalBytes >= _options.CheckpointQuiescentJournalBytes;

    /// <summary>Whether the journal bytes, the changed pages or the runs are as much as triggers a checkpoint.</summary>
    public bool IsDue => JournalBytes >= _options.CheckpointJournalBytes
        || (pages.ChangedBytes >= _options.CheckpointScratchBytes && context.Memory.WantsCheckpoints)
        || (pages.ChangedRunBytes >= _options.CheckpointRunBytes && IsMostlyRuns);

    /// <summary>Bytes of runs made since the running checkpoint began, as a part of what triggers the next one; 0 if it is not mostly of runs.</summary>
    public double RunsSinceBegin => _isOfRuns ? (double)RunBytes / _options.CheckpointRunBytes : 0;

    private long RunBytes => pages.RunBytesMade - Volatile.Read(ref _runBytesBefore);

    // A checkpoint of many leaves is better begun late: each of them is written once for all that changes in it until then. So is one of values that are soon
    // overwritten, because it writes none of those that are gone.
    private bool IsMostlyRuns
    {
        get
        {
            var (changed, runs, made) = (pages.ChangedFileBytes, pages.ChangedRunBytes, RunBytes);
            return changed - runs <= changed / OtherPart && made - runs <= made / GonePart;
        }
    }

    /// <summary>
    /// How far checkpoints are behind, from 0 to 1. It is 0 up to twice the amount that triggers a checkpoint, that is until the next one could start as
    /// soon as the running one ends, and 1 from four times that amount. Memory that only readers hold does not count, nor do journal bytes that the
    /// running checkpoint could not cover.
    /// </summary>
    public double Behind => Math.Max(JournalBehind, BehindOf((double)pages.ChangedBytes / context.ChangedBytesForCheckpoint));

    /// <summary>Like <see cref="Behind"/>, but for the journal only. For changed pages, <see cref="StoreMemory"/> slows the writers.</summary>
    public double JournalBehind => BehindOf(JournalSinceBegin);

    /// <summary>Journal written since the running checkpoint began, as a part of what triggers the next one.</summary>
    public double JournalSinceBegin => (double)(JournalBytes - Volatile.Read(ref _uncoveredBytes)) / _options.CheckpointJournalBytes;

    /// <summary>Bytes of pages changed since the running checkpoint began, as a part of what triggers the next one.</summary>
    public double ChangedSinceBegin => (double)(pages.ChangedBytes - Volatile.Read(ref _changedBytes)) / context.ChangedBytesForCheckpoint;

    private static double BehindOf(double triggers) => Math.Clamp((triggers - 2) / 2, 0, 1);

    /// <summary>Adds journal bytes.</summary>
    public void Add(long bytes) => Volatile.Write(ref _journalBytes, _journalBytes + bytes);

    /// <summary>Begins anew behind a checkpoint up to this etag, which is begun.</summary>
    public void Begin(Etag etag)
    {
        // The count does not begin at zero, because the applied state may be far behind the journal's end.
        Volatile.Write(ref _uncoveredBytes, index.BytesAfter(etag));
        Volatile.Write(ref _journalBytes, _uncoveredBytes);
        Volatile.Write(ref _changedBytes, pages.ChangedBytes);
        _isOfRuns = IsMostlyRuns;
        Volatile.Write(ref _runBytesBefore, pages.RunBytesMade);
    }
}
