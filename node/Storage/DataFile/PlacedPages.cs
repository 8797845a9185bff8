using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// The pages that a finished checkpoint has placed in the file. Replaces references to their copies in scratch memory, in roots and in the younger pages that
/// readers may be using. Writer, at the finish of the checkpoint.
/// </summary>
internal sealed unsafe class PlacedPages(PageSpace space, Checkpoint checkpoint)
{
    /// <summary>Stored instead of a younger page's location to mark the page as visited. Bit 0 distinguishes it from a location.</summary>
    private readonly PageRef _visited = new((checkpoint.Meta!.Revision << 1) | 1);

    /// <summary>The location in the file of a scratch page or run that was placed.</summary>
    public static PageRun RunOf(nint page) => RunOf((byte*)page);

    /// <summary>
    /// For scratch pages that were placed in the file and retired by an unpublished batch: the batch now retires the pages of the file instead.
    /// </summary>
    public void ReplaceRetired(SealedBatch batch)
    {
        foreach (var page in batch.RetiredScratch)
        {
            if (IsPlaced((byte*)page))
                batch.RetiredFilePages.Add(RunOf(page));
        }
        batch.RetiredScratch.RemoveAll(page => IsPlaced((byte*)page));
    }

    /// <summary>The root with references to the file, after the references in all younger scratch pages that it reaches were replaced.</summary>
    public StoreRoot Replace(StoreRoot root)
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
                trees[i] = checkpoint.Placed(trees[i]);
            else
                ReplaceChildren(page);
        }
        return new StoreRoot(root.Etag, root.Batch, trees);
    }

    private static PageRun RunOf(byte* page) =>
        new(Page.Placed(page).Number, Page.Type(page) == PageType.Overflow ? Page.RunPages(Page.ValueLength(page)) : 1);

    private bool IsPlaced(byte* scratch) => Page.Batch(scratch) <= checkpoint.Root.Batch;

    private void ReplaceChildren(byte* page)
    {
        if (Page.Placed(page) == _visited || Page.Type(page) == PageType.Overflow)
            return;
        Page.Placed(page) = _visited;
        if (Page.Type(page) == PageType.Leaf && !Page.HasOverflow(page))
            return;
        for (var i = 0; i < Page.Count(page); i++)
        {
            var child = TreePage.Child(page, i);
            if (Page.Type(page) == PageType.Leaf && !TreePage.IsOverflow(page, i, out child))
                continue;
            if (!child->Reference.IsScratch)
                continue;
            var target = space.Locate(child->Reference);
            if (!IsPlaced(target))
            {
                ReplaceChildren(target);
                continue;
            }
            PageLink.Store(child, new PageLink(Page.Placed(target), Page.Checksum(target)));
        }
    }
}
