using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// What the published state has left and a checkpoint still needs, from the publication of the batch that retired it to <see cref="PageReclamation"/>. The
/// only place that decides where a retired page goes. Writer only.
/// </summary>
/// <remarks>
/// A page of the file passes through these states: in use; retired by an unpublished batch (in use again when that is dropped); left by the published state;
/// pending in the next checkpoint's map; free in the map after that, once the finish of its checkpoint has overwritten the last meta page that reached it;
/// reusable when no pin of a checkpoint that reached it is open, and no reader has a root from its lifetime. A scratch page that the checkpoint in progress
/// is writing stays until its finish, and then leaves its place in the file instead. Other scratch pages are needed by readers only.
/// </remarks>
/// <param name="reclamation">Gets what no checkpoint needs.</param>
/// <param name="pending">Pages that the newest checkpoint's map calls pending.</param>
internal sealed unsafe class LeavingPages(PageReclamation reclamation, List<PageRun> pending)
{
    /// <summary>Pages that the newest checkpoint reaches and the published state does not.</summary>
    private List<PageRun> _left = [];

    /// <summary>Pages that the newest checkpoint's map calls pending: only the older meta page reaches them.</summary>
    private List<PageRun> _pending = pending;

    /// <summary>
    /// The batch of the last checkpoint that was finished. No batch up to it reaches what later checkpoints place, and no batch from it on reaches pending
    /// pages. 0: the state at the open.
    /// </summary>
    private ulong _batchCheckpointed;

    /// <summary>The checkpoint in progress, or only frozen.</summary>
    public Checkpoint? Checkpoint { get; private set; }

    /// <summary>All runs of the file that are retired and not free in the newest checkpoint's map.</summary>
    public IEnumerable<List<PageRun>> Runs => Checkpoint is null ? [_left, _pending] : [_left, _pending, Checkpoint.Left];

    /// <summary>Takes what a batch has retired that was published in this epoch.</summary>
    public void Add(SealedBatch batch, ulong epoch)
    {
        foreach (var page in batch.RetiredScratch)
        {
            if (Checkpoint is not null && Page.Batch((byte*)page) <= Checkpoint.Root.Batch)
                Checkpoint.LeftSince.Add(page, batch.Root.Batch);
            else
                reclamation.RetireScratch(page, epoch, batch.Root.Batch);
        }
        _left.AddRange(batch.RetiredFilePages);
    }

    /// <summary>Freezes a root for a checkpoint, which takes what was left until now.</summary>
    public Checkpoint Freeze(PageStore store, StoreRoot root)
    {
        Checkpoint = new Checkpoint(store, root, _left, _batchCheckpointed + 1);
        _left = [];
        return Checkpoint;
    }

    /// <summary>
    /// The checkpoint in progress is finished, and everything refers to the pages in the file. Its scratch pages, and what was pending, are retired.
    /// </summary>
    /// <param name="epoch">Readers that start after this epoch do not reach them.</param>
    /// <param name="revision">Of the checkpoint before it, which does not reach what was pending.</param>
    public void Finish(ulong epoch, ulong revision)
    {
        var finished = Checkpoint!;
        foreach (var page in finished.LeftSince.Keys)
            _left.Add(PlacedPages.RunOf(page));
        reclamation.RetirePlaced(finished, epoch);
        // Free in the new map, and the last meta page that reached it is overwritten.
        foreach (var run in _pending)
            reclamation.RetireRun(run, epoch, _batchCheckpointed, revision);
        _pending = finished.PendingRuns;
        _batchCheckpointed = finished.Root.Batch;
        Checkpoint = null;
    }

    /// <summary>The checkpoint in progress was abandoned: what it took is left as before.</summary>
    /// <param name="epoch">Readers that start after this epoch do not reach the scratch pages that were kept for it.</param>
    public void Abandon(ulong epoch)
    {
        var abandoned = Checkpoint!;
        abandoned.Left.AddRange(_left);
        _left = abandoned.Left;
        foreach (var (page, left) in abandoned.LeftSince)
            reclamation.RetireScratch(page, epoch, left);
        Checkpoint = null;
    }
}
