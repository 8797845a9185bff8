using System.Runtime.CompilerServices;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Changes the shape of a tree along a path, all of whose pages belong to the batch: makes space for an entry, redistributes entries between siblings,
/// splits pages, and merges or removes them. How entries are divided is decided by <see cref="PageSplit"/>; this keeps parents and the root in step. Used by
/// <see cref="TreeWriter"/>; writer only.
/// </summary>
internal sealed unsafe class Rebalancing(PageSpace space, BatchPages pages, TreePath path)
{
    /// <summary>A page with less in it is merged with a sibling that has room.</summary>
    private const int UsedMin = Page.BodyBytes / 4;

    /// <summary>
    /// Memory for copies of pages while these are rewritten. Of the thread: a node has hundreds of stores with seven trees each, most of which rest, and few
    /// writers. Nothing is in a copy from one operation to the next.
    /// </summary>
    [ThreadStatic]
    private static byte[]? _copies;

    /// <summary>Makes space for an entry of this size, by changing the prefix or removing garbage. False if the page must be split.</summary>
    public bool MakeRoom(byte* page, int index, ReadOnlySpan<byte> key, int bytes, out bool breaksPrefix)
    {
        breaksPrefix = !key.StartsWith(Page.Prefix(page));
        if (!breaksPrefix && Page.Gap(page) >= bytes)
            return true;
        var count = Page.Count(page);
        var prefixLength = Page.PrefixLength(page);
        var prefixNext = TreePage.CommonPrefix(page, 0, count, key);
        if (breaksPrefix && Page.Used(page) + bytes + (count * (prefixLength - prefixNext + 8)) > Page.BodyBytes)
            return false;
        // A prefix that would cost more than it saves is not taken (TreePage.Rebuild).
        if (!breaksPrefix
            && Page.Gap(page) + Page.Garbage(page) + (prefixNext > prefixLength ? Math.Max(0, TreePage.GainOfPrefix(page, 0, count, prefixNext)) : 0) < bytes)
            return false;
        Rebuild(page, prefixNext);
        return Page.Gap(page) >= bytes;
    }

    /// <summary>
    /// Redistributes the entries of the path's full leaf with a sibling that has space, which keeps pages fuller than splitting alone. If less than an
    /// eighth of the page is free there, it is not worth the work.
    /// </summary>
    public bool TryRedistribute(int at, ReadOnlySpan<byte> key, int bytes)
    {
        if (path.LeafLevel == 0)
            return false;
        var parent = path.PageAt(path.LeafLevel - 1);
        var index = path.ChildAt(path.LeafLevel - 1);
        if (!(index + 1 < Page.Count(parent) && TryRedistribute(parent, index, index + 1, at, key, bytes))
            && !(index > 0 && TryRedistribute(parent, index - 1, index - 1, at, key, bytes)))
            return false;
        path.Clear();
        return true;
    }

    /// <summary>
    /// Whether the path's leaf is one that grows at its end, where the position is: the last leaf of the tree, or a leaf that was filled that way, at least by
    /// half. It stays full then, and is neither split nor redistributed, which would leave many pages half empty behind sorted runs in the middle of the tree.
    /// </summary>
    public bool IsGrowingEdge(byte* leaf, int index) =>
        index == Page.Count(leaf) && (path.IsRightEdge(path.LeafLevel) || 2 * Page.Appended(leaf) >= Page.Count(leaf));

    /// <summary>
    /// Splits the path's leaf, or begins a new one beside it, to make room for a key. Afterwards the path is empty, or leads to the new leaf to which the key
    /// belongs.
    /// </summary>
    [SkipLocalsInit]
    public void SplitLeaf(TreeRoot* root, byte* leaf, int index, ReadOnlySpan<byte> key, int bytes, bool breaksPrefix)
    {
        int count = Page.Count(leaf);
        Span<byte> neighbour = stackalloc byte[Page.KeyBytesMax];
        if ((index == count && breaksPrefix) || IsGrowingEdge(leaf, index))
        {
            // Keys arrive in order: the page stays full, and the key starts the next one, which is the growing edge from now on. Otherwise keys that arrive in
            // falling order behind this page would get a page each.
            Page.Appended(leaf) = 0;
            neighbour = neighbour[..TreePage.CopyKey(leaf, count - 1, neighbour)];
            var next = pages.MakeEmpty(PageType.Leaf, key[..PrefixOfNext(leaf, neighbour.Length, key)]);
            if (InsertSibling(root, path.LeafLevel, PageSplit.Separator(neighbour, key), next))
                path.MoveTo(next);
            else
                path.Clear();
            return;
        }
        var right = pages.MakeEmpty(PageType.Leaf);
        if (index == 0 && breaksPrefix)
        {
            TreePage.Rebuild(right, leaf, 0, count, Page.KeyBytesMax);
            Page.Format(leaf, PageType.Leaf, default, keepOwner: true);
            neighbour = neighbour[..TreePage.CopyKey(right, 0, neighbour)];
            InsertSibling(root, path.LeafLevel, PageSplit.Separator(key, neighbour), right);
            path.Clear();
            return;
        }
        var separatorLength = PageSplit.Leaf(CopyOf(leaf), index, key, bytes, leaf, right, neighbour);
        InsertSibling(root, path.LeafLevel, neighbour[..separatorLength], right);
        path.Clear();
    }

    /// <summary>
    /// Moves what is behind a run of keys in the path's leaf to a leaf of its own, so that the run goes on at the end of its leaf, and in whole leaves behind
    /// it. To split the leaf in its middle again and again would leave all of them half empty. The path is empty afterwards.
    /// </summary>
    /// <param name="root">The root of the tree.</param>
    /// <param name="leaf">The leaf.</param>
    /// <param name="index">Where the next key of the run belongs: not at the end.</param>
    /// <param name="key">That key.</param>
    /// <param name="run">The keys of the run before it.</param>
    [SkipLocalsInit]
    public void SplitBehindRun(TreeRoot* root, byte* leaf, int index, ReadOnlySpan<byte> key, int run)
    {
        Span<byte> separator = stackalloc byte[Page.KeyBytesMax];
        var right = pages.MakeEmpty(PageType.Leaf);
        var separatorLength = PageSplit.LeafBehind(CopyOf(leaf), index, key, leaf, right, separator);
        Page.Appended(leaf) = (ushort)run;
        InsertSibling(root, path.LeafLevel, separator[..separatorLength], right);
        path.Clear();
    }

    /// <summary>
    /// After a removal from the page at a level: removes the page if it is empty, merges it with a sibling if it is less than a quarter full, and replaces a
    /// root with one child by it. True if it did any of that; the path is invalid then.
    /// </summary>
    public bool Shrink(TreeRoot* root, int level)
    {
        var page = path.PageAt(level);
        if (Page.Count(page) == 0)
        {
            RemovePage(root, level);
            return true;
        }
        if (level == 0)
            return Collapse(root);
        return Page.Used(page) < UsedMin && Merge(root, level);
    }

    /// <summary>Whether <see cref="Shrink"/> may change the path's page at this level.</summary>
    public bool IsUnderfull(int level) => path.PageAt(level) is var page
        && (level == 0 ? Page.Type(page) == PageType.Branch && Page.Count(page) == 1 : Used(page) < UsedMin);

    /// <summary>
    /// The length of the prefix for the leaf that a key begins behind another one: what that leaf's keys have in common with it, because the next keys probably
    /// do too, but no more than shortens cells, whose first eight bytes are in the heads.
    /// </summary>
    private static int PrefixOfNext(byte* leaf, int lengthLast, ReadOnlySpan<byte> key) =>
        Math.Min(TreePage.CommonPrefix(leaf, 0, Page.Count(leaf), key), TreePage.RestLength(Math.Min(lengthLast, key.Length)));

    // Pinned, so the address remains valid.
    private static byte* FirstCopy
    {
        get
        {
            fixed (byte* copies = _copies ??= GC.AllocateUninitializedArray<byte>(3 * Page.Bytes, pinned: true))
                return copies;
        }
    }

    private static byte* SecondCopy => FirstCopy + Page.Bytes;

    private static byte* ThirdCopy => FirstCopy + (2 * Page.Bytes);

    /// <summary>The bytes that a page uses, or that the whole leaf uses of which it is a delta.</summary>
    private static int Used(byte* page) => Page.Type(page) == PageType.Delta ? DeltaPage.WholeUsed(page) : Page.Used(page);

    private static byte* CopyOf(byte* page)
    {
        var copy = FirstCopy;
        Buffer.MemoryCopy(page, copy, Page.Bytes, Page.Bytes);
        return copy;
    }

    private void Rebuild(byte* page, int prefixMax)
    {
        var (appended, copyNumber) = (Page.Appended(page), Page.CopyNumber(page));
        TreePage.Rebuild(page, CopyOf(page), 0, Page.Count(page), prefixMax);
        (Page.Appended(page), Page.CopyNumber(page)) = (appended, copyNumber);
    }

    /// <summary>
    /// Redistributes the entries of two adjacent leaves, counting the incoming one, if the sibling that is checked has space. The path is invalid
    /// afterwards.
    /// </summary>
    [SkipLocalsInit]
    private bool TryRedistribute(byte* parent, int left, int asked, int index, ReadOnlySpan<byte> key, int bytes)
    {
        var sibling = space.ResolveNode(TreePage.Child(parent, asked));
        if (Page.BodyBytes - Used(sibling) < bytes + (Page.BodyBytes / 8))
            return false;
        byte* one = pages.OwnChild(parent, left), other = pages.OwnChild(parent, left + 1);
        Span<byte> separator = stackalloc byte[Page.KeyBytesMax];
        byte* first = FirstCopy, second = SecondCopy;
        Buffer.MemoryCopy(one, first, Page.Bytes, Page.Bytes);
        Buffer.MemoryCopy(other, second, Page.Bytes, Page.Bytes);
        var place = asked == left ? Page.Count(first) + index : index;
        if (PageSplit.TryRedistribute(first, second, place, key, bytes, one, other, separator, out var length)
            // The parent's prefix holds for all keys between two of its separators, but not necessarily for keys before the first or after the last.
            && separator[..length].StartsWith(Page.Prefix(parent)) && Page.Gap(parent) + Page.EntryBytes >= TreePage.BranchEntryBytes(length))
        {
            TreePage.ReplaceKey(parent, left + 1, separator[..length]);
            return true;
        }
        Buffer.MemoryCopy(first, one, Page.Bytes, Page.Bytes);
        Buffer.MemoryCopy(second, other, Page.Bytes, Page.Bytes);
        return false;
    }

    /// <summary>
    /// Inserts a page to the right of the path's page at this level. True if it only went into that page's parent; otherwise the path is invalid afterwards.
    /// </summary>
    private bool InsertSibling(TreeRoot* root, int level, ReadOnlySpan<byte> separator, byte* right)
    {
        var reference = PageRef.ToScratch(right);
        if (level == 0)
        {
            var top = pages.MakeEmpty(PageType.Branch);
            TreePage.InsertChild(top, 0, default, SubtreeLink.InMemory(root->Link.Reference));
            TreePage.InsertChild(top, 1, separator, SubtreeLink.InMemory(reference));
            root->Link = new PageLink(PageRef.ToScratch(top), 0);
            return false;
        }
        var branch = path.PageAt(level - 1);
        var index = path.ChildAt(level - 1) + 1;
        if (!MakeRoom(branch, index, separator, TreePage.BranchEntryBytes(separator.Length), out var breaksPrefix))
        {
            SplitBranch(root, level - 1, index, separator, reference, breaksPrefix);
            return false;
        }
        TreePage.InsertChild(branch, index, separator, SubtreeLink.InMemory(reference));
        return true;
    }

    [SkipLocalsInit]
    private void SplitBranch(TreeRoot* root, int level, int index, ReadOnlySpan<byte> separator, PageRef reference, bool breaksPrefix)
    {
        var branch = path.PageAt(level);
        int count = Page.Count(branch);
        var right = pages.MakeEmpty(PageType.Branch);
        if (index == count && (breaksPrefix || path.IsRightEdge(level)))
        {
            TreePage.InsertChild(right, 0, default, SubtreeLink.InMemory(reference));
            InsertSibling(root, level, separator, right);
            return;
        }
        var copy = CopyOf(branch);
        if (breaksPrefix)
        {
            // Only the first separator can be less than the common prefix. The child before it stays alone, and the new child becomes the first of the rest.
            Invariant.Check(
                index == 1, $"The separator at index {index} of a branch with {count} entries breaks the prefix, which only the one at index 1 may do.");
            Page.Format(right, PageType.Branch, Page.Prefix(copy), keepOwner: true);
            TreePage.InsertChild(right, 0, default, SubtreeLink.InMemory(reference));
            TreePage.Append(right, copy, 1, count);
            TreePage.Rebuild(branch, copy, 0, 1, 0);
            InsertSibling(root, level, separator, right);
            return;
        }
        Span<byte> up = stackalloc byte[Page.KeyBytesMax];
        var upLength = PageSplit.Branch(copy, index, separator, reference, branch, right, up);
        InsertSibling(root, level, up[..upLength], right);
    }

    private void RemovePage(TreeRoot* root, int level)
    {
        var page = path.PageAt(level);
        pages.Retire(PageRef.ToScratch(page));
        if (level == 0)
        {
            root->Link = default;
            return;
        }
        TreePage.Remove(path.PageAt(level - 1), path.ChildAt(level - 1));
        Shrink(root, level - 1);
    }

    private bool Collapse(TreeRoot* root)
    {
        for (var collapsed = false; ; collapsed = true)
        {
            var page = space.ResolveNode(&root->Link);
            if (Page.Type(page) != PageType.Branch || Page.Count(page) > 1)
                return collapsed;
            var left = root->Link.Reference;
            pages.Settle(left, page);
            root->Link = *TreePage.Child(page, 0);
            pages.Retire(left);
        }
    }

    private bool Merge(TreeRoot* root, int level)
    {
        var parent = path.PageAt(level - 1);
        var index = path.ChildAt(level - 1);
        if (!(index + 1 < Page.Count(parent) && TryMerge(parent, index)) && !(index > 0 && TryMerge(parent, index - 1)))
            return false;
        Shrink(root, level - 1);
        return true;
    }

    /// <summary>Merges a child's right sibling into it if together they fill at most three quarters of a page.</summary>
    [SkipLocalsInit]
    private bool TryMerge(byte* parent, int index)
    {
        var rightChild = TreePage.Child(parent, index + 1);
        var rightReference = rightChild->Reference;
        var left = space.ResolveNode(TreePage.Child(parent, index));
        var right = space.ResolveNode(rightChild);
        Span<byte> separator = stackalloc byte[Page.KeyBytesMax];
        separator = separator[..TreePage.CopyKey(parent, index + 1, separator)];
        pages.Settle(TreePage.Child(parent, index)->Reference, left);
        pages.Settle(rightReference, right);
        var joined = SecondCopy;
        if (!PageSplit.TryMerge(pages.Whole(left, FirstCopy), pages.Whole(right, ThirdCopy), separator, joined))
            return false;
        left = pages.OwnChild(parent, index);
        // Keep the fields that tie the page to its batch.
        var (scratchIndex, batch, placed) = (Page.ScratchIndex(left), Page.Batch(left), Page.Placed(left));
        Buffer.MemoryCopy(joined, left, Page.Bytes, Page.Bytes);
        (Page.ScratchIndex(left), Page.Batch(left), Page.Placed(left)) = (scratchIndex, batch, placed);
        pages.Retire(rightReference);
        TreePage.Remove(parent, index + 1);
        return true;
    }
}
