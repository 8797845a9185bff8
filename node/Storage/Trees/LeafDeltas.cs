using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// The leaves that the open batch has copied and that may become deltas of their pages in the file when it is sealed: each that differs little from it. What
/// does not become one retires the page in the file, as any copy does. Leaves in which only values change become deltas at once, without a copy. Used by
/// <see cref="BatchPages"/>; writer only.
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
    /// <summary>
    /// The most entries that a batch adds to a delta one by one. Each takes a new block with all of them, so where a batch changes a large part of a leaf, a
    /// copy of the whole leaf takes less time.
    /// </summary>
    private const int AddedMax = 8;

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

    /// <summary>
    /// Puts a value in the place of another one, both inline, without making a page of the leaf: into a copy of its delta, or into the delta itself if the open
    /// batch has made it and the value before it takes as many bytes there. Returns that delta; null if the whole leaf has to be changed, because it does not
    /// have the key, or has no room, or differs too much from its base.
    /// </summary>
    /// <param name="reference">The reference to the leaf.</param>
    /// <param name="leaf">A leaf of the file, or a delta whose references are final.</param>
    /// <param name="isOpen">Whether it is a delta that the open batch has made.</param>
    /// <param name="key">The key.</param>
    /// <param name="recorded">What the key's cell has as the length of the value.</param>
    /// <param name="place">Where it belongs.</param>
    public byte* TryPut(PageRef reference, byte* leaf, bool isOpen, ReadOnlySpan<byte> key, int recorded, out byte* place)
    {
        place = null;
        if (staysWhole?.Invoke() == true)
            return null;
        var before = reference.IsDelta ? leaf : null;
        var (own, isOwn) = (0, false);
        if (before != null)
            own = TreePage.LowerBound(before, key, out isOwn);
        var cell = isOwn ? Page.Cell(before, own) : FindInBase(before == null ? leaf : space.ResolveBase(before), key);
        var lengthBefore = cell == null ? -1 : TreePage.InlineLength(cell);
        var growth = TreePage.InlineBytes(recorded) - lengthBefore;
        // A fold takes the bytes that the whole page would use.
        if (lengthBefore < 0 || (before == null ? Page.Used(leaf) : DeltaPage.WholeUsed(before)) + growth > Page.BodyBytes)
            return null;
        var delta = isOwn && growth == 0
            ? isOpen ? before : CopyOf(before)
            : isOpen && !isOwn && AddedTo(before) >= AddedMax ? null : MakeWith(reference, leaf, key, recorded, growth, own, isOwn);
        if (delta != null)
            place = TreePage.RecordInline(Page.Cell(delta, own), recorded);
        return delta;
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

    /// <summary>How many entries the open batch has added to a delta of its own.</summary>
    private static int AddedTo(byte* delta) =>
        Page.Count(delta) - (DeltaPage.Before(delta) == 0 ? 0 : Page.Count((byte*)DeltaPage.Before(delta)));

    private static byte* FindInBase(byte* whole, ReadOnlySpan<byte> key)
    {
        var index = TreePage.LowerBound(whole, key, out var isThere);
        return isThere ? Page.Cell(whole, index) : null;
    }

    private byte* CopyOf(byte* delta)
    {
        var bytes = DeltaPage.Bytes(delta);
        var copy = pool.RentBlock(bytes);
        Buffer.MemoryCopy(delta, copy, bytes, bytes);
        return copy;
    }

    /// <summary>
    /// A delta with an entry whose value is not written yet, at an index, and with those of another delta, but for what that has for the same key. Null if it
    /// would be too large.
    /// </summary>
    private byte* MakeWith(PageRef reference, byte* leaf, ReadOnlySpan<byte> key, int recorded, int growth, int own, bool isOwn)
    {
        var bytes = (reference.IsDelta ? DeltaPage.OwnBytes(leaf) : Page.HeaderBytes)
            + (isOwn ? growth : TreePage.LeafEntryBytes(key.Length, TreePage.InlineBytes(recorded), overflow: false));
        if (bytes > bytesMax)
            return null;
        bytes = ScratchPool.BlockBytesFor(bytes);
        var delta = pool.RentBlock(bytes);
        if (reference.IsDelta)
        {
            DeltaPage.FormatLike(delta, bytes, leaf, growth);
            TreePage.Append(delta, leaf, 0, own);
            TreePage.InsertInline(delta, own, key, recorded);
            TreePage.Append(delta, leaf, isOwn ? own + 1 : own, Page.Count(leaf));
            DeltaPage.Appended(delta) = DeltaPage.Appended(leaf);
            return delta;
        }
        DeltaPage.Format(delta, bytes, leaf, new PageLink(reference, Page.Checksum(leaf)));
        DeltaPage.GrowWhole(delta, growth);
        TreePage.InsertInline(delta, 0, key, recorded);
        DeltaPage.Appended(delta) = Page.Appended(leaf);
        return delta;
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
