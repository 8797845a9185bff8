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
    private readonly ScratchPool _pool;
    private readonly TreeRoot[] _trees = new TreeRoot[StoreRoot.TreesMax];
    private readonly nint[] _path = new nint[PageStructure.DepthMax];
    private readonly int[] _index = new int[PageStructure.DepthMax];
    private readonly byte[] _copy = GC.AllocateUninitializedArray<byte>(Page.Bytes, pinned: true);
    private readonly byte[] _secondCopy = GC.AllocateUninitializedArray<byte>(Page.Bytes, pinned: true);
    private SealedBatch _changes = null!;
    private ulong _number;
    private int _depth;

    /// <summary>The store's only batch, which is reopened for each transaction.</summary>
    public WriteBatch(PageSpace space, ScratchPool pool)
    {
        _space = space;
        _pool = pool;
    }

    /// <summary>Whether the batch is open for changes.</summary>
    public bool IsOpen { get; private set; }

    /// <summary>Opens the batch on a root. The number must be higher than any before.</summary>
    internal void Open(StoreRoot root, ulong number, SealedBatch changes)
    {
        Invariant.Check(!IsOpen, $"A batch was opened while batch {_number} was open.");
        root.Trees.CopyTo(_trees, 0);
        (_number, _changes, IsOpen) = (number, changes, true);
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
        var run = overflow ? MakeRun(header, body) : 0;
        var bytes = TreePage.LeafEntryBytes(key.Length, length, overflow);
        var hasShared = false;
        while (true)
        {
            var leaf = DescendToChange(tree, key);
            var index = TreePage.LowerBound(leaf, key, out var found);
            if (found)
            {
                if (!overflow && !TreePage.IsOverflow(leaf, index, out _) && TreePage.Value(_space, leaf, index) is var old && old.Length == length)
                {
                    fixed (byte* place = old)
                        Fill(new Span<byte>(place, length), header, body);
                    return;
                }
                RemoveEntry(tree, leaf, index);
            }
            if (MakeRoom(leaf, index, key, bytes, out var breaksPrefix))
            {
                if (overflow)
                    TreePage.InsertOverflow(leaf, index, key, (uint)length, run, 0);
                else
                    Fill(TreePage.InsertInline(leaf, index, key, length), header, body);
                _trees[(int)tree].Count++;
                return;
            }
            // At most once: afterwards there is space in the page that the key then belongs to.
            if (breaksPrefix || hasShared || (index == Page.Count(leaf) && IsRightEdge(_depth - 1)) || !TryRedistribute(index, key, bytes))
                SplitLeaf(tree, leaf, index, key, bytes, breaksPrefix);
            else
                hasShared = true;
        }
    }

    /// <summary>Removes a key; returns whether it existed.</summary>
    public bool Delete(TreeId tree, ReadOnlySpan<byte> key)
    {
        if (!TryGet(tree, key, out _))
            return false;
        var leaf = DescendToChange(tree, key);
        var index = TreePage.LowerBound(leaf, key, out var found);
        Invariant.Check(found, $"A key that was found in tree {tree} is missing from the page copied for its removal.");
        RemoveEntry(tree, leaf, index);
        Shrink(tree, _depth - 1);
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
        _changes.Root = new StoreRoot(etag, _number, [.. _trees]);
        return _changes;
    }

    /// <summary>Closes the batch and returns its changes, which nothing refers to.</summary>
    internal SealedBatch EndUnsealed()
    {
        Invariant.Check(IsOpen, $"A batch that is not open was aborted.");
        IsOpen = false;
        return _changes;
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

    // Pages: allocate, copy on write, retire.

    private byte* Make(int pages)
    {
        var page = _pool.Rent(pages);
        Track(page);
        return page;
    }

    private void Track(byte* page)
    {
        Page.Batch(page) = _number;
        Page.Placed(page) = 0;
        Page.ScratchIndex(page) = _changes.Made.Count;
        _changes.Made.Add((nint)page);
    }

    private byte* MakeEmpty(PageType type)
    {
        var page = _pool.Rent(1);
        Page.Format(page, type, default);
        Track(page);
        return page;
    }

    private ulong MakeRun(ReadOnlySpan<byte> header, ReadOnlySpan<byte> body)
    {
        var length = header.Length + body.Length;
        var page = Make(Page.RunPages(length));
        var (batch, index) = (Page.Batch(page), Page.ScratchIndex(page));
        new Span<byte>(page, Page.HeaderBytes).Clear();
        Page.Type(page) = PageType.Overflow;
        Page.ValueLength(page) = (uint)length;
        (Page.Batch(page), Page.ScratchIndex(page)) = (batch, index);
        Fill(new Span<byte>(page + Page.HeaderBytes, length), header, body);
        var end = page + Page.HeaderBytes + length;
        new Span<byte>(end, (int)(page + ((long)Page.RunPages(length) * Page.Bytes) - end)).Clear();
        return _space.ScratchReference(page);
    }

    /// <summary>The page behind a reference, which its checksum follows; copied unless it already belongs to this batch.</summary>
    private byte* CopyOnWrite(ulong* reference, uint* checksum)
    {
        var page = _space.ResolveNode(*reference, checksum);
        if (PageSpace.IsScratch(*reference) && Page.Batch(page) == _number)
            return page;
        var copy = _pool.Rent(1);
        Buffer.MemoryCopy(page, copy, Page.Bytes, Page.Bytes);
        Track(copy);
        Retire(*reference, page);
        *checksum = 0;
        *reference = _space.ScratchReference(copy);
        return copy;
    }

    private byte* OwnChild(byte* branch, int index)
    {
        var child = TreePage.Child(branch, index);
        return CopyOnWrite((ulong*)child, (uint*)(child + sizeof(ulong)));
    }

    /// <summary>Retires a page or run, which this batch's state no longer reaches.</summary>
    private void Retire(ulong reference, byte* page)
    {
        if (!PageSpace.IsScratch(reference))
        {
            var pages = Page.Type(page) == PageType.Overflow ? Page.RunPages(Page.ValueLength(page)) : 1;
            _changes.RetiredFilePages.Add(new PageRun(PageSpace.NumberOf(reference), pages));
            return;
        }
        if (Page.Batch(page) != _number)
        {
            _changes.RetiredScratch.Add((nint)page);
            return;
        }
        var made = _changes.Made;
        var index = Page.ScratchIndex(page);
        Invariant.Check(made[index] == (nint)page, $"A scratch page of batch {_number} has a wrong index.");
        made[index] = made[^1];
        Page.ScratchIndex((byte*)made[index]) = index;
        made.RemoveAt(made.Count - 1);
        _pool.Return(page);
    }

    private void RemoveEntry(TreeId tree, byte* leaf, int index)
    {
        if (TreePage.IsOverflow(leaf, index, out var child))
            Retire(*(ulong*)child, _space.ResolveRun(child, *(uint*)(child - sizeof(uint))));
        TreePage.Remove(leaf, index);
        _trees[(int)tree].Count--;
    }

    /// <summary>Copies all pages from the root to the key's leaf that this batch does not own yet. They and the child indexes form the path.</summary>
    private byte* DescendToChange(TreeId tree, ReadOnlySpan<byte> key)
    {
        ref var root = ref _trees[(int)tree];
        byte* page;
        if (root.Reference == 0)
        {
            page = MakeEmpty(PageType.Leaf);
            root.Reference = _space.ScratchReference(page);
        }
        else
        {
            fixed (TreeRoot* place = &root)
                page = CopyOnWrite(&place->Reference, &place->Checksum);
        }
        _path[0] = (nint)page;
        _depth = 1;
        while (Page.Type(page) == PageType.Branch)
        {
            var index = TreePage.FindChild(page, key);
            _index[_depth - 1] = index;
            page = OwnChild(page, index);
            _path[_depth++] = (nint)page;
        }
        return page;
    }

    // Space: rebuild, redistribute, split.

    /// <summary>Makes space for an entry of this size, by changing the prefix or removing garbage. False if the page must be split.</summary>
    private bool MakeRoom(byte* page, int index, ReadOnlySpan<byte> key, int bytes, out bool breaksPrefix)
    {
        breaksPrefix = !key.StartsWith(Page.Prefix(page));
        if (!breaksPrefix && Page.Gap(page) >= bytes)
            return true;
        var count = Page.Count(page);
        var prefixLength = Page.PrefixLength(page);
        var prefixNext = PrefixWith(page, key);
        if (breaksPrefix && Page.Used(page) + bytes + (count * (prefixLength - prefixNext + 8)) > Page.BodyBytes)
            return false;
        if (!breaksPrefix && prefixNext <= prefixLength && Page.Gap(page) + Page.Garbage(page) < bytes)
            return false;
        Rebuild(page, prefixNext);
        return Page.Gap(page) >= bytes;
    }

    /// <summary>The length of the prefix that a page's keys share with another key.</summary>
    private static int PrefixWith(byte* page, ReadOnlySpan<byte> key)
    {
        var first = Page.Type(page) == PageType.Branch ? 1 : 0;
        int count = Page.Count(page);
        if (count <= first)
            return 0;
        Span<byte> other = stackalloc byte[Page.KeyBytesMax];
        var common = key.CommonPrefixLength(other[..TreePage.CopyKey(page, first, other)]);
        return Math.Min(common, key.CommonPrefixLength(other[..TreePage.CopyKey(page, count - 1, other)]));
    }

    private byte* CopyOf(byte* page)
    {
        new ReadOnlySpan<byte>(page, Page.Bytes).CopyTo(_copy);
        fixed (byte* copy = _copy)
            return copy;
    }

    private void Rebuild(byte* page, int prefixMax) => TreePage.Rebuild(page, CopyOf(page), 0, Page.Count(page), prefixMax);

    /// <summary>
    /// Redistributes the entries of the path's full leaf with a sibling that has space, which keeps pages fuller than splitting alone. If less than an
    /// eighth of the page is free there, it is not worth the work.
    /// </summary>
    private bool TryRedistribute(int at, ReadOnlySpan<byte> key, int bytes)
    {
        if (_depth < 2)
            return false;
        var parent = (byte*)_path[_depth - 2];
        var index = _index[_depth - 2];
        return (index + 1 < Page.Count(parent) && TryRedistribute(parent, index, index + 1, at, key, bytes))
            || (index > 0 && TryRedistribute(parent, index - 1, index - 1, at, key, bytes));
    }

    /// <summary>
    /// Redistributes the entries of two adjacent leaves, counting the incoming one, if the sibling that is checked has space. The path is invalid
    /// afterwards.
    /// </summary>
    private bool TryRedistribute(byte* parent, int left, int asked, int index, ReadOnlySpan<byte> key, int bytes)
    {
        var sibling = _space.ResolveNode(TreePage.Child(parent, asked));
        if (Page.BodyBytes - Page.Used(sibling) < bytes + (Page.BodyBytes / 8))
            return false;
        byte* one = OwnChild(parent, left), other = OwnChild(parent, left + 1);
        Span<byte> separator = stackalloc byte[Page.KeyBytesMax];
        fixed (byte* first = _copy, second = _secondCopy)
        {
            Buffer.MemoryCopy(one, first, Page.Bytes, Page.Bytes);
            Buffer.MemoryCopy(other, second, Page.Bytes, Page.Bytes);
            var place = asked == left ? Page.Count(first) + index : index;
            if (PageSplit.TryRedistribute(first, second, place, key, bytes, one, other, separator, out var length)
                // The parent's prefix holds for all keys between two of its separators, but not necessarily for keys before the first or after the last.
                && separator[..length].StartsWith(Page.Prefix(parent)) && Page.Gap(parent) + Page.EntryBytes >= TreePage.BranchEntryBytes(length))
            {
                TreePage.ReplaceKey(parent, left + 1, separator[..length]);
                return true;
            }
            Buffer.MemoryCopy(first, one, Page.Bytes, Page.Bytes);
            Buffer.MemoryCopy(second, other, Page.Bytes, Page.Bytes);
            return false;
        }
    }

    private void SplitLeaf(TreeId tree, byte* leaf, int index, ReadOnlySpan<byte> key, int bytes, bool breaksPrefix)
    {
        int count = Page.Count(leaf);
        Span<byte> neighbour = stackalloc byte[Page.KeyBytesMax];
        var right = MakeEmpty(PageType.Leaf);
        if (index == count && (breaksPrefix || IsRightEdge(_depth - 1)))
        {
            // Keys arrive in order: the page stays full, and the key starts the next one.
            neighbour = neighbour[..TreePage.CopyKey(leaf, count - 1, neighbour)];
            InsertSibling(tree, _depth - 1, PageSplit.Separator(neighbour, key), right);
            return;
        }
        if (index == 0 && breaksPrefix)
        {
            TreePage.Rebuild(right, leaf, 0, count, Page.KeyBytesMax);
            Page.Format(leaf, PageType.Leaf, default, keepOwner: true);
            neighbour = neighbour[..TreePage.CopyKey(right, 0, neighbour)];
            InsertSibling(tree, _depth - 1, PageSplit.Separator(key, neighbour), right);
            return;
        }
        var separatorLength = PageSplit.Leaf(CopyOf(leaf), index, key, bytes, leaf, right, neighbour);
        InsertSibling(tree, _depth - 1, neighbour[..separatorLength], right);
    }

    private bool IsRightEdge(int level)
    {
        for (var i = 0; i < level; i++)
        {
            if (_index[i] != Page.Count((byte*)_path[i]) - 1)
                return false;
        }
        return true;
    }

    /// <summary>Inserts a page to the right of the path's page at this level. The path is invalid afterwards.</summary>
    private void InsertSibling(TreeId tree, int level, ReadOnlySpan<byte> separator, byte* right)
    {
        var reference = _space.ScratchReference(right);
        if (level == 0)
        {
            var top = MakeEmpty(PageType.Branch);
            ref var root = ref _trees[(int)tree];
            TreePage.InsertChild(top, 0, default, root.Reference, root.Checksum);
            TreePage.InsertChild(top, 1, separator, reference, 0);
            (root.Reference, root.Checksum) = (_space.ScratchReference(top), 0);
            return;
        }
        var branch = (byte*)_path[level - 1];
        var index = _index[level - 1] + 1;
        if (MakeRoom(branch, index, separator, TreePage.BranchEntryBytes(separator.Length), out var breaksPrefix))
            TreePage.InsertChild(branch, index, separator, reference, 0);
        else
            SplitBranch(tree, level - 1, index, separator, reference, breaksPrefix);
    }

    private void SplitBranch(TreeId tree, int level, int index, ReadOnlySpan<byte> separator, ulong reference, bool breaksPrefix)
    {
        var branch = (byte*)_path[level];
        int count = Page.Count(branch);
        var right = MakeEmpty(PageType.Branch);
        if (index == count && (breaksPrefix || IsRightEdge(level)))
        {
            TreePage.InsertChild(right, 0, default, reference, 0);
            InsertSibling(tree, level, separator, right);
            return;
        }
        var copy = CopyOf(branch);
        if (breaksPrefix)
        {
            // Only the first separator can be less than the common prefix. The child before it stays alone, and the new child becomes the first of the rest.
            Invariant.Check(index == 1, $"The separator at index {index} of a branch with {count} entries breaks the prefix, which only the one at index 1 may do.");
            Page.Format(right, PageType.Branch, Page.Prefix(copy), keepOwner: true);
            TreePage.InsertChild(right, 0, default, reference, 0);
            TreePage.Append(right, copy, 1, count);
            TreePage.Rebuild(branch, copy, 0, 1, 0);
            InsertSibling(tree, level, separator, right);
            return;
        }
        Span<byte> up = stackalloc byte[Page.KeyBytesMax];
        var upLength = PageSplit.Branch(copy, index, separator, reference, branch, right, up);
        InsertSibling(tree, level, up[..upLength], right);
    }

    // Shrinking: empty pages are removed, pages less than a quarter full are merged with a sibling, and a root with one child is replaced by it.

    private void Shrink(TreeId tree, int level)
    {
        var page = (byte*)_path[level];
        if (Page.Count(page) == 0)
        {
            RemovePage(tree, level);
            return;
        }
        if (level == 0)
            Collapse(tree);
        else if (Page.Used(page) < Page.BodyBytes / 4)
            Merge(tree, level);
    }

    private void RemovePage(TreeId tree, int level)
    {
        var page = (byte*)_path[level];
        Retire(_space.ScratchReference(page), page);
        if (level == 0)
        {
            (_trees[(int)tree].Reference, _trees[(int)tree].Checksum) = (0, 0);
            return;
        }
        TreePage.Remove((byte*)_path[level - 1], _index[level - 1]);
        Shrink(tree, level - 1);
    }

    private void Collapse(TreeId tree)
    {
        fixed (TreeRoot* root = &_trees[(int)tree])
        {
            while (true)
            {
                var page = _space.ResolveNode(root->Reference, &root->Checksum);
                if (Page.Type(page) != PageType.Branch || Page.Count(page) > 1)
                    return;
                var child = TreePage.Child(page, 0);
                var (reference, checksum, left) = (*(ulong*)child, *(uint*)(child + sizeof(ulong)), root->Reference);
                (root->Reference, root->Checksum) = (reference, checksum);
                Retire(left, page);
            }
        }
    }

    private void Merge(TreeId tree, int level)
    {
        var parent = (byte*)_path[level - 1];
        var index = _index[level - 1];
        if (!(index + 1 < Page.Count(parent) && TryMerge(parent, index)) && !(index > 0 && TryMerge(parent, index - 1)))
            return;
        Shrink(tree, level - 1);
    }

    /// <summary>Merges a child's right sibling into it if together they fill at most three quarters of a page.</summary>
    private bool TryMerge(byte* parent, int index)
    {
        var rightChild = TreePage.Child(parent, index + 1);
        var rightReference = *(ulong*)rightChild;
        var left = _space.ResolveNode(TreePage.Child(parent, index));
        var right = _space.ResolveNode(rightChild);
        Span<byte> separator = stackalloc byte[Page.KeyBytesMax];
        separator = separator[..TreePage.CopyKey(parent, index + 1, separator)];
        fixed (byte* joined = _secondCopy)
        {
            if (!PageSplit.TryMerge(left, right, separator, joined))
                return false;
            left = OwnChild(parent, index);
            // Keep the fields that tie the page to its batch.
            var (scratchIndex, batch, placed) = (Page.ScratchIndex(left), Page.Batch(left), Page.Placed(left));
            Buffer.MemoryCopy(joined, left, Page.Bytes, Page.Bytes);
            (Page.ScratchIndex(left), Page.Batch(left), Page.Placed(left)) = (scratchIndex, batch, placed);
        }
        Retire(rightReference, right);
        TreePage.Remove(parent, index + 1);
        return true;
    }
}
