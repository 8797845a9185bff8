using System.Runtime.CompilerServices;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>Point reads, for both batches and snapshots.</summary>
internal static unsafe class Lookup
{
    /// <summary>The value of a key, in place unless it is divided or compressed.</summary>
    /// <exception cref="CorruptStoreException">A page on the path does not match its parent's reference.</exception>
    [SkipLocalsInit]
    public static bool TryGet(PageSpace space, TreeRoot* root, scoped ReadOnlySpan<byte> key, out ReadOnlySpan<byte> value)
    {
        var cell = Find(space, root, key);
        value = cell == null ? default : TreePage.CellValue(space, cell);
        return cell != null;
    }

    /// <summary>The cell of a key; null if there is none.</summary>
    public static byte* Find(PageSpace space, TreeRoot* root, scoped ReadOnlySpan<byte> key)
    {
        if (root->Link.Reference.IsNone)
            return null;
        var page = space.ResolveNode(&root->Link);
        while (Page.Type(page) == PageType.Branch)
            page = space.ResolveNode(TreePage.Child(page, TreePage.FindChild(page, key)));
        return FindInLeaf(space, page, key);
    }

    /// <summary>The cell of a key in a leaf, or in a delta and its base: what the delta says of a key counts.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static byte* FindInLeaf(PageSpace space, byte* leaf, scoped ReadOnlySpan<byte> key)
    {
        if (Page.Type(leaf) == PageType.Delta)
        {
            var own = TreePage.LowerBound(leaf, key, out var isOwn);
            if (isOwn)
                return TreePage.IsDeleted(Page.Cell(leaf, own)) ? null : Page.Cell(leaf, own);
            leaf = space.ResolveBase(leaf);
        }
        var index = TreePage.LowerBound(leaf, key, out var found);
        return found ? Page.Cell(leaf, index) : null;
    }

    /// <summary>Begins to read the first page on the way to a key that is not in memory.</summary>
    /// <exception cref="CorruptStoreException">A page on the path does not match its parent's reference.</exception>
    public static void BeginRead(PageSpace space, TreeRoot* root, ReadOnlySpan<byte> key)
    {
        var link = &root->Link;
        while (!link->Reference.IsNone && !space.TryBeginRead(link))
        {
            var page = space.ResolveNode(link);
            if (Page.Type(page) != PageType.Branch)
                return;
            link = TreePage.Child(page, TreePage.FindChild(page, key));
        }
    }

    /// <summary>The link by which a search for a key goes on below so many levels of branches.</summary>
    /// <param name="levels">Set to the number of levels that the tree has if it has fewer.</param>
    /// <exception cref="CorruptStoreException">A page on the path does not match its parent's reference.</exception>
    public static PageLink* FindLink(PageSpace space, TreeRoot* root, scoped ReadOnlySpan<byte> key, ref int levels)
    {
        var link = &root->Link;
        for (var level = 0; level < levels; level++)
        {
            var page = space.ResolveNode(link);
            if (Page.Type(page) == PageType.Branch)
                link = TreePage.Child(page, TreePage.FindChild(page, key));
            else
                levels = level;
        }
        return link;
    }
}
