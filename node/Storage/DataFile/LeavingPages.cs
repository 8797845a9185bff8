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
/// <para>
/// The base of a delta is in use as long as the published state has a delta on it. A checkpoint that folds the delta calls the base pending, and the page
/// that it wrote takes the base's place, also where batches have dropped the base since the freeze. Readers of roots up to the end of the swap may have the
/// base.
/// </para>
/// </remarks>
/// <param name="reclamation">Gets what no checkpoint needs.</param>
/// <param name="pending">Pages that the newest checkpoint's map calls pending.</param>
internal sealed unsafe class LeavingPages(PageReclamation reclamation, List<PageRun> pending)
{
    private FinishSteps? _finish;

    /// <summary>How many of the pages left since its freeze an abandoned checkpoint has let go.</summary>
    private int _abandoned;

    /// <summary>Pages that the newest checkpoint reaches and the published state does not.</summary>
    private List<PageRun> _left = [];

    /// <summary>Pages that the newest checkpoint's map calls pending: the older meta page alone reaches them, if it is of the checkpoint before.</summary>
    private List<PageRun> _pending = pending;

    /// <summary>
    /// The batch of the last checkpoint that was finished. No batch up to it reaches what later checkpoints place. 0: the state at the open.
    /// </summary>
    private ulong _batchCheckpointed;

    /// <summary>
    /// No batch from this one on reaches pending pages: that of the last checkpoint, or, if it has folded deltas, the one after the last before its end.
    /// </summary>
    private ulong _batchWithout;

    /// <summary>Whether the checkpoint in progress is being finished.</summary>
    public bool IsFinishing => _finish is not null;

    /// <summary>The checkpoint in progress, or only frozen.</summary>
    public Checkpoint? Checkpoint { get; private set; }

    /// <summary>All runs of the file that are retired and not free in the newest checkpoint's map.</summary>
    public IEnumerable<List<PageRun>> Runs =>
        Checkpoint is null ? [_left, _pending] : [_left, _pending, Checkpoint.Left, [.. Checkpoint.LeftBases.Select(static number => new PageRun(number, 1))]];

    /// <summary>Takes what a batch has retired that was published in this epoch.</summary>
    public void Add(SealedBatch batch, ulong epoch)
    {
        foreach (var page in batch.RetiredScratch)
        {
            if (Checkpoint is null || Page.Batch((byte*)page) > Checkpoint.Root.Batch)
                reclamation.RetireScratch(page, epoch, batch.Root.Batch);
            else if (_finish is null)
                AddLeftSince(Checkpoint, page, batch.Root.Batch);
            else if (Page.Type((byte*)page) != PageType.Delta)
                _left.Add(ReferenceSwap.PlaceOf(page));
        }
        _left.AddRange(batch.RetiredFilePages);
        foreach (var number in batch.DroppedBases)
        {
            if (Checkpoint is not null && _finish is null)
                Checkpoint.LeftBases.Add(number);
            else
                LeaveBase(number);
        }
    }

    /// <summary>Freezes a root for a checkpoint, which takes what was left until now.</summary>
    /// <param name="store">The store.</param>
    /// <param name="root">The published root.</param>
    public Checkpoint Freeze(PageStore store, StoreRoot root)
    {
        Checkpoint = new Checkpoint(store, root, _left, _batchCheckpointed + 1);
        _left = [];
        return Checkpoint;
    }

    /// <summary>The checkpoint in progress is written. What was pending is free in its map, and the last meta page that reached it is overwritten.</summary>
    /// <param name="epoch">No reader that starts after this epoch reaches what was pending.</param>
    /// <param name="revision">Of the checkpoint before it, which does not reach it either.</param>
    public void BeginFinish(ulong epoch, ulong revision) => _finish = new FinishSteps(epoch, revision);

    /// <summary>
    /// Adds the places of pages that were left since the freeze to those that the newest checkpoint reaches, and retires what was pending, about this many
    /// pages. True when it is done.
    /// </summary>
    public bool FinishStep(int pagesMax)
    {
        var (finish, leftSince, leftBases) = (_finish!, Checkpoint!.LeftSince, Checkpoint.LeftBases);
        for (; pagesMax > 0 && finish.LeftSince < leftSince.Count; pagesMax--)
        {
            // The place of a delta is the base of a younger one, or among the bases that were left.
            var page = leftSince[finish.LeftSince++];
            if (Page.Type((byte*)page) != PageType.Delta)
                _left.Add(ReferenceSwap.PlaceOf(page));
        }
        for (; pagesMax > 0 && finish.LeftBases < leftBases.Count; pagesMax--)
            LeaveBase(leftBases[finish.LeftBases++]);
        RetireSome(_pending, finish.Epoch, _batchWithout, finish.Revision, ref pagesMax);
        return pagesMax > 0;
    }

    /// <summary>Everything refers to the pages of the checkpoint in progress in the file.</summary>
    /// <param name="epoch">Readers that start after this epoch do not reach its pages in memory, nor bases of deltas that it has folded.</param>
    /// <param name="batchLast">The last batch that was opened before.</param>
    public void EndSwap(ulong epoch, ulong batchLast)
    {
        _batchWithout = Checkpoint!.Folded.Count == 0 ? Checkpoint.Root.Batch : batchLast + 1;
        _finish = new FinishSteps(epoch, Checkpoint.Meta!.Revision);
        if (Checkpoint.MetaAgain is not null)
            reclamation.OlderBytes = Checkpoint.PendingBytes;
    }

    /// <summary>
    /// Retires what only the checkpoint before this one reached, about this many pages, if its meta page was overwritten as well. True when it is done.
    /// </summary>
    public bool RetireOlderStep(int pagesMax)
    {
        if (Checkpoint!.MetaAgain is not null)
            RetireSome(Checkpoint.PendingRuns, _finish!.Epoch, _batchWithout, _finish.Revision, ref pagesMax);
        return pagesMax > 0;
    }

    /// <summary>The checkpoint in progress is finished. Its pages in memory are retired.</summary>
    public void EndFinish()
    {
        var finished = Checkpoint!;
        reclamation.RetirePlaced(finished, _finish!.Epoch);
        _pending = finished.MetaAgain is null ? finished.PendingRuns : [];
        _batchCheckpointed = finished.Root.Batch;
        (Checkpoint, _finish) = (null, null);
    }

    /// <summary>
    /// The checkpoint in progress was abandoned: what it took is left as before, about this many pages with each call. True when it is done. Batches may be
    /// published in between.
    /// </summary>
    /// <param name="epoch">Readers that start after this epoch do not reach the scratch pages that were kept for it until now.</param>
    /// <param name="pagesMax">How many.</param>
    public bool AbandonStep(ulong epoch, int pagesMax)
    {
        var abandoned = Checkpoint!;
        for (; pagesMax > 0 && _abandoned < abandoned.LeftSince.Count; pagesMax--)
        {
            var page = abandoned.LeftSince[_abandoned++];
            reclamation.RetireScratch(page, epoch, Page.LeftBy((byte*)page));
        }
        if (_abandoned < abandoned.LeftSince.Count)
            return false;
        abandoned.Left.AddRange(_left);
        _left = abandoned.Left;
        (Checkpoint, _abandoned) = (null, 0);
        // What it would have folded is in use, but for these.
        abandoned.LeftBases.ForEach(LeaveBase);
        return true;
    }

    /// <summary>Leaves a page of the file that was dropped as a base, or what has taken its place.</summary>
    private void LeaveBase(long number) =>
        _left.Add(new PageRun(_finish is null ? number : Checkpoint!.Folded.PlaceOf(number), 1));

    /// <summary>Retires runs that no meta page reaches, about this many pages. The parameters are as in <see cref="PageReclamation.RetireRun"/>.</summary>
    private void RetireSome(List<PageRun> runs, ulong epoch, ulong left, ulong revision, ref int pagesMax)
    {
        for (var finish = _finish!; pagesMax > 0 && finish.Runs < runs.Count;)
        {
            var run = runs[finish.Runs];
            var part = new PageRun(run.First + finish.PagesOfRun, Math.Min(run.Count - finish.PagesOfRun, pagesMax));
            reclamation.RetireRun(part, epoch, left, revision);
            pagesMax -= (int)part.Count;
            finish.PagesOfRun += part.Count;
            if (finish.PagesOfRun == run.Count)
                (finish.Runs, finish.PagesOfRun) = (finish.Runs + 1, 0);
        }
    }

    private static void AddLeftSince(Checkpoint checkpoint, nint page, ulong batch)
    {
        Page.LeftBy((byte*)page) = batch;
        checkpoint.LeftSince.Add(page);
    }

    /// <summary>How far the finish of the checkpoint is: what comes until the end of the swap, or what follows.</summary>
    private sealed class FinishSteps(ulong epoch, ulong revision)
    {
        /// <summary>How many of the pages left since the freeze are done.</summary>
        public int LeftSince;

        /// <summary>How many of the bases left since the freeze are done.</summary>
        public int LeftBases;

        /// <summary>The runs that are retired, and pages of the next one.</summary>
        public int Runs;
        public long PagesOfRun;

        public ulong Epoch { get; } = epoch;

        public ulong Revision { get; } = revision;
    }
}
