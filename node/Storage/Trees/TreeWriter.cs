using System.Runtime.CompilerServices;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Changes one tree for the open batch, and keeps the path of its last operation. Each page is copied once into scratch memory, from the root down, and then
/// changed in place. A batch has one for each of its trees, so that operations on one do not lose the path in another, and one for the trees of sets, which
/// forgets its path when another set follows. Used by <see cref="WriteBatch"/> and <see cref="SetWriter"/>, which have checked the keys; writer only.
/// </summary>
internal sealed unsafe class TreeWriter
{
    private readonly PageSpace _space;
    private readonly BatchPages _pages;
    private readonly TreePath _path = new();
    private readonly Rebalancing _rebalancing;
    private readonly RangeRemoval _removal;
    private readonly int _tree;
    private readonly ValueCompression? _compression;

    /// <summary>Where <see cref="Find"/> has found the key in the path's leaf; -1 if that is a delta.</summary>
    private int _found;

    /// <summary>
    /// The last insertions, as far as each was directly behind the one before it in the same leaf: the leaf, the index of the last, their number.
    /// </summary>
    private (nint Leaf, int Index, int Count) _run;

    /// <summary>What <see cref="Descents"/> was when leaves were asked for.</summary>
    private long _prefetchedAt;

    /// <summary>For all batches of a store.</summary>
    /// <param name="space">Resolves references.</param>
    /// <param name="pages">The pages of the open batch.</param>
    /// <param name="tree">The tree, as in <see cref="BatchPages.Tree"/>.</param>
    public TreeWriter(PageSpace space, BatchPages pages, int tree)
    {
        (_space, _pages, _tree) = (space, pages, tree);
        _compression = tree == (int)TreeId.Kv ? pages.Compression : null;
        _rebalancing = new Rebalancing(space, pages, _path);
        _removal = new RangeRemoval(space, pages);
    }

    /// <summary>Searches from the root since the store was opened. A key of the path's leaf needs none.</summary>
    public long Descents { get; private set; }

    /// <summary>Forgets the path: a batch begins, or another tree follows.</summary>
    public void Forget()
    {
        _path.Clear();
        _run = default;
    }

    /// <summary>Sets a key's value, passed in two parts.</summary>
    public void Put(TreeRoot* root, ReadOnlySpan<byte> key, ReadOnlySpan<byte> header, ReadOnlySpan<byte> body)
    {
        if (_compression is not null && _compression.TryCompress(header, body, out var compressed))
            Put(root, key, compressed, default, header.Length + body.Length);
        else
            Put(root, key, header, body, lengthBefore: 0);
    }

    /// <summary>Sets a key's value, or the length and compressed bytes of one with so many bytes; 0 if it is not compressed.</summary>
    private void Put(TreeRoot* root, ReadOnlySpan<byte> key, ReadOnlySpan<byte> header, ReadOnlySpan<byte> body, int lengthBefore)
    {
        var length = header.Length + body.Length;
        if (OverflowRun.IsNeeded(key.Length, length, _pages.DividesValues))
        {
            PutOverflow(root, key, lengthBefore > 0 ? header[CompressedValue.LengthBytes..] : header, body, lengthBefore);
            return;
        }
        var recorded = lengthBefore > 0 ? TreePage.CompressedInline(length) : length;
        if (_tree >= 0 && _pages.MakesDeltas && TryPutInDelta(root, key, header, body, recorded))
            return;
        var leaf = MakePlace(root, key, TreePage.LeafEntryBytes(key.Length, length, overflow: false), length, out var index, out var isSame);
        if (isSame)
        {
            Fill(new Span<byte>(TreePage.RecordInline(Page.Cell(leaf, index), recorded), length), header, body);
            return;
        }
        Fill(TreePage.InsertInline(leaf, index, key, recorded), header, body);
        Count(root, leaf, index);
    }

    /// <summary>
    /// Sets the value of a key whose leaf is a page of the file or a delta, without copying the whole leaf, which would be compared with its page at the end of
    /// the batch. False if it has to be copied, or was. The branches of the path belong to the batch afterwards.
    /// </summary>
    private bool TryPutInDelta(TreeRoot* root, ReadOnlySpan<byte> key, ReadOnlySpan<byte> header, ReadOnlySpan<byte> body, int recorded)
    {
        OwnBranchesOf(root, key);
        var level = _path.LeafLevel;
        // A leaf that is the root of its tree stays whole.
        if (level == 0 || _path.OwnedLevels > level)
            return false;
        var place = _pages.TryPutInDelta(TreePage.Child(_path.PageAt(level - 1), _path.ChildAt(level - 1)), key, recorded, out var delta);
        if (place == null)
            return false;
        _path.PutDelta(delta);
        Fill(new Span<byte>(place, header.Length + body.Length), header, body);
        return true;
    }

    /// <summary>
    /// Sets a key's value that goes to a run, as a whole or but for its beginning; or the compressed bytes of one with so many bytes, 0 if it is not
    /// compressed.
    /// </summary>
    private void PutOverflow(TreeRoot* root, ReadOnlySpan<byte> key, ReadOnlySpan<byte> header, ReadOnlySpan<byte> body, int lengthBefore)
    {
        var length = header.Length + body.Length;
        var isCompressed = lengthBefore > 0;
        // The length of a compressed value takes room in the leaf, as more of the key would.
        var beginning = _pages.DividesValues ? OverflowRun.BeginningFor(key.Length + (isCompressed ? CompressedValue.LengthBytes : 0), length) : 0;
        var ofHeader = Math.Min(beginning, header.Length);
        var ofBody = beginning - ofHeader;
        var run = _pages.MakeRun(header[ofHeader..], body[ofBody..], beginning);
        var leaf = MakePlace(root, key, TreePage.LeafEntryBytes(key.Length, beginning, overflow: true, isCompressed), -1, out var index, out _);
        var recorded = OverflowRun.Recorded(length, beginning, isCompressed);
        var place = TreePage.InsertOverflow(leaf, index, key, recorded, new PageLink(run, 0), (uint)lengthBefore);
        Fill(place, header[..ofHeader], body[..ofBody]);
        Count(root, leaf, index);
    }

    /// <summary>
    /// Puts the next entries of a source as long as they belong to the end of the path's leaf, one behind the other, and fit there. False if there are no more.
    /// </summary>
    [SkipLocalsInit]
    public bool Append<TSource>(TreeRoot* root, ref TSource puts)
        where TSource : IPutSource, allows ref struct
    {
        var leaf = _path.OwnedLeafBefore(puts.Key);
        if (leaf == null)
            return true;
        var slots = stackalloc ushort[LeafFill.EntriesMax];
        Span<byte> end = stackalloc byte[Page.KeyBytesMax];
        var fill = new LeafFill(leaf, end[.._path.CopyEnd(end)], slots, _pages.DividesValues, _compression);
        var more = true;
        while (more && fill.TryAppend(puts.Key, puts.Header, puts.Body))
            more = puts.MoveNext();
        root->Count += (ulong)fill.End();
        return more;
    }

    /// <summary>
    /// Asks the processor for the leaves behind the path's, if the path has moved: for the next one, or the base of its delta, which was asked for one leaf
    /// before, and for the delta after that.
    /// </summary>
    public void PrefetchBehind()
    {
        if (_prefetchedAt == Descents || _path.IsEmpty || _path.LeafLevel == 0)
            return;
        _prefetchedAt = Descents;
        var parent = _path.PageAt(_path.LeafLevel - 1);
        var next = _path.ChildAt(_path.LeafLevel - 1) + 1;
        if (next < Page.Count(parent))
            Page.Prefetch(_space.Locate(PageSpace.FileReference(PageLink.Load(TreePage.Child(parent, next)))));
        if (next + 1 < Page.Count(parent) && PageLink.Load(TreePage.Child(parent, next + 1)) is { IsDelta: true } after)
            Page.PrefetchDelta(after.Memory);
    }

    /// <summary>Gives a key a tree, whose pages belong to the batch, and a value of <see cref="TreePage.TreeValueBytes"/>.</summary>
    public void PutTree(TreeRoot* root, ReadOnlySpan<byte> key, PageLink link, ReadOnlySpan<byte> value)
    {
        var leaf = MakePlace(root, key, TreePage.TreeEntryBytes(key.Length), -1, out var index, out _);
        TreePage.InsertTree(leaf, index, key, link, value);
        Count(root, leaf, index);
    }

    /// <summary>Removes a key; returns whether it existed.</summary>
    public bool Delete(TreeRoot* root, ReadOnlySpan<byte> key)
    {
        if (Find(root, key) == null)
            return false;
        var leaf = OwnLeaf(root, key, out var index);
        RemoveEntry(root, leaf, index);
        if (_rebalancing.Shrink(root, _path.LeafLevel))
            _path.Clear();
        return true;
    }

    /// <inheritdoc cref="WriteBatch.DeleteRange"/>
    public ulong DeleteRange(TreeRoot* root, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        if (!to.IsEmpty && from.SequenceCompareTo(to) >= 0)
            return 0;
        _pages.Tree = _tree;
        _path.Clear();
        var removed = _removal.Remove(root, from, to);
        root->Count -= removed;
        if (removed == 0)
            return 0;
        MergeNextTo(root, from);
        if (!to.IsEmpty)
            MergeNextTo(root, to);
        return removed;
    }

    /// <inheritdoc cref="RangeRemoval.EndOfPart"/>
    public ReadOnlySpan<byte> EndOfPart(TreeRoot* root, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to, ref RangeAllowance allowance, Span<byte> buffer) =>
        _removal.EndOfPart(root, from, to, ref allowance, buffer);

    /// <summary>
    /// Makes the path lead to the leaf of a key, and returns the key's cell there; null if there is none. Nothing is copied. In an empty tree the path is
    /// empty.
    /// </summary>
    public byte* Find(TreeRoot* root, ReadOnlySpan<byte> key)
    {
        GoTo(root, key);
        _found = -1;
        if (_path.IsEmpty)
            return null;
        var leaf = _path.Leaf;
        if (Page.Type(leaf) == PageType.Delta)
            return Lookup.FindInLeaf(_space, leaf, key);
        _found = TreePage.LowerBound(leaf, key, out var found);
        return found ? Page.Cell(leaf, _found) : null;
    }

    /// <summary>
    /// Copies the pages of the path that this batch does not own yet, and returns the leaf, and the position there of the key that <see cref="Find"/> has
    /// found.
    /// </summary>
    public byte* OwnLeaf(TreeRoot* root, ReadOnlySpan<byte> key, out int index)
    {
        var leaf = OwnLeaf(root);
        index = _found >= 0 ? _found : TreePage.LowerBound(leaf, key, out _);
        return leaf;
    }

    private byte* OwnLeaf(TreeRoot* root)
    {
        OwnTo(root, _path.LeafLevel);
        return _path.Leaf;
    }

    /// <summary>Makes the path lead to the leaf of a key.</summary>
    private void GoTo(TreeRoot* root, ReadOnlySpan<byte> key)
    {
        if (_path.Covers(key))
            return;
        _path.Clear();
        if (root->Link.Reference.IsNone)
            return;
        Descents++;
        var page = _space.ResolveNode(&root->Link);
        for (_path.Begin(page); Page.Type(page) == PageType.Branch;)
        {
            var index = TreePage.FindChild(page, key);
            page = _space.ResolveNode(TreePage.Child(page, index));
            _path.Descend(index, page);
        }
    }

    private static void Fill(Span<byte> place, ReadOnlySpan<byte> header, ReadOnlySpan<byte> body)
    {
        header.CopyTo(place);
        body.CopyTo(place[header.Length..]);
    }

    private void Count(TreeRoot* root, byte* leaf, int index)
    {
        Page.Appended(leaf) = (ushort)(index == Page.Count(leaf) - 1 ? Page.Appended(leaf) + 1 : 0);
        _run = ((nint)leaf, index, RunBefore(leaf, index) + 1);
        root->Count++;
    }

    /// <summary>How many of the last insertions, one behind the other, are directly before an index of a leaf.</summary>
    private int RunBefore(byte* leaf, int index) => _run.Leaf == (nint)leaf && _run.Index == index - 1 ? _run.Count : 0;

    /// <summary>
    /// Makes a place for a key's entry, and returns the leaf and the position. What the key has there is removed, unless it is an inline value of as many
    /// bytes, which can be overwritten.
    /// </summary>
    /// <param name="root">The tree.</param>
    /// <param name="key">The key.</param>
    /// <param name="bytes">The most that the entry takes.</param>
    /// <param name="inlineBytes">The bytes of its value, if that is inline; otherwise -1.</param>
    /// <param name="index">The position.</param>
    /// <param name="isSame">Whether the key has an inline value of as many bytes there.</param>
    private byte* MakePlace(TreeRoot* root, ReadOnlySpan<byte> key, int bytes, int inlineBytes, out int index, out bool isSame)
    {
        isSame = false;
        _pages.Tree = _tree;
        var hasShared = false;
        while (true)
        {
            var leaf = _path.OwnedLeafBefore(key);
            var found = false;
            index = leaf == null ? TreePage.LowerBound(leaf = OwnLeafOf(root, key), key, out found) : Page.Count(leaf);
            if (found)
            {
                isSame = inlineBytes >= 0 && TreePage.InlineLength(Page.Cell(leaf, index)) == inlineBytes;
                if (isSame)
                    return leaf;
                RemoveEntry(root, leaf, index);
            }
            if (_rebalancing.MakeRoom(leaf, index, key, bytes, out var breaksPrefix))
                return leaf;
            // Redistributed at most once: afterwards there is space in the page that the key then belongs to.
            var run = RunBefore(leaf, index);
            if (index < Page.Count(leaf) && 2 * run > Page.Count(leaf))
                _rebalancing.SplitBehindRun(root, leaf, index, key, run);
            else if (breaksPrefix || hasShared || _rebalancing.IsGrowingEdge(leaf, index) || !_rebalancing.TryRedistribute(index, key, bytes))
                _rebalancing.SplitLeaf(root, leaf, index, key, bytes, breaksPrefix);
            else
                hasShared = true;
        }
    }

    private void RemoveEntry(TreeRoot* root, byte* leaf, int index)
    {
        _removal.RetireValue(leaf, index);
        TreePage.Remove(leaf, index);
        root->Count--;
    }

    /// <summary>Merges the underfull pages between the root and the leaf of a key, whose neighbours are gone, as far as that is possible.</summary>
    private void MergeNextTo(TreeRoot* root, ReadOnlySpan<byte> key)
    {
        do
            GoTo(root, key);
        while (!_path.IsEmpty && MergeOne(root));
    }

    /// <summary>Merges the lowest underfull page of the path that can be merged. False if there is none.</summary>
    private bool MergeOne(TreeRoot* root)
    {
        for (var level = _path.LeafLevel; level >= 0; level--)
        {
            if (!_rebalancing.IsUnderfull(level))
                continue;
            OwnTo(root, level);
            if (!_rebalancing.Shrink(root, level))
                continue;
            _path.Clear();
            return true;
        }
        return false;
    }

    /// <summary>
    /// Makes the path lead to the leaf of a key, and copies all its pages that this batch does not own yet. The leaf is copied before it is searched, which
    /// takes less time than the other way around, because the copy is in the processor's cache then.
    /// </summary>
    private byte* OwnLeafOf(TreeRoot* root, ReadOnlySpan<byte> key)
    {
        OwnBranchesOf(root, key);
        return OwnLeaf(root);
    }

    /// <summary>Makes the path lead to the leaf of a key, and copies all its branches that this batch does not own yet, or a leaf that is the root.</summary>
    private void OwnBranchesOf(TreeRoot* root, ReadOnlySpan<byte> key)
    {
        _pages.Tree = _tree;
        if (_path.Covers(key))
        {
            OwnTo(root, _path.LeafLevel - 1);
            return;
        }
        Descents++;
        var page = OwnRoot(root);
        _path.Begin(page);
        _path.Own(page);
        while (Page.Type(page) == PageType.Branch)
        {
            var index = TreePage.FindChild(page, key);
            var link = TreePage.Child(page, index);
            page = _space.ResolveNode(link);
            var isBranch = Page.Type(page) == PageType.Branch;
            if (isBranch)
                page = _pages.CopyOnWrite(link);
            _path.Descend(index, page);
            if (isBranch)
                _path.Own(page);
        }
    }

    private void OwnTo(TreeRoot* root, int levelLast)
    {
        _pages.Tree = _tree;
        for (var level = _path.OwnedLevels; level <= levelLast; level++)
            _path.Own(level == 0 ? OwnRoot(root) : _pages.OwnChild(_path.PageAt(level - 1), _path.ChildAt(level - 1)));
    }

    /// <summary>The topmost page of a tree, copied unless this batch owns it. The first leaf of an empty tree is made.</summary>
    private byte* OwnRoot(TreeRoot* root)
    {
        if (!root->Link.Reference.IsNone)
            return _pages.CopyOnWrite(&root->Link);
        var first = _pages.MakeEmpty(PageType.Leaf);
        root->Link = new PageLink(PageRef.ToScratch(first), 0);
        return first;
    }
}
