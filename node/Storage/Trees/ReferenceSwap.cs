using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Makes the trees refer to the file for the pages that a checkpoint has placed there: replaces the references in all younger scratch pages that a root
/// reaches, in steps, with batches between them. Both references mean the same page, and readers may use either. Writer only.
/// </summary>
/// <remarks>
/// Only pages that were made before the swap can have such references. The roots are replaced first, and a batch has a page visited before it copies or
/// retires anything by its references (<see cref="BatchPages.Settle"/>), so no batch after the beginning makes a page with one. Each page that is not visited
/// yet is waiting, or is reached through one that waits. So that these stay valid, scratch pages are not returned to the pool meanwhile, except those of
/// dropped batches, which <see cref="Forget"/> removes first.
/// <para>
/// Younger deltas whose base is that of a delta which the checkpoint has folded get the page into which it was folded as their base. They say the same over
/// either, because they have all keys of the folded one (<see cref="LeafDifference"/>).
/// </para>
/// </remarks>
/// <param name="space">Resolves references.</param>
/// <param name="batchPlaced">The checkpoint has placed the pages of this batch and of earlier ones.</param>
/// <param name="batchLast">The last batch before the swap.</param>
/// <param name="revision">The checkpoint's revision, which differs from that of any other swap.</param>
/// <param name="folded">The deltas that the checkpoint has folded.</param>
internal sealed unsafe class ReferenceSwap(PageSpace space, ulong batchPlaced, ulong batchLast, ulong revision, CheckpointDeltas folded)
{
    /// <summary>Marks a younger page as visited in place of its location, from which bit 0 distinguishes it.</summary>
    private readonly PageRef _visited = new((revision << 1) | 1);
    private readonly List<nint> _waiting = [];

    /// <summary>The last batch whose retired pages were all looked at, and how many of the next one's were not.</summary>
    private ulong _batchRetired;
    private (ulong Batch, int Count) _retiredLeft;

    /// <summary>The location in the file of a scratch page or run that was placed.</summary>
    public static PageRun PlaceOf(nint page) => new(Page.Placed((byte*)page).Number, ScratchPool.PagesOf((byte*)page));

    /// <summary>The root with references to the file. What it reaches is visited in the steps that follow. For each root, at the beginning.</summary>
    public StoreRoot Begin(StoreRoot root)
    {
        var trees = new TreeRoot[StoreRoot.TreesMax];
        for (var i = 0; i < trees.Length; i++)
        {
            trees[i] = root.Trees[i];
            var top = trees[i].Link.Reference;
            if (!top.IsScratch)
                continue;
            var page = space.Locate(top);
            if (IsPlaced(page))
                trees[i] = trees[i].ToPlaced(page);
            else
                _waiting.Add((nint)page);
        }
        return new StoreRoot(root.Etag, root.ShardTime, root.WallTime, root.Batch, trees);
    }

    /// <summary>Looks at about this many references and retired pages. True when there is nothing left to look at.</summary>
    /// <param name="unpublished">The sealed batches that are not published, oldest first.</param>
    /// <param name="countMax">How many.</param>
    public bool Step(IReadOnlyList<SealedBatch> unpublished, int countMax)
    {
        foreach (var batch in unpublished)
        {
            if (batch.Root.Batch <= batchLast && batch.Root.Batch > _batchRetired && !ReplaceRetired(batch, ref countMax))
                return false;
        }
        while (_waiting.Count > 0 && countMax > 0)
        {
            var page = (byte*)_waiting[^1];
            _waiting.RemoveAt(_waiting.Count - 1);
            Invariant.Check(Page.Batch(page) <= batchLast, $"A page of batch {Page.Batch(page)} took the place of one whose references were not replaced.");
            countMax -= 1 + VisitOnce(page);
        }
        return _waiting.Count == 0;
    }

    /// <summary>Replaces the references in a scratch page of an earlier batch, before one of them is copied or retired.</summary>
    public void Visit(byte* page)
    {
        CheckYounger(page);
        if (Page.Batch(page) <= batchLast)
            VisitOnce(page);
    }

    /// <summary>Checks that a scratch page which a batch copies or retires was not placed.</summary>
    public void CheckYounger(byte* page) =>
        Invariant.Check(!IsPlaced(page), $"A batch used a page of batch {Page.Batch(page)} in memory, although all up to {batchPlaced} are in the file.");

    /// <summary>The batches after this one are dropped, and their pages become invalid.</summary>
    public void Forget(ulong batchKept) => _waiting.RemoveAll(page => Page.Batch((byte*)page) > batchKept);

    private bool IsPlaced(byte* scratch) => Page.Batch(scratch) <= batchPlaced;

    /// <summary>For scratch pages that were placed and that this batch retired: it retires the pages of the file instead. True when it is done.</summary>
    private bool ReplaceRetired(SealedBatch batch, ref int countMax)
    {
        var pages = batch.RetiredScratch;
        var left = _retiredLeft.Batch == batch.Root.Batch ? _retiredLeft.Count : pages.Count;
        for (; left > 0 && countMax > 0; countMax--)
        {
            var page = pages[--left];
            if (!IsPlaced((byte*)page))
                continue;
            // The place of a delta is the base of a younger one, or among the bases that were dropped.
            if (Page.Type((byte*)page) != PageType.Delta)
                batch.RetiredFilePages.Add(PlaceOf(page));
            pages[left] = pages[^1];
            pages.RemoveAt(pages.Count - 1);
        }
        _retiredLeft = (batch.Root.Batch, left);
        if (left > 0)
            return false;
        countMax -= batch.DroppedBases.Count;
        for (var dropped = 0; dropped < batch.DroppedBases.Count; dropped++)
            batch.DroppedBases[dropped] = folded.PlaceOf(batch.DroppedBases[dropped]);
        _batchRetired = batch.Root.Batch;
        return true;
    }

    /// <summary>Returns how many references it has looked at.</summary>
    private int VisitOnce(byte* page)
    {
        if (Page.Placed(page) == _visited)
            return 0;
        Page.Placed(page) = _visited;
        if (Page.Type(page) == PageType.Delta && folded.TryFind(DeltaPage.Base(page).Reference.Number, out var older))
            DeltaPage.StoreBase(page, PageLink.ToPlaced(older));
        if (!TreePage.HasReferences(page))
            return 0;
        for (var i = 0; i < Page.Count(page); i++)
        {
            var link = TreePage.Reference(page, i);
            if (link == null || !link->Reference.IsScratch)
                continue;
            var target = space.Locate(link->Reference);
            if (IsPlaced(target))
                TreePage.StorePlaced(page, link, target);
            else if (link->Reference.IsDelta || TreePage.HasReferences(target))
                _waiting.Add((nint)target);
        }
        return Page.Count(page);
    }
}
