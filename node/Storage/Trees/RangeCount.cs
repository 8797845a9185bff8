using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Counts the keys of a range without reading them: by the summaries of what is in the file, and by looking at what is in memory only. For snapshots on any
/// thread, also while a checkpoint's end replaces references, and for the open batch on the writer. Allocates nothing.
/// </summary>
/// <remarks>
/// A count reads the pages on the two edges of the range, one of each level per edge, and between them one number per child of these pages: some hundreds per
/// level. Where a child was changed since the last checkpoint there is no number, and the count goes on in memory: to the header of each changed leaf, which
/// takes some ten nanoseconds, and to each child of a changed branch. So its work is bounded by what one checkpoint writes, and not by the range.
/// </remarks>
/// <exception cref="Encoding.CorruptStoreException">A page on an edge does not match its parent's reference.</exception>
internal static unsafe class RangeCount
{
    /// <summary>Children ahead of the one that is counted whose headers are asked for: as many as are counted while one is fetched from memory.</summary>
    private const int Ahead = 8;

    /// <summary>The number of keys from one (empty: the first) up to another, which is not counted (empty: the end).</summary>
    public static ulong Of(PageSpace space, TreeRoot* root, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        if (root->Link.Reference.IsNone || (!to.IsEmpty && from.SequenceCompareTo(to) >= 0))
            return 0;
        return from.IsEmpty && to.IsEmpty ? root->Count : Below(space, &root->Link, from, to);
    }

    /// <summary>The keys of a range that has an edge in the subtree of a link.</summary>
    private static ulong Below(PageSpace space, PageLink* link, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        var page = space.ResolveNode(link);
        if (Page.Type(page) == PageType.Delta)
            return (ulong)DeltaPage.CountRange(space, page, from, to);
        var (first, end) = RangeRemoval.Entries(page, from, to);
        if (Page.Type(page) == PageType.Leaf)
            return (ulong)(end - first);
        if (end - first == 1)
            return Below(space, TreePage.Child(page, first), from, to);
        var keys = 0ul;
        if (!from.IsEmpty)
            keys += Below(space, TreePage.Child(page, first++), from, default);
        if (!to.IsEmpty)
            keys += Below(space, TreePage.Child(page, --end), default, to);
        return keys + Whole(page, first, end);
    }

    /// <summary>All keys below some children of a branch.</summary>
    private static ulong Whole(byte* branch, int first, int end)
    {
        var keys = 0ul;
        for (var index = first; index < end; index++)
        {
            if (index + Ahead < end && PageLink.Load(TreePage.Child(branch, index + Ahead)) is { IsScratch: true } ahead)
                Page.PrefetchHeader(ahead.Memory);
            var child = TreePage.Subtree(branch, index);
            var reference = PageLink.Load(&child->Link);
            if (!reference.IsScratch)
                keys += child->Summary.Keys;
            else if (reference.IsDelta)
                keys += (ulong)DeltaPage.Keys(reference.Memory);
            else if (Page.Type(reference.Memory) == PageType.Leaf)
                keys += Page.Count(reference.Memory);
            else
                keys += Whole(reference.Memory, 0, Page.Count(reference.Memory));
        }
        return keys;
    }
}
