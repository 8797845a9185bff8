using System.Runtime.CompilerServices;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Reads what <see cref="RangeRemoval"/> will read of a range, or of a large set, so that it has it in memory: branches, leaves on the edges, and leaves
/// whose entries refer to others. Any thread that has the tree in a snapshot.
/// </summary>
/// <exception cref="CorruptStoreException">A page does not match its parent's reference.</exception>
internal unsafe struct RemovalPages(PageSpace space)
{
    private LeafReadAhead _readAhead;

    /// <summary>Reads them for the keys from one on (empty: from the first) up to another (empty: to the end).</summary>
    public void Read(TreeRoot* root, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        if (!root->Link.Reference.IsNone)
            Read(&root->Link, RangeRemoval.HeightOf(space, &root->Link, from.IsEmpty ? to : from), from, to);
    }

    private void Read(PageLink* link, int height, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        var page = space.ResolveNode(link);
        if (Page.Type(page) == PageType.Delta)
        {
            ReadTreesOfDelta(page, from, to);
            return;
        }
        var (first, end) = RangeRemoval.Entries(page, from, to);
        if (height == 0)
        {
            ReadTrees(page, first, end);
            return;
        }
        for (var child = first; child < end; child++)
        {
            var (isFrom, isTo) = (child == first && !from.IsEmpty, child == end - 1 && !to.IsEmpty);
            if (height == 1 && !isFrom && !isTo && RangeRemoval.IsDroppedUnread(TreePage.Subtree(page, child)))
                continue;
            if (child + 1 < end && (height > 1 || !RangeRemoval.IsDroppedUnread(TreePage.Subtree(page, child))))
                _readAhead.Step(space, page, child + 1, sibling: null);
            Read(TreePage.Child(page, child), height - 1, isFrom ? from : default, isTo ? to : default);
        }
    }

    /// <summary>The same in the whole leaf of which a page is a delta.</summary>
    [SkipLocalsInit]
    private void ReadTreesOfDelta(byte* delta, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        if (!DeltaPage.WholeHasReferences(delta))
            return;
        var whole = space.ResolveBase(delta);
        Span<ushort> order = stackalloc ushort[LeafFill.EntriesMax];
        foreach (var entry in order[..DeltaPage.Merge(delta, whole, order)])
        {
            var (page, index) = ((nint)DeltaPage.PageOf(delta, whole, entry), DeltaPage.IndexOf(entry));
            var isInRange = (from.IsEmpty || TreePage.Compare((byte*)page, index, from) >= 0) && (to.IsEmpty || TreePage.Compare((byte*)page, index, to) < 0);
            if (isInRange && TreePage.HasTree((byte*)page, index))
                ReadTree((byte*)page, index);
        }
    }

    /// <summary>Reads the branches of the large sets in a leaf.</summary>
    private void ReadTrees(byte* leaf, int first, int end)
    {
        for (var index = first; Page.LeafHasReferences(leaf) && index < end; index++)
        {
            if (TreePage.HasTree(leaf, index))
                ReadTree(leaf, index);
        }
    }

    private void ReadTree(byte* leaf, int index)
    {
        var tree = TreePage.CellTree(Page.Cell(leaf, index));
        Read(&tree, default, default);
    }
}
