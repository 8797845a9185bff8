using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// The pages from a tree's root to one leaf, level by level from 0, and which child leads from each to the next. All of them belong to the open batch.
/// Reused for every change; a change of the tree's shape makes it invalid.
/// </summary>
internal sealed unsafe class TreePath
{
    private readonly nint[] _pages = new nint[PageStructure.DepthMax];
    private readonly int[] _children = new int[PageStructure.DepthMax];

    /// <summary>The level of the last page, which is a leaf when the path is complete.</summary>
    public int LeafLevel { get; private set; }

    /// <summary>Starts a path at a root.</summary>
    public void Begin(byte* root)
    {
        _pages[0] = (nint)root;
        LeafLevel = 0;
    }

    /// <summary>Continues at a child of the last page.</summary>
    public void Descend(int index, byte* child)
    {
        _children[LeafLevel] = index;
        _pages[++LeafLevel] = (nint)child;
    }

    /// <summary>The page at a level.</summary>
    public byte* PageAt(int level) => (byte*)_pages[level];

    /// <summary>The index of the child through which the path leaves the page at a level.</summary>
    public int ChildAt(int level) => _children[level];

    /// <summary>Whether the page at a level is the last one of its level.</summary>
    public bool IsRightEdge(int level)
    {
        for (var i = 0; i < level; i++)
        {
            if (ChildAt(i) != Page.Count(PageAt(i)) - 1)
                return false;
        }
        return true;
    }
}
