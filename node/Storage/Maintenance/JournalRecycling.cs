using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Snapshots;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// Recycles the journal that checkpoints make unnecessary, and knows the snapshots in progress that still need some of it. Owned by
/// <see cref="CheckpointSchedule"/>; writer executor.
/// </summary>
internal sealed class JournalRecycling(
    StoreContext context, PageStore pages, JournalIndex index, JournalHolds holds, SegmentReader reader, JournalWriter journal)
{
    private readonly List<SnapshotSource> _sources = [];
    private long _keptBytes;

    /// <summary>
    /// Bytes of the records that are kept for followers and holds, beyond what a restart needs, as of the open or the last <see cref="Recycle"/>. Any thread.
    /// </summary>
    public long KeptBytes => Volatile.Read(ref _keptBytes);

    /// <summary>Counts what was kept before the store was opened.</summary>
    public void CountKept() => Volatile.Write(ref _keptBytes, index.BytesOf(0, index.FirstFrom(FirstSegmentNeeded())));

    /// <summary>Pins the newest checkpoint, and the journal after it, for a replica that is too far behind.</summary>
    public SnapshotSource OpenSource()
    {
        var source = new SnapshotSource(pages.Pin(), closed => _sources.Remove(closed));
        _sources.Add(source);
        return source;
    }

    /// <summary>Takes all snapshots in progress back.</summary>
    public void TakeBackSources(string reason) => TakeBack(static _ => true, reason);

    /// <summary>
    /// Recycles segments that neither the older meta page (S5) nor a snapshot in progress needs, as far as the segments kept for followers and holds exceed
    /// their bound, in bytes or, while memory is short, in what their index takes. On a full disk none are kept for them.
    /// </summary>
    /// <param name="isForSpace">The checkpoint was written to free space.</param>
    public void Recycle(bool isForSpace)
    {
        TakeBack(
            source => index.BytesAfter(source.Covers.Etag) > Math.Max(context.Options.SnapshotPinnedBytesMax, source.BytesTotal),
            "the shard has written more journal since than a snapshot may retain");
        var needed = FirstSegmentNeeded();
        var covered = index.FirstFrom(needed);
        var retainedBytes = journal.IsDiskFull || isForSpace ? 0 : Math.Max(context.Options.RetainedJournalBytes, holds.BytesBefore(index, covered));
        var retainedCount = context.Memory.KeptIndexBytesMax / JournalIndex.EntryBytes;
        var dropped = 0;
        while (dropped < covered && (index.BytesOf(dropped, covered) > retainedBytes || covered - dropped > retainedCount))
            dropped = Math.Min(covered, index.FirstFrom(index[dropped].Segment + 1));
        Volatile.Write(ref _keptBytes, index.BytesOf(dropped, covered));
        if (dropped == 0)
            return;
        var lowest = dropped < index.Count ? index[dropped].Segment : needed;
        index.RemoveOldest(dropped);
        reader.Close();
        journal.Enqueue(new JournalJob(JournalJobKind.Recycle) { Number = Math.Min(lowest, needed) });
    }

    private ulong FirstSegmentNeeded() => _sources.Aggregate(FirstToRecover(), (lowest, source) => Math.Min(lowest, source.Covers.Position.Segment));

    /// <summary>
    /// The first segment that a recovery may need: the one that the meta page names, or the current one if its header shows that it begins with a record that
    /// the checkpoint covers, or with the next one.
    /// </summary>
    private ulong FirstToRecover()
    {
        // The newer meta page may turn out to be damaged.
        var from = pages.CoveredByOlderMeta;
        var current = journal.Current;
        return current.After <= from.Etag ? current.Number : from.Position.Segment;
    }

    private void TakeBack(Predicate<SnapshotSource> which, string reason)
    {
        foreach (var source in _sources.FindAll(which))
            source.TakeBack(reason);
    }
}
