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
    private readonly TreeRoot[] _trees = new TreeRoot[StoreRoot.TreesMax];

    /// <summary>The store's only batch, which is reopened for each transaction.</summary>
    public WriteBatch(PageSpace space, ScratchPool pool)
    {
        _space = space;
        _pages = new BatchPages(space, pool);
        _rebalancing = new Rebalancing(space, _pages, _path);
    }

    /// <summary>Whether the batch is open for changes.</summary>
    public bool IsOpen { get; private set; }

    /// <summary>Opens the batch on a root. The number must be higher than any before.</summary>
    internal void Open(StoreRoot root, ulong number, SealedBatch changes)
    {
        Invariant.Check(!IsOpen, $"A batch was opened while batch {_pages.Number} was open.");
        root.Trees.CopyTo(_trees, 0);
        _pages.Open(number, changes);
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
            var leaf = DescendToChange(ref root, key);
            var index = TreePage.LowerBound(leaf, key, out var found);
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
                root.Count++;
                return;
            }
            // At most once: afterwards there is space in the page that the key then belongs to.
            if (breaksPrefix || hasShared || (index == Page.Count(leaf) && _path.IsRightEdge(_path.LeafLevel)) || !_rebalancing.TryRedistribute(index, key, bytes))
                _rebalancing.SplitLeaf(ref root, leaf, index, key, bytes, breaksPrefix);
            else
                hasShared = true;
        }
    }

    /// <summary>Removes a key; returns whether it existed.</summary>
    public bool Delete(TreeId tree, ReadOnlySpan<byte> key)
    {
        if (!TryGet(tree, key, out _))
            return false;
        ref var root = ref _trees[(int)tree];
        var leaf = DescendToChange(ref root, key);
        var index = TreePage.LowerBound(leaf, key, out var found);
        Invariant.Check(found, $"A key that was found in tree {tree} is missing from the page copied for its removal.");
        RemoveEntry(ref root, leaf, index);
        _rebalancing.Shrink(ref root, _path.LeafLevel);
        return true;
    }

    /// <summary>The value of a key as this batch sees it. Valid until the batch changes anything.</summary>
    public bool TryGet(TreeId tree, ReadOnlySpan<byte> key, out ReadOnlySpan<byte> value)
    {
        CheckOpenAndKey(key);
        fixed (TreeRoot* root = &_trees[(int)tree])
            return Lookup.TryGet(_space, root, key, out value);
    }

    /// <summary>Iterates over a tree's keys within bounds as this batch sees them. The batch must not change before the cursor is disposed.</summary>
    public Cursor Cursor(TreeId tree, ReadOnlySpan<byte> lower, ReadOnlySpan<byte> upper)
    {
        Invariant.Check(IsOpen, $"A batch that is not open was read.");
        return new Cursor(_space, _trees[(int)tree], lower, upper);
    }

    /// <summary>Closes the batch and returns its changes: a state that is not published yet.</summary>
    internal SealedBatch End(UInt128 etag)
    {
        Invariant.Check(IsOpen, $"A batch that is not open was sealed as {etag}.");
        IsOpen = false;
        _pages.Changes.Root = new StoreRoot(etag, _pages.Number, [.. _trees]);
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
            _pages.Retire(run->Reference, _space.ResolveRun(run, TreePage.OverflowLength(run)));
        TreePage.Remove(leaf, index);
        root.Count--;
    }

    /// <summary>Copies all pages from the root to the key's leaf that this batch does not own yet. They and the child indexes form the path.</summary>
    private byte* DescendToChange(ref TreeRoot root, ReadOnlySpan<byte> key)
    {
        byte* page;
        if (root.Link.Reference.IsNone)
        {
            page = _pages.MakeEmpty(PageType.Leaf);
            root.Link = new PageLink(_space.ScratchReference(page), 0);
        }
        else
        {
            fixed (TreeRoot* place = &root)
                page = _pages.CopyOnWrite(&place->Link);
        }
        _path.Begin(page);
        while (Page.Type(page) == PageType.Branch)
        {
            var index = TreePage.FindChild(page, key);
            page = _pages.OwnChild(page, index);
            _path.Descend(index, page);
        }
        return page;
    }
}
