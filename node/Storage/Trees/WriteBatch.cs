using System.Runtime.CompilerServices;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Changes on top of the newest state, invisible to others until published. Only one is open at a time; writer only. After an exception only
/// <see cref="EndUnsealed"/> may be called. An exception means a corrupt page or a broken invariant, both of which stop the engine, or an argument out of
/// range, which is checked before anything changes.
/// </summary>
/// <remarks>How trees are changed is in <see cref="TreeWriter"/>, how sets are in <see cref="SetWriter"/>.</remarks>
internal sealed unsafe class WriteBatch
{
    private readonly PageSpace _space;
    private readonly BatchPages _pages;
    private readonly TreeWriter[] _writers = new TreeWriter[Enum.GetValues<TreeId>().Length];
    private readonly SetWriter _sets;
    private readonly TreeRoot[] _trees = GC.AllocateArray<TreeRoot>(StoreRoot.TreesMax, pinned: true);

    /// <summary>The store's only batch, which is reopened for each transaction.</summary>
    /// <param name="space">Resolves references.</param>
    /// <param name="pool">Provides the memory of pages.</param>
    /// <param name="deltas">The leaves that may become deltas.</param>
    /// <param name="dividesValues">See <c>PageStoreOptions.DividesValues</c>.</param>
    /// <param name="compression">Compresses values of the tree <c>kv</c>; null if the store has them as they are.</param>
    public WriteBatch(PageSpace space, ScratchPool pool, LeafDeltas deltas, bool dividesValues, ValueCompression? compression)
    {
        _space = space;
        _pages = new BatchPages(space, pool, deltas, dividesValues, compression);
        for (var tree = 0; tree < _writers.Length; tree++)
            _writers[tree] = new TreeWriter(space, _pages, tree);
        _sets = new SetWriter(space, Writer(TreeId.Sets), new TreeWriter(space, _pages, tree: -1));
    }

    /// <summary>Whether the batch is open for changes.</summary>
    public bool IsOpen { get; private set; }

    /// <summary>The shard time of the state that it makes, in microseconds. Whoever applies a record sets it.</summary>
    public long ShardTime { get; set; }

    /// <summary>The wall time of the state that it makes, likewise; 0 if no record has one.</summary>
    public long WallTime { get; set; }

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
        (ShardTime, WallTime) = (root.ShardTime, root.WallTime);
        _pages.Open(number, changes);
        foreach (var writer in _writers)
            writer.Forget();
        _sets.Forget();
        IsOpen = true;
    }

    /// <summary>Sets a key's value.</summary>
    public void Put(TreeId tree, ReadOnlySpan<byte> key, ReadOnlySpan<byte> value) => Put(tree, key, value, default);

    /// <summary>
    /// Sets a key's value, passed in two parts, in any tree but that of the sets. A key has 1 to 2,048 bytes; a value at most 8 MiB plus 64 bytes. Only the
    /// second part may be compressed: the first is what <see cref="TryGetBeginning"/> is for.
    /// </summary>
    public void Put(TreeId tree, ReadOnlySpan<byte> key, ReadOnlySpan<byte> header, ReadOnlySpan<byte> body)
    {
        CheckOpenAndKey(key);
        Invariant.Check(tree != TreeId.Sets, $"A value was put into the tree of the sets.");
        ArgumentOutOfRangeException.ThrowIfGreaterThan(header.Length + body.Length, Page.ValueBytesMax, nameof(body));
        Writer(tree).Put(Root(tree), key, header, body);
    }

    /// <summary>
    /// Sets the values of keys one after the other. As long as the keys ascend, and all belong between two that the tree has, or behind its last one, whole
    /// leaves are filled without a search.
    /// </summary>
    public void PutAll<TSource>(TreeId tree, ref TSource puts)
        where TSource : IPutSource, allows ref struct
    {
        for (var more = true; more;)
        {
            Put(tree, puts.Key, puts.Header, puts.Body);
            if (TSource.Ascends)
                Writer(tree).PrefetchBehind();
            more = puts.MoveNext() && Writer(tree).Append(Root(tree), ref puts);
        }
    }

    /// <summary>Removes a key of any tree but that of the sets; returns whether it existed.</summary>
    public bool Delete(TreeId tree, ReadOnlySpan<byte> key)
    {
        CheckOpenAndKey(key);
        Invariant.Check(tree != TreeId.Sets, $"A set was removed as a key without members.");
        return Writer(tree).Delete(Root(tree), key);
    }

    /// <summary>
    /// Removes all keys from <paramref name="from"/> on (empty: from the first) up to <paramref name="to"/>, which stays (empty: to the end), and returns their
    /// number. Pages within the range are not copied, and most of those in the file are not read (<see cref="RangeRemoval"/>).
    /// </summary>
    public ulong DeleteRange(TreeId tree, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        Invariant.Check(IsOpen, $"A batch that is not open was used.");
        if (tree == TreeId.Sets)
            _sets.Forget();
        return Writer(tree).DeleteRange(Root(tree), from, to);
    }

    /// <summary>Where a part of a range ends that <see cref="DeleteRange"/> can delete alone.</summary>
    /// <inheritdoc cref="RangeRemoval.EndOfPart"/>
    public ReadOnlySpan<byte> EndOfPart(TreeId tree, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to, ref RangeAllowance allowance, Span<byte> buffer) =>
        Writer(tree).EndOfPart(Root(tree), from, to, ref allowance, buffer);

    /// <summary>The number of keys from one (empty: the first) up to another, which is not counted (empty: the end), as this batch sees them.</summary>
    /// <inheritdoc cref="RangeCount"/>
    public ulong CountRange(TreeId tree, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        Invariant.Check(IsOpen, $"A batch that is not open was read.");
        return RangeCount.Of(_space, Root(tree), from, to);
    }

    /// <summary>How many keys a tree has as this batch sees it.</summary>
    public ulong KeysOf(TreeId tree) => _trees[(int)tree].Count;

    /// <summary>The value of a key as this batch sees it. Valid until the batch changes anything.</summary>
    public bool TryGet(TreeId tree, ReadOnlySpan<byte> key, out ReadOnlySpan<byte> value)
    {
        CheckOpenAndKey(key);
        var cell = Writer(tree).Find(Root(tree), key);
        value = cell == null ? default : TreePage.CellValue(_space, cell);
        return cell != null;
    }

    /// <summary>
    /// At least so many of the first bytes of a key's value, or all if it has fewer. For who needs no more than the header of a value: of a divided one the
    /// run is mostly not looked at, and of a compressed one this is the header with which it was put. Valid until the batch changes anything.
    /// </summary>
    public bool TryGetBeginning(TreeId tree, ReadOnlySpan<byte> key, int bytesLeast, out ReadOnlySpan<byte> beginning)
    {
        CheckOpenAndKey(key);
        var cell = Writer(tree).Find(Root(tree), key);
        beginning = cell == null ? default : TreePage.CellBeginning(_space, cell, bytesLeast);
        return cell != null;
    }

    /// <summary>The length of a key's value as this batch sees it, without a look at its run. False, and 0, if there is no such key.</summary>
    public bool TryGetLength(TreeId tree, ReadOnlySpan<byte> key, out int bytes)
    {
        CheckOpenAndKey(key);
        var cell = Writer(tree).Find(Root(tree), key);
        bytes = cell == null ? 0 : TreePage.CellValueLength(cell);
        return cell != null;
    }

    /// <summary>
    /// Adds a member to the set of a key, and makes the set if there is none. Returns whether it was not there; the set then has this etag. A member has 1
    /// to 2,048 bytes, like a key.
    /// </summary>
    public bool SetAdd(ReadOnlySpan<byte> key, ReadOnlySpan<byte> member, Etag etag)
    {
        CheckOpenAndKey(key);
        CheckOpenAndKey(member);
        return _sets.Add(Root(TreeId.Sets), key, member, etag);
    }

    /// <summary>Removes a member from the set of a key, and the key with the last one. Returns whether it was there; the set then has this etag.</summary>
    public bool SetRemove(ReadOnlySpan<byte> key, ReadOnlySpan<byte> member, Etag etag)
    {
        CheckOpenAndKey(key);
        CheckOpenAndKey(member);
        return _sets.Remove(Root(TreeId.Sets), key, member, etag);
    }

    /// <summary>
    /// Removes the members of a set before one, which stays (empty: all members, and the set with them), and returns their number. The set that is left has
    /// this etag. Of a set that goes as a whole, the branches are read, and one leaf; of one that loses a part, also the leaves of that part that are in
    /// memory, to count their members.
    /// </summary>
    public ulong SetDelete(ReadOnlySpan<byte> key, ReadOnlySpan<byte> end, Etag etag)
    {
        CheckOpenAndKey(key);
        return _sets.RemoveBefore(Root(TreeId.Sets), key, end, etag);
    }

    /// <summary>Where a part of a large set ends that <see cref="SetDelete"/> can delete alone; empty at the end of the set.</summary>
    /// <inheritdoc cref="RangeRemoval.EndOfPart"/>
    public ReadOnlySpan<byte> EndOfSetPart(ReadOnlySpan<byte> key, ref RangeAllowance allowance, Span<byte> buffer)
    {
        Invariant.Check(TryGetSet(key, out var set) && set.IsPromoted, $"A part of a set without a tree was looked for.");
        var tree = set.Tree;
        return Writer(TreeId.Sets).EndOfPart(&tree, default, default, ref allowance, buffer);
    }

    /// <summary>The set of a key as this batch sees it. Valid until the batch changes anything.</summary>
    public bool TryGetSet(ReadOnlySpan<byte> key, out StoredSet set)
    {
        CheckOpenAndKey(key);
        var cell = Writer(TreeId.Sets).Find(Root(TreeId.Sets), key);
        set = cell == null ? default : new StoredSet(_space, cell);
        return cell != null;
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
        _pages.Seal(Root(default));
        _pages.Changes.Root = new StoreRoot(etag, ShardTime, WallTime, _pages.Number, [.. _trees]);
        return _pages.Changes;
    }

    /// <summary>Closes the batch and returns its changes, which nothing refers to.</summary>
    internal SealedBatch EndUnsealed()
    {
        Invariant.Check(IsOpen, $"A batch that is not open was aborted.");
        IsOpen = false;
        return _pages.Changes;
    }

    /// <inheritdoc cref="TreeWriter.Descents"/>
    internal long DescentsOf(TreeId tree) => Writer(tree).Descents;

    /// <summary>Changes a tree, and keeps the path to the leaf of the last operation on it.</summary>
    private TreeWriter Writer(TreeId tree) => _writers[(int)tree];

    /// <summary>The root of a tree, in the pinned array.</summary>
    private TreeRoot* Root(TreeId tree) => (TreeRoot*)Unsafe.AsPointer(ref _trees[(int)tree]);

    private void CheckOpenAndKey(ReadOnlySpan<byte> key, [CallerArgumentExpression(nameof(key))] string? name = null)
    {
        Invariant.Check(IsOpen, $"A batch that is not open was used.");
        if (key.Length is 0 or > Page.KeyBytesMax)
            throw new ArgumentOutOfRangeException(name, key.Length, $"A {name} must have 1 to {Page.KeyBytesMax} bytes.");
    }
}
