using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// The pages from a tree's root to one leaf, level by level from 0, and which child leads from each to the next. Kept between a batch's operations on the tree,
/// so that another key of the same leaf needs no descent. The first <see cref="OwnedLevels"/> pages belong to the open batch. A change of the tree's shape
/// makes the path invalid, and its owner clears it.
/// </summary>
internal sealed unsafe class TreePath
{
    private readonly nint[] _pages = new nint[PageStructure.DepthMax];
    private readonly int[] _children = new int[PageStructure.DepthMax];

    /// <summary>Whether the path has no page.</summary>
    public bool IsEmpty => LeafLevel < 0;

    /// <summary>The level of the last page, which is a leaf when the path is complete.</summary>
    public int LeafLevel { get; private set; } = -1;

    /// <summary>How many levels, from the root on, belong to the open batch.</summary>
    public int OwnedLevels { get; private set; }

    /// <summary>The last page of a complete path.</summary>
    public byte* Leaf => (byte*)_pages[LeafLevel];

    /// <summary>Removes all pages.</summary>
    public void Clear() => (LeafLevel, OwnedLevels) = (-1, 0);

    /// <summary>Starts a path at a root.</summary>
    public void Begin(byte* root)
    {
        (LeafLevel, OwnedLevels) = (0, 0);
        _pages[0] = (nint)root;
    }

    /// <summary>Continues at a child of the last page.</summary>
    public void Descend(int index, byte* child)
    {
        _children[LeafLevel] = index;
        _pages[++LeafLevel] = (nint)child;
    }

    /// <summary>Whether a key belongs to the path's leaf: it is between the separators on both sides, of which the lowest page that has one decides.</summary>
    public bool Covers(ReadOnlySpan<byte> key)
    {
        if (IsEmpty)
            return false;
        var (isAbove, isBelow) = (false, false);
        for (var level = LeafLevel - 1; level >= 0 && !(isAbove && isBelow); level--)
        {
            var page = PageAt(level);
            var child = ChildAt(level);
            if (!isAbove && child > 0)
            {
                if (TreePage.Compare(page, child, key) > 0)
                    return false;
                isAbove = true;
            }
            if (!isBelow && child + 1 < Page.Count(page))
            {
                if (TreePage.Compare(page, child + 1, key) <= 0)
                    return false;
                isBelow = true;
            }
        }
        return true;
    }

    /// <summary>
    /// The path's leaf, if it belongs to the batch and a key belongs to its end, so that nothing has to be searched; otherwise null. A sorted run asks this for
    /// each key.
    /// </summary>
    public byte* OwnedLeafBefore(ReadOnlySpan<byte> key)
    {
        if (IsEmpty || OwnedLevels <= LeafLevel)
            return null;
        var leaf = Leaf;
        int last = Page.Count(leaf) - 1;
        if (last < 0 || TreePage.Compare(leaf, last, key) >= 0)
            return null;
        var end = EndLevel(LeafLevel);
        return end < 0 || TreePage.Compare(PageAt(end), ChildAt(end) + 1, key) > 0 ? leaf : null;
    }

    /// <summary>Writes the key at which the leaf behind the path's begins, and returns its length; 0 if there is none.</summary>
    public int CopyEnd(Span<byte> destination)
    {
        var end = EndLevel(LeafLevel);
        return end < 0 ? 0 : TreePage.CopyKey(PageAt(end), ChildAt(end) + 1, destination);
    }

    /// <summary>Moves on to a leaf that belongs to the batch, and that was inserted into the same parent behind the path's leaf.</summary>
    public void MoveTo(byte* leaf)
    {
        _children[LeafLevel - 1]++;
        _pages[LeafLevel] = (nint)leaf;
    }

    /// <summary>Replaces the first page that does not belong to the batch by its copy, which does.</summary>
    public void Own(byte* copy) => _pages[OwnedLevels++] = (nint)copy;

    /// <summary>Replaces the leaf by a delta of the batch. Where more than a value changes, the whole leaf is copied still.</summary>
    public void PutDelta(byte* delta) => _pages[LeafLevel] = (nint)delta;

    /// <summary>The page at a level.</summary>
    public byte* PageAt(int level) => (byte*)_pages[level];

    /// <summary>The index of the child through which the path leaves the page at a level.</summary>
    public int ChildAt(int level) => _children[level];

    /// <summary>Whether the page at a level is the last one of its level.</summary>
    public bool IsRightEdge(int level) => EndLevel(level) < 0;

    /// <summary>The level whose page has the separator behind the path's page at a level: the lowest one with a further child; -1 if there is none.</summary>
    private int EndLevel(int level)
    {
        do
            level--;
        while (level >= 0 && ChildAt(level) + 1 >= Page.Count(PageAt(level)));
        return level;
    }
}
