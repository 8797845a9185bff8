using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Removes the keys of a range from a tree. Subtrees within the range are dropped: their pages are read, for their counts and references, but neither copied
/// nor written again. Only pages on the two edges of the range are copied, and only if keys remain below them. Used by <see cref="TreeWriter"/>, which
/// merges what is underfull afterwards; writer only.
/// </summary>
/// <remarks>Of a range, <c>from</c> is included, and empty for the first key; <c>to</c> is excluded, and empty for the end. No key is empty.</remarks>
internal sealed unsafe class RangeRemoval(PageSpace space, BatchPages pages)
{
    private LeafReadAhead _readAhead;
    private ulong _removed;

    /// <summary>Removes the keys of a range, and returns their number. The tree's count is its owner's to change.</summary>
    public ulong Remove(TreeRoot* root, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        (_readAhead, _removed) = (default, 0);
        if (!root->Link.Reference.IsNone && Remove(&root->Link, from, to))
            root->Link = default;
        return _removed;
    }

    /// <summary>
    /// Where a part of a range ends that has at most some leaves: at the end of the range, or at a key that is written to a buffer. Only branches are read.
    /// </summary>
    /// <param name="root">The tree.</param>
    /// <param name="from">The first key.</param>
    /// <param name="to">The end.</param>
    /// <param name="leavesLeft">The leaves that the part may have, at least 1; reduced by those that it has.</param>
    /// <param name="buffer">Space for the longest key.</param>
    public ReadOnlySpan<byte> EndOfPart(TreeRoot* root, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to, ref int leavesLeft, Span<byte> buffer)
    {
        if (root->Link.Reference.IsNone)
            return to;
        var length = KeyBehind(&root->Link, HeightOf(&root->Link), from, to, ref leavesLeft, buffer);
        return length == 0 ? to : buffer[..length];
    }

    /// <summary>Writes the separator behind as many leaves of a range as there may be, and returns its length; 0 if the range has no more leaves.</summary>
    private int KeyBehind(PageLink* link, int height, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to, ref int leavesLeft, Span<byte> buffer)
    {
        if (height == 0)
        {
            leavesLeft--;
            return 0;
        }
        var page = space.ResolveNode(link);
        var (first, end) = Entries(page, from, to);
        if (height == 1 && end - first <= leavesLeft)
        {
            leavesLeft -= end - first;
            return 0;
        }
        if (height == 1)
            return TreePage.CopyKey(page, first + leavesLeft, buffer);
        var length = 0;
        for (var child = first; child < end && length == 0; child++)
        {
            length = leavesLeft == 0
                ? TreePage.CopyKey(page, child, buffer)
                : KeyBehind(TreePage.Child(page, child), height - 1, child == first ? from : default, child == end - 1 ? to : default, ref leavesLeft, buffer);
        }
        return length;
    }

    /// <summary>Whether a subtree has a key of the range. The pages next to a key are looked at, but not all of those in between.</summary>
    private bool HasAny(PageLink* link, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        if (from.IsEmpty && to.IsEmpty)
            return true;
        var page = space.ResolveNode(link);
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
    private bool Remove(PageLink* link, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        if (from.IsEmpty && to.IsEmpty)
        {
            Drop(link);
            return true;
        }
        if (!HasAny(link, from, to))
            return false;
        var page = pages.CopyOnWrite(link);
        var (first, end) = Entries(page, from, to);
        if (Page.Type(page) == PageType.Leaf)
            RemoveValues(page, first, end);
        else
            (first, end) = RemoveBelow(page, first, end, from, to);
        TreePage.Remove(page, first, end);
        if (Page.Count(page) > 0)
            return false;
        pages.Retire(link->Reference);
        return true;
    }

    /// <summary>Removes the keys of a range from the children of a branch, and returns which of them are gone.</summary>
    private (int First, int End) RemoveBelow(byte* branch, int first, int end, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        var last = end - 1;
        if (first == last)
            return Remove(TreePage.Child(branch, first), from, to) ? (first, end) : (first, first);
        var isFirstGone = Remove(TreePage.Child(branch, first), from, default);
        for (var child = first + 1; child < last; child++)
        {
            _readAhead.Step(space, branch, child + 1, sibling: null);
            Drop(TreePage.Child(branch, child));
        }
        return (isFirstGone ? first : first + 1, Remove(TreePage.Child(branch, last), default, to) ? end : last);
    }

    /// <summary>Retires all pages and runs of a subtree.</summary>
    private void Drop(PageLink* link)
    {
        var page = space.ResolveNode(link);
        pages.Settle(link->Reference, page);
        int count = Page.Count(page);
        if (Page.Type(page) == PageType.Leaf)
        {
            RemoveValues(page, 0, count);
        }
        else
        {
            for (var child = 0; child < count; child++)
            {
                _readAhead.Step(space, page, child + 1, sibling: null);
                Drop(TreePage.Child(page, child));
            }
        }
        pages.Retire(link->Reference);
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
            RetireTree(link, HeightOf(link));
    }

    /// <summary>Retires the tree of an entry. Its leaves refer to nothing, so only the first one was read, to learn the height.</summary>
    private void RetireTree(PageLink* link, int height)
    {
        if (height > 0)
        {
            var page = space.ResolveNode(link);
            pages.Settle(link->Reference, page);
            for (var child = 0; child < Page.Count(page); child++)
                RetireTree(TreePage.Child(page, child), height - 1);
        }
        pages.Retire(link->Reference);
    }

    /// <summary>The levels of branches in a tree.</summary>
    private int HeightOf(PageLink* link)
    {
        var height = 0;
        for (var page = space.ResolveNode(link); Page.Type(page) == PageType.Branch; page = space.ResolveNode(TreePage.Child(page, 0)))
            height++;
        return height;
    }

    /// <summary>The entries of a leaf in a range, or the children of a branch that may have keys in it.</summary>
    private static (int First, int End) Entries(byte* page, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        int count = Page.Count(page);
        if (Page.Type(page) == PageType.Leaf)
            return (from.IsEmpty ? 0 : TreePage.LowerBound(page, from, out _), to.IsEmpty ? count : TreePage.LowerBound(page, to, out _));
        return (from.IsEmpty ? 0 : TreePage.FindChild(page, from), to.IsEmpty ? count : TreePage.FindChild(page, to) + 1);
    }
}
