using KvCluster.Storage.Control;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Recovery;

namespace KvCluster.Storage.Inspection;

/// <summary>From what a damaged replica is built again: a checkpoint, and the records of the journal that follow it.</summary>
/// <param name="Meta">The checkpoint; null if the journal has everything.</param>
/// <param name="Records">The records that follow it, in order.</param>
/// <param name="DamagedTrees">Trees of the checkpoint of which something cannot be read.</param>
/// <param name="Last">The last record of the result.</param>
internal sealed record RecoverySource(MetaPage? Meta, IReadOnlyList<JournalEntry> Records, IReadOnlySet<TreeId> DamagedTrees, RecordRef Last)
{
    /// <summary>
    /// Chooses the source. The newest checkpoint, unless it is damaged and the older one is whole with a journal that goes on at least as far. Null if
    /// neither meta page is intact and the journal does not begin with the shard's first record.
    /// </summary>
    public static RecoverySource? Choose(StoppedReplica replica, IReadOnlySet<TreeId> damagedTrees)
    {
        if (replica.State is null)
            return null;
        if (replica.Newest is not { } newest)
            return Of(replica.ScanJournalAfter(default), meta: null, damagedTrees) is { Records.Count: > 0 } journal ? journal : null;
        var source = Of(replica.Journal!, newest, damagedTrees);
        if (damagedTrees.Count == 0 || replica.Older is not { } older || older.FilePages * Page.Bytes > replica.DataBytes)
            return source;
        var use = new PageUse(replica.Space!, StoreLayout.Data(replica.State!));
        use.ReadTrees(older.Trees);
        var other = Of(replica.ScanJournalAfter(older.CheckpointPosition), older, use.DamagedTrees);
        return use.DamagedTrees.Count == 0 && other.Last.Etag >= source.Last.Etag ? other : source;
    }

    private static RecoverySource Of(JournalScan scan, MetaPage? meta, IReadOnlySet<TreeId> damagedTrees)
    {
        var covered = meta?.CheckpointPosition ?? default;
        var facts = new RecoveryFacts { Journal = scan, Meta = covered.Etag, MetaChecksum = covered.ChainChecksum };
        // Records that do not follow the checkpoint are of another history.
        IReadOnlyList<JournalEntry> records =
            scan.Segments.Count > 0 && facts.MetaIsOnLine ? [.. scan.Entries.Where(entry => entry.Record.Etag > covered.Etag)] : [];
        var last = records.Count > 0 ? records[^1].Record : covered.Last;
        return new RecoverySource(meta, records, damagedTrees, last);
    }
}
