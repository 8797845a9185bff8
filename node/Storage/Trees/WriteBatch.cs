using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Changes on top of the newest state, invisible to others until published. Only one is open at a time; writer only. After an exception only
/// <see cref="EndUnsealed"/> may be called. An exception means a corrupt page or a broken invariant, both of which stop the engine, or an argument out of
/// range, which is checked before anything changes.
/// </summary>
/// <remarks>Each page that a batch changes is copied once into scratch memory, from the root down, and then changed in place.</remarks>
internal sealed unsafe class WriteBatch
{
    private readonly PageSpace _space;
    private readonly BatchPages _pages;
    private readonly TreePath _path = new();
    private readonly Rebalancing _rebalancing;
    private readonly RangeRemoval _removal;
    private readonly TreeRoot[] _trees = new TreeRoot[StoreRoot.TreesMax];

    /// <summary>The store's only batch, which is reopened for each transaction.</summary>
    public WriteBatch(PageSpace space, ScratchPool pool)
    {
        _space = space;
        _pages = new BatchPages(space, pool);
        _rebalancing = new Rebalancing(space, _pages, _path);
        _removal = new RangeRemoval(space, _pages);
    }

    /// <summary>Whether the batch is open for changes.</summary>
    public bool IsOpen { get; private set; }

    /// <summary>The shard time of the state that it makes, in microseconds since 1970. Whoever applies a record sets it.</summary>
    public long ShardTime { get; set; }

    /// <summary>Replaces references in earlier batches' pages, between batches and before one copies them; null while nothing does.</summary>
    internal ReferenceSwap? Swap
    {
        get => _pages.Swap;
        set => _pages.Swap = value;
    }

    /// <summary>Scratch pages and runs that it has made and still uses.</summary>
    public int PagesMade => _pages.Changes.Made.Count;

    /// <summary>Opens the batch on a root. The number must be higher than any before.</summary>
    internal void Open(StoreRoot root, ulong number, SealedBatch changes)
    {
        Invariant.Check(!IsOpen, $"A batch was opened while batch {_pages.Number} was open.");
        root.Trees.CopyTo(_trees, 0);
        ShardTime = root.ShardTime;
        _pages.Open(number, changes);
        _path.Clear();
        IsOpen = true;
    }

    /// <summary>Sets a key's value.</summary>
    public void Put(TreeId tree, ReadOnlySpan<byte> key, ReadOnlySpan<byte> value) => Put(tree, key, value, default);

    /// <summary>Sets a key's value, passed in two parts. A key has 1 to 2,048 bytes; a value at most 8 MiB plus 64 bytes.</summary>
    public void Put(TreeId tree, ReadOnlySpan<byte> key, ReadOnlySpan<byte> header, ReadOnlySpan<byte> body)
    {
        CheckOpenAndKey(key);
        var length = header.Length + body.Length;
        ArgumentOutOfRangeException.ThrowIfGreaterThan(length, Page.ValueBytesMax, nameof(body));
        var overflow = TreePage.IsOverflow(key.Length, length);
        var run = overflow ? _pages.MakeRun(header, body) : default;
        var bytes = TreePage.LeafEntryBytes(key.Length, length, overflow);
        var hasShared = false;
        ref var root = ref _trees[(int)tree];
        while (true)
        {
            var leaf = _path.OwnedLeafBefore(tree, key);
            var found = false;
            var index = leaf == null ? TreePage.LowerBound(leaf = OwnLeafOf(tree, key), key, out found) : Page.Count(leaf);
            if (found)
            {
                if (!overflow && !TreePage.IsOverflow(leaf, index, out _) && TreePage.Value(_space, leaf, index) is var old && old.Length == length)
                {
                    fixed (byte* place = old)
                        Fill(new Span<byte>(place, length), header, body);
                    return;
                }
                RemoveEntry(ref root, leaf, index);
            }
            if (_rebalancing.MakeRoom(leaf, index, key, bytes, out var breaksPrefix))
            {
                if (overflow)
                    TreePage.InsertOverflow(leaf, index, key, (uint)length, new PageLink(run, 0));
                else
                    Fill(TreePage.InsertInline(leaf, index, key, length), header, body);
                Page.Appended(leaf) = (ushort)(index == Page.Count(leaf) - 1 ? Page.Appended(leaf) + 1 : 0);
                root.Count++;
                return;
            }
            // At most once: afterwards there is space in the page that the key then belongs to.
            if (breaksPrefix || hasShared || _rebalancing.IsGrowingEdge(leaf, index) || !_rebalancing.TryRedistribute(index, key, bytes))
                _rebalancing.SplitLeaf(ref root, leaf, index, key, bytes, breaksPrefix);
            else
                hasShared = true;
            _path.Clear();
        }
    }

    /// <summary>Removes a key; returns whether it existed.</summary>
    public bool Delete(TreeId tree, ReadOnlySpan<byte> key)
    {
        CheckOpenAndKey(key);
        var index = Find(tree, key, out var found);
        if (!found)
            return false;
        var leaf = OwnLeaf();
        ref var root = ref _trees[(int)tree];
        RemoveEntry(ref root, leaf, index);
        if (_rebalancing.Shrink(ref root, _path.LeafLevel))
            _path.Clear();
        return true;
    }

    /// <summary>
    /// Removes all keys from <paramref name="from"/> on (empty: from the first) up to <paramref name="to"/>, which stays (empty: to the end), and returns their
    /// number. Pages within the range are read, but not copied.
    /// </summary>
    public ulong DeleteRange(TreeId tree, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        Invariant.Check(IsOpen, $"A batch that is not open was used.");
        if (!to.IsEmpty && from.SequenceCompareTo(to) >= 0)
            return 0;
        _path.Clear();
        ulong removed;
        fixed (TreeRoot* root = &_trees[(int)tree])
        {
            removed = _removal.Remove(root, from, to);
            root->Count -= removed;
        }
        if (removed == 0)
            return 0;
        MergeNextTo(tree, from);
        if (!to.IsEmpty)
            MergeNextTo(tree, to);
        return removed;
    }

    /// <summary>Where a part of a range ends that <see cref="DeleteRange"/> can delete alone.</summary>
    /// <inheritdoc cref="RangeRemoval.EndOfPart"/>
    public ReadOnlySpan<byte> EndOfPart(TreeId tree, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to, ref int leavesLeft, Span<byte> buffer)
    {
        fixed (TreeRoot* root = &_trees[(int)tree])
            return _removal.EndOfPart(root, from, to, ref leavesLeft, buffer);
    }

    /// <summary>The value of a key as this batch sees it. Valid until the batch changes anything.</summary>
    public bool TryGet(TreeId tree, ReadOnlySpan<byte> key, out ReadOnlySpan<byte> value)
    {
        CheckOpenAndKey(key);
        var index = Find(tree, key, out var found);
        // Not found in an empty tree, whose path has no leaf.
        value = found ? TreePage.Value(_space, _path.Leaf, index) : default;
        return found;
    }

    /// <summary>Iterates over a tree's keys within bounds as this batch sees them. The batch must not change before the cursor is disposed.</summary>
    public Cursor Cursor(TreeId tree, ReadOnlySpan<byte> lower, ReadOnlySpan<byte> upper)
    {
        Invariant.Check(IsOpen, $"A batch that is not open was read.");
        return new Cursor(_space, _trees[(int)tree], lower, upper);
    }

    /// <summary>Closes the batch and returns its changes: a state that is not published yet.</summary>
    internal SealedBatch End(Etag etag)
    {
        Invariant.Check(IsOpen, $"A batch that is not open was sealed as {etag}.");
        IsOpen = false;
        _pages.Changes.Root = new StoreRoot(etag, ShardTime, _pages.Number, [.. _trees]);
        return _pages.Changes;
    }

    /// <summary>Closes the batch and returns its changes, which nothing refers to.</summary>
    internal SealedBatch EndUnsealed()
    {
        Invariant.Check(IsOpen, $"A batch that is not open was aborted.");
        IsOpen = false;
        return _pages.Changes;
    }

    private static void Fill(Span<byte> place, ReadOnlySpan<byte> header, ReadOnlySpan<byte> body)
    {
        header.CopyTo(place);
        body.CopyTo(place[header.Length..]);
    }

    private void CheckOpenAndKey(ReadOnlySpan<byte> key)
    {
        Invariant.Check(IsOpen, $"A batch that is not open was used.");
        if (key.Length is 0 or > Page.KeyBytesMax)
            throw new ArgumentOutOfRangeException(nameof(key), key.Length, $"A key must have 1 to {Page.KeyBytesMax} bytes.");
    }

    private void RemoveEntry(ref TreeRoot root, byte* leaf, int index)
    {
        if (TreePage.IsOverflow(leaf, index, out var run))
            _pages.RetireRun(run);
        TreePage.Remove(leaf, index);
        root.Count--;
    }

    /// <summary>Merges the underfull pages between the root and the leaf of a key, whose neighbours are gone, as far as that is possible.</summary>
    private void MergeNextTo(TreeId tree, ReadOnlySpan<byte> key)
    {
        do
            Find(tree, key, out _);
        while (!_path.IsEmpty && MergeOne(ref _trees[(int)tree]));
    }

    /// <summary>Merges the lowest underfull page of the path that can be merged. False if there is none.</summary>
    private bool MergeOne(ref TreeRoot root)
    {
        for (var level = _path.LeafLevel; level >= 0; level--)
        {
            if (!_rebalancing.IsUnderfull(level))
                continue;
            OwnTo(level);
            if (!_rebalancing.Shrink(ref root, level))
                continue;
            _path.Clear();
            return true;
        }
        return false;
    }

    /// <summary>
    /// Makes the path lead to the leaf of a key, and returns the key's position there. Nothing is copied. In an empty tree the path is empty.
    /// </summary>
    private int Find(TreeId tree, ReadOnlySpan<byte> key, out bool found)
    {
        if (!_path.Covers(tree, key))
        {
            _path.Clear();
            found = false;
            if (_trees[(int)tree].Link.Reference.IsNone)
                return 0;
            byte* page;
            fixed (TreeRoot* root = &_trees[(int)tree])
                page = _space.ResolveNode(&root->Link);
            for (_path.Begin(tree, page); Page.Type(page) == PageType.Branch;)
            {
                var index = TreePage.FindChild(page, key);
                page = _space.ResolveNode(TreePage.Child(page, index));
                _path.Descend(index, page);
            }
        }
        return TreePage.LowerBound(_path.Leaf, key, out found);
    }

    /// <summary>
    /// Makes the path lead to the leaf of a key, and copies all its pages that this batch does not own yet. The leaf is copied before it is searched, which
    /// takes less time than the other way around, because the copy is in the processor's cache then.
    /// </summary>
    private byte* OwnLeafOf(TreeId tree, ReadOnlySpan<byte> key)
    {
        if (_path.Covers(tree, key))
            return OwnLeaf();
        var page = OwnRoot(tree);
        _path.Begin(tree, page);
        for (_path.Own(page); Page.Type(page) == PageType.Branch; _path.Own(page))
        {
            var index = TreePage.FindChild(page, key);
            page = _pages.OwnChild(page, index);
            _path.Descend(index, page);
        }
        return page;
    }

    /// <summary>Copies the pages of the path that this batch does not own yet, and returns the leaf.</summary>
    private byte* OwnLeaf()
    {
        OwnTo(_path.LeafLevel);
        return _path.Leaf;
    }

    private void OwnTo(int levelLast)
    {
        for (var level = _path.OwnedLevels; level <= levelLast; level++)
            _path.Own(level == 0 ? OwnRoot(_path.Tree) : _pages.OwnChild(_path.PageAt(level - 1), _path.ChildAt(level - 1)));
    }

    /// <summary>The topmost page of a tree, copied unless this batch owns it. The first leaf of an empty tree is made.</summary>
    private byte* OwnRoot(TreeId tree)
    {
        fixed (TreeRoot* root = &_trees[(int)tree])
        {
            if (!root->Link.Reference.IsNone)
                return _pages.CopyOnWrite(&root->Link);
            var first = _pages.MakeEmpty(PageType.Leaf);
            root->Link = new PageLink(PageRef.ToScratch(first), 0);
            return first;
        }
    }
}
