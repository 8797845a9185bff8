using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Removes the keys of a range from a tree. Subtrees within the range are dropped: their pages are neither copied nor written again. Of what is in the file,
/// their branches are read, which name the leaves, and only those leaves that may refer to other pages; of what is in memory, all. Only pages on the two edges
/// of the range are copied, and only if keys remain below them. Used by <see cref="TreeWriter"/>, which merges what is underfull afterwards; writer only.
/// </summary>
/// <remarks>Of a range, <c>from</c> is included, and empty for the first key; <c>to</c> is excluded, and empty for the end. No key is empty.</remarks>
internal sealed unsafe class RangeRemoval(PageSpace space, BatchPages pages)
{
    private LeafReadAhead _readAhead;
    private ulong _removed;

    /// <summary>Memory for a whole leaf. Of the thread, as in <see cref="Rebalancing"/>.</summary>
    [ThreadStatic]
    private static byte[]? _leaf;

    /// <summary>Removes the keys of a range, and returns their number. The tree's count is its owner's to change.</summary>
    public ulong Remove(TreeRoot* root, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        (_readAhead, _removed) = (default, 0);
        if (!root->Link.Reference.IsNone && Remove(&root->Link, HeightOf(space, &root->Link, from.IsEmpty ? to : from), from, to))
            root->Link = default;
        return _removed;
    }

    /// <summary>
    /// Where a part of a range ends that takes what is allowed: at the end of the range, or at a key that is written to a buffer. Only branches are read, and
    /// the leaf at an edge.
    /// </summary>
    /// <param name="root">The tree.</param>
    /// <param name="from">The first key.</param>
    /// <param name="to">The end.</param>
    /// <param name="allowance">What the part may take, which is not spent; reduced by what it takes.</param>
    /// <param name="buffer">Space for the longest key.</param>
    public ReadOnlySpan<byte> EndOfPart(TreeRoot* root, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to, ref RangeAllowance allowance, Span<byte> buffer)
    {
        if (root->Link.Reference.IsNone)
            return to;
        _readAhead = default;
        var length = KeyBehind(&root->Link, HeightOf(space, &root->Link, from.IsEmpty ? to : from), from, to, ref allowance, buffer);
        return length == 0 ? to : buffer[..length];
    }

    /// <summary>
    /// Writes the separator behind as much of a range as is allowed, and returns its length; 0 if that is all of it. At least one leaf is taken.
    /// </summary>
    private int KeyBehind(PageLink* link, int height, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to, ref RangeAllowance allowance, Span<byte> buffer)
    {
        if (height == 0)
        {
            allowance.TakeRead();
            return 0;
        }
        var page = space.ResolveNode(link);
        var (first, end) = Entries(page, from, to);
        var length = 0;
        for (var child = first; child < end && length == 0; child++)
        {
            var (isFrom, isTo) = (child == first && !from.IsEmpty, child == end - 1 && !to.IsEmpty);
            if (allowance.IsSpent)
                length = TreePage.CopyKey(page, child, buffer);
            else if (height > 1)
                length = KeyBehind(Branch(page, child, end), height - 1, isFrom ? from : default, isTo ? to : default, ref allowance, buffer);
            else if (isFrom || isTo || !IsDroppedUnread(TreePage.Subtree(page, child)))
                allowance.TakeRead();
            else
                allowance.TakeUnread();
        }
        // A branch on an edge is not counted, because it has a leaf that is read, which counts. Others are counted after their children, so that the first leaf
        // is taken.
        if (from.IsEmpty && to.IsEmpty)
            allowance.TakeBranch();
        return length;
    }

    /// <summary>The link to a child that is a branch. The system begins to read the next ones, up to an index, because they follow.</summary>
    private PageLink* Branch(byte* page, int child, int end)
    {
        if (child + 1 < end)
            _readAhead.Step(space, page, child + 1, sibling: null);
        return TreePage.Child(page, child);
    }

    /// <summary>
    /// Whether the leaves below a link need not be read to drop them. Final when the page with the link is (<see cref="BatchPages.Settle"/>).
    /// </summary>
    public static bool IsDroppedUnread(SubtreeLink* child) => !child->Link.Reference.IsScratch && !child->Summary.HasReferences;

    /// <summary>Whether a subtree has a key of the range. The pages next to a key are looked at, but not all of those in between.</summary>
    private bool HasAny(PageLink* link, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        if (from.IsEmpty && to.IsEmpty)
            return true;
        var page = space.ResolveNode(link);
        if (Page.Type(page) == PageType.Delta)
            return DeltaPage.CountRange(space, page, from, to) > 0;
        var (first, end) = Entries(page, from, to);
        if (Page.Type(page) == PageType.Leaf)
            return first < end;
        // No subtree is empty, so one between the edges has a key.
        return end - first > 2
            || HasAny(TreePage.Child(page, first), from, end - first > 1 ? default : to)
            || (end - first > 1 && HasAny(TreePage.Child(page, end - 1), default, to));
    }

    /// <summary>
    /// Removes the keys of a range from the subtree of a link, which is in a page of the batch or in a root. True if nothing is left of the subtree; its
    /// pages are retired, and the caller removes the link.
    /// </summary>
    private bool Remove(PageLink* link, int height, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        if (from.IsEmpty && to.IsEmpty)
        {
            Drop(link, height);
            return true;
        }
        if (!HasAny(link, from, to))
            return false;
        var page = pages.CopyOnWrite(link);
        var (first, end) = Entries(page, from, to);
        if (Page.Type(page) == PageType.Leaf)
            RemoveValues(page, first, end);
        else
            (first, end) = RemoveBelow(page, height, first, end, from, to);
        TreePage.Remove(page, first, end);
        if (Page.Count(page) > 0)
            return false;
        pages.Retire(link->Reference);
        return true;
    }

    /// <summary>Removes the keys of a range from the children of a branch of the batch, and returns which of them are gone.</summary>
    private (int First, int End) RemoveBelow(byte* branch, int height, int first, int end, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        var last = end - 1;
        if (first == last)
            return Remove(TreePage.Child(branch, first), height - 1, from, to) ? (first, end) : (first, first);
        var isFirstGone = from.IsEmpty || Remove(TreePage.Child(branch, first), height - 1, from, default);
        DropChildren(branch, height, from.IsEmpty ? first : first + 1, to.IsEmpty ? end : last);
        return (isFirstGone ? first : first + 1, to.IsEmpty || Remove(TreePage.Child(branch, last), height - 1, default, to) ? end : last);
    }

    /// <summary>Retires all pages and runs of a subtree, whose topmost page is read.</summary>
    private void Drop(PageLink* link, int height)
    {
        var page = space.ResolveNode(link);
        pages.Settle(link->Reference, page);
        if (Page.Type(page) == PageType.Delta)
            DropDelta(page);
        else if (Page.Type(page) == PageType.Leaf)
            RemoveValues(page, 0, Page.Count(page));
        else
            DropChildren(page, height, 0, Page.Count(page));
        pages.Retire(link->Reference);
    }

    /// <summary>Counts the entries of a delta's whole leaf as removed, and retires their runs and trees. The base is read only if there may be any.</summary>
    private void DropDelta(byte* delta)
    {
        if (!DeltaPage.WholeHasReferences(delta))
        {
            _removed += (ulong)DeltaPage.Keys(delta);
            return;
        }
        fixed (byte* buffer = _leaf ??= GC.AllocateUninitializedArray<byte>(Page.Bytes, pinned: true))
        {
            var leaf = pages.Whole(delta, buffer);
            RemoveValues(leaf, 0, Page.Count(leaf));
        }
    }

    /// <summary>Retires all pages and runs below some children of a branch, whose references are final.</summary>
    private void DropChildren(byte* branch, int height, int first, int end)
    {
        for (var index = first; index < end; index++)
        {
            var child = TreePage.Subtree(branch, index);
            var isUnread = IsDroppedUnread(child);
            // Branches are read in any case.
            if (height > 1 || !isUnread)
                _readAhead.Step(space, branch, index + 1, sibling: null);
            if (!isUnread)
            {
                Drop(&child->Link, height - 1);
                continue;
            }
            _removed += child->Summary.Keys;
            RetireTree(&child->Link, height - 1);
        }
    }

    /// <summary>Counts entries of a leaf as removed, and retires their runs and trees.</summary>
    private void RemoveValues(byte* leaf, int first, int end)
    {
        _removed += (ulong)(end - first);
        for (var i = first; Page.LeafHasReferences(leaf) && i < end; i++)
            RetireValue(leaf, i);
    }

    /// <summary>Retires what an entry of a leaf refers to, if anything. The references in the leaf must be final (<see cref="BatchPages.Settle"/>).</summary>
    public void RetireValue(byte* leaf, int index)
    {
        var link = TreePage.Reference(leaf, index);
        if (link == null)
            return;
        if (!TreePage.HasTree(leaf, index))
            pages.RetireRun(link);
        else if (!link->Reference.IsNone)
            RetireTree(link, HeightOf(space, link));
    }

    /// <summary>Retires a tree or subtree whose leaves refer to nothing, so they are not read.</summary>
    private void RetireTree(PageLink* link, int height)
    {
        if (height > 0)
        {
            var page = space.ResolveNode(link);
            pages.Settle(link->Reference, page);
            for (var child = 0; child < Page.Count(page); child++)
            {
                if (height > 1)
                    _readAhead.Step(space, page, child + 1, sibling: null);
                RetireTree(TreePage.Child(page, child), height - 1);
            }
        }
        pages.Retire(link->Reference);
    }

    /// <summary>The levels of branches in a tree, of which one leaf is read: that of a key, or the first.</summary>
    public static int HeightOf(PageSpace space, PageLink* link, ReadOnlySpan<byte> key = default)
    {
        var height = 0;
        for (var page = space.ResolveNode(link);
            Page.Type(page) == PageType.Branch; page = space.ResolveNode(TreePage.Child(page, key.IsEmpty ? 0 : TreePage.FindChild(page, key))))
            height++;
        return height;
    }

    /// <summary>The entries of a leaf in a range, or the children of a branch that may have keys in it.</summary>
    public static (int First, int End) Entries(byte* page, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        int count = Page.Count(page);
        if (Page.Type(page) == PageType.Leaf)
            return (from.IsEmpty ? 0 : TreePage.LowerBound(page, from, out _), to.IsEmpty ? count : TreePage.LowerBound(page, to, out _));
        return (from.IsEmpty ? 0 : TreePage.FindChild(page, from), to.IsEmpty ? count : TreePage.FindChild(page, to) + 1);
    }
}
