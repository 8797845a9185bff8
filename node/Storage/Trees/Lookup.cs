using System.Runtime.CompilerServices;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>Point reads, for both batches and snapshots.</summary>
internal static unsafe class Lookup
{
    /// <summary>The value of a key, in place.</summary>
    /// <exception cref="CorruptStoreException">A page on the path does not match its parent's reference.</exception>
    [SkipLocalsInit]
    public static bool TryGet(PageSpace space, TreeRoot* root, scoped ReadOnlySpan<byte> key, out ReadOnlySpan<byte> value)
    {
        value = default;
        if (root->Link.Reference.IsNone)
            return false;
        var page = space.ResolveNode(&root->Link);
        while (Page.Type(page) == PageType.Branch)
            page = space.ResolveNode(TreePage.Child(page, TreePage.FindChild(page, key)));
        var index = TreePage.LowerBound(page, key, out var found);
        if (found)
            value = TreePage.Value(space, page, index);
        return found;
    }
}
