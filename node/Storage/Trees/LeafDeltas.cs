using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// The leaves that the open batch has copied and that may become deltas of their pages in the file when it is sealed: each that differs little from it. What
/// does not become one retires the page in the file, as any copy does. Used by <see cref="BatchPages"/>; writer only.
/// </summary>
/// <remarks>
/// A base has at most one delta in each root, and it is retired once: here, when the batch drops its last delta, or by the checkpoint that folds it. A base
/// that a delta may have in a state that a checkpoint still writes is recorded apart from other pages of the file, because it may mean the page in its place.
/// </remarks>
/// <param name="space">Resolves references.</param>
/// <param name="pool">Provides the blocks.</param>
/// <param name="bytesMax">The most bytes of a delta; 0: there are none.</param>
/// <param name="staysWhole">Tests: whether a leaf stays whole for no other reason. Null: none.</param>
internal sealed unsafe class LeafDeltas(PageSpace space, ScratchPool pool, int bytesMax, Func<bool>? staysWhole)
{
    private readonly List<Copy> _copies = [];

    /// <summary>
    /// The batch of the oldest state that a checkpoint may fold: the one that it has frozen, or the published one, which the next may freeze. Set when a batch
    /// begins.
    /// </summary>
    public ulong BatchToFold { get; set; }

    /// <summary>Whether leaves of named trees may become deltas.</summary>
    public bool AreMade => bytesMax > 0;

    /// <summary>Forgets the copies: a batch begins.</summary>
    public void Clear() => _copies.Clear();

    /// <summary>Notes a copy that the batch has made. Its base stays in use for the time being.</summary>
    /// <param name="copy">The copy.</param>
    /// <param name="tree">Its tree.</param>
    /// <param name="fileBase">The page in the file.</param>
    /// <param name="before">The delta that was copied together with its base; null if that was copied alone.</param>
    public void Add(byte* copy, int tree, PageRef fileBase, byte* before)
    {
        _copies.Add(new Copy(tree, fileBase, (nint)before));
        Page.CopyNumber(copy) = _copies.Count;
    }

    /// <summary>Makes deltas of the copies that are still what they were copied from, and retires the bases of the others.</summary>
    /// <param name="changes">The batch.</param>
    /// <param name="trees">Its trees.</param>
    public void Seal(SealedBatch changes, TreeRoot* trees)
    {
        var left = _copies.Count;
        for (var at = changes.Made.Count - 1; at >= 0 && left > 0; at--)
        {
            var page = (byte*)changes.Made[at];
            if (Page.Type(page) != PageType.Leaf || Page.CopyNumber(page) == 0)
                continue;
            left--;
            ref var copy = ref CollectionsMarshal.AsSpan(_copies)[Page.CopyNumber(page) - 1];
            Page.CopyNumber(page) = 0;
            var delta = TryReplace(page, copy, &trees[copy.Tree]);
            if (delta == null)
                continue;
            copy.IsReplaced = true;
            (Page.Batch(delta), Page.ScratchIndex(delta)) = (Page.Batch(page), at);
            changes.Made[at] = (nint)delta;
            pool.Return(page);
        }
        foreach (var copy in _copies)
        {
            if (copy.IsReplaced)
                continue;
            if (copy.Before != 0)
                changes.DroppedBases.Add(copy.Base.Number);
            else
                changes.AddRetired(new PageRun(copy.Base.Number, 1));
        }
        _copies.Clear();
    }

    /// <summary>Makes a delta, and has the parent refer to it. Null if the leaf stays whole: also one that is the root of its tree.</summary>
    [SkipLocalsInit]
    private byte* TryReplace(byte* leaf, in Copy copy, TreeRoot* tree)
    {
        if (Page.Count(leaf) == 0 || tree->Link.Reference == PageRef.ToScratch(leaf) || staysWhole?.Invoke() == true)
            return null;
        var whole = space.Locate(copy.Base);
        var before = (byte*)copy.Before;
        // That state has the delta before if this is of its batch or an earlier one, and no older delta on the base.
        var keepsAll = before != null && Page.Batch(before) > BatchToFold;
        var delta = LeafDifference.TryMake(pool, leaf, whole, new PageLink(copy.Base, Page.Checksum(whole)), before, keepsAll, bytesMax);
        if (delta == null)
            return null;
        Span<byte> key = stackalloc byte[Page.KeyBytesMax];
        key = key[..TreePage.CopyKey(leaf, 0, key)];
        // All pages above one of the batch are the batch's, too.
        var link = &tree->Link;
        for (var page = space.Locate(link->Reference); page != leaf; page = space.Locate(link->Reference))
        {
            Invariant.Check(Page.Type(page) == PageType.Branch, $"A leaf of batch {Page.Batch(leaf)} is not where its first key belongs.");
            link = TreePage.Child(page, TreePage.FindChild(page, key));
        }
        link->Reference = PageRef.ToDelta(delta);
        return delta;
    }

    /// <summary>A copy of a page in the file, or of that and a delta.</summary>
    private struct Copy(int tree, PageRef fileBase, nint before)
    {
        public readonly int Tree = tree;
        public readonly PageRef Base = fileBase;
        public readonly nint Before = before;
        public bool IsReplaced;
    }
}
