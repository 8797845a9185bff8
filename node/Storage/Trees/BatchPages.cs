using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// The pages that the open batch makes, copies on their first write, and retires, each once. Its changes are recorded in the <see cref="SealedBatch"/>. Used
/// by <see cref="TreeWriter"/> and what belongs to it; writer only.
/// </summary>
internal sealed unsafe class BatchPages(PageSpace space, ScratchPool pool, LeafDeltas deltas, bool dividesValues, ValueCompression? compression)
{
    private SealedBatch _changes = null!;
    private ulong _number;

    /// <summary>The tree whose pages are copied; -1 for the tree of a set, whose leaves stay whole pages.</summary>
    public int Tree { get; set; }

    /// <summary>Whether leaves of named trees may be deltas.</summary>
    public bool MakesDeltas => deltas.AreMade;

    /// <summary>Whether values may be divided between a leaf and a run.</summary>
    public bool DividesValues => dividesValues;

    /// <summary>Compresses values of the tree <c>kv</c>; null if the store has them as they are.</summary>
    public ValueCompression? Compression => compression;

    /// <summary>The number of the batch.</summary>
    public ulong Number => _number;

    /// <summary>Replaces references meanwhile; null while nothing does.</summary>
    public ReferenceSwap? Swap { get; set; }

    /// <summary>What it has changed.</summary>
    public SealedBatch Changes => _changes;

    /// <summary>Begins to record for a batch. The number must be higher than any before.</summary>
    public void Open(ulong number, SealedBatch changes)
    {
        (_number, _changes) = (number, changes);
        deltas.Clear();
        compression?.Forget();
    }

    /// <summary>Replaces what has changed little by deltas, in the batch's trees.</summary>
    public void Seal(TreeRoot* trees)
    {
        deltas.Seal(_changes, trees);
        // A store that is quiescent from here on would keep the memory of its last values.
        compression?.Forget();
    }

    /// <summary>An empty leaf or branch with a prefix.</summary>
    public byte* MakeEmpty(PageType type, ReadOnlySpan<byte> prefix = default)
    {
        var page = pool.Rent(1);
        Page.Format(page, type, prefix);
        Track(page);
        return page;
    }

    /// <summary>A run with a value, or what a leaf does not have of it, passed in two parts; returns the reference to it.</summary>
    /// <param name="header">The first part.</param>
    /// <param name="body">The second part.</param>
    /// <param name="bytesInLeaf">How many bytes of the value, before these, the leaf has.</param>
    public PageRef MakeRun(ReadOnlySpan<byte> header, ReadOnlySpan<byte> body, int bytesInLeaf)
    {
        var length = header.Length + body.Length;
        var page = pool.Rent(OverflowRun.PagesFor(length));
        Track(page);
        var (batch, index) = (Page.Batch(page), Page.ScratchIndex(page));
        new Span<byte>(page, Page.HeaderBytes).Clear();
        Page.Type(page) = PageType.Overflow;
        Page.ValueLength(page) = (uint)length;
        Page.BytesInLeaf(page) = (ushort)bytesInLeaf;
        (Page.Batch(page), Page.ScratchIndex(page)) = (batch, index);
        var value = new Span<byte>(page + Page.HeaderBytes, length);
        header.CopyTo(value);
        body.CopyTo(value[header.Length..]);
        var end = page + Page.HeaderBytes + length;
        new Span<byte>(end, (int)(page + ((long)OverflowRun.PagesFor(length) * Page.Bytes) - end)).Clear();
        return PageRef.ToScratch(page);
    }

    /// <summary>
    /// The leaf or branch behind a link; copied unless it already belongs to this batch. The link then refers to the copy. The copy of a delta is a whole leaf,
    /// also that of a delta of this batch.
    /// </summary>
    public byte* CopyOnWrite(PageLink* link)
    {
        var page = space.ResolveNode(link);
        if (link->Reference.IsScratch && !link->Reference.IsDelta && Page.Batch(page) == _number)
            return page;
        Settle(link->Reference, page);
        var copy = Page.Type(page) == PageType.Delta ? CopyDelta(page) : CopyPage(link->Reference, page);
        *link = new PageLink(PageRef.ToScratch(copy), 0);
        return copy;
    }

    /// <summary>
    /// Has the leaf behind a link, in a branch of this batch, be a delta of this batch in which a key has another value, which is inline like the one before
    /// it. Returns the place of that value; null if the whole leaf has to be copied.
    /// </summary>
    /// <param name="link">The link. It refers to the delta afterwards.</param>
    /// <param name="key">The key.</param>
    /// <param name="recorded">What its cell has as the length of its value.</param>
    /// <param name="delta">The delta.</param>
    public byte* TryPutInDelta(PageLink* link, ReadOnlySpan<byte> key, int recorded, out byte* delta)
    {
        delta = null;
        var reference = link->Reference;
        if (reference.IsScratch && !reference.IsDelta)
            return null;
        var leaf = space.ResolveNode(link);
        Settle(reference, leaf);
        delta = deltas.TryPut(reference, leaf, reference.IsDelta && Page.Batch(leaf) == _number, key, recorded, out var place);
        if (delta == null || delta == leaf)
            return place;
        Track(delta);
        DeltaPage.Before(delta) = reference.IsDelta ? (nint)EarlierOf(leaf) : 0;
        if (reference.IsDelta)
            Retire(reference, 1);
        *link = new PageLink(PageRef.ToDelta(delta), 0);
        return place;
    }

    /// <summary>The whole leaf of which a page is a delta, in a buffer; any other page itself. A delta's references must be final.</summary>
    public byte* Whole(byte* page, byte* buffer)
    {
        if (Page.Type(page) != PageType.Delta)
            return page;
        DeltaPage.Fold(buffer, page, space.ResolveBase(page));
        return buffer;
    }

    /// <summary>Called before references in a page that may belong to an earlier batch are copied or retired, so that they are final.</summary>
    public void Settle(PageRef reference, byte* page)
    {
        if (Swap is not null && reference.IsScratch)
            Swap.Visit(page);
    }

    /// <summary>A branch's child, likewise.</summary>
    public byte* OwnChild(byte* branch, int index) => CopyOnWrite(TreePage.Child(branch, index));

    /// <summary>Retires a leaf or branch, which this batch's state no longer reaches; with a delta its base.</summary>
    public void Retire(PageRef reference)
    {
        if (!reference.IsDelta)
        {
            Retire(reference, 1);
            return;
        }
        Settle(reference, reference.Memory);
        // Read now, because the memory of a delta of this batch is returned.
        var number = DeltaPage.Base(reference.Memory).Reference.Number;
        Retire(reference, 1);
        _changes.DroppedBases.Add(number);
    }

    /// <summary>Retires the run to which a leaf's cell refers. A run in the file is not read for that.</summary>
    public void RetireRun(PageLink* run) => Retire(run->Reference, OverflowRun.PagesFor(TreePage.OverflowLength(run)));

    private void Retire(PageRef reference, int pages)
    {
        if (!reference.IsScratch)
        {
            _changes.AddRetired(new PageRun(reference.Number, pages));
            return;
        }
        var page = space.Locate(reference);
        if (Page.Batch(page) != _number)
        {
            if (reference.IsDelta)
                Swap?.Visit(page);
            else
                Swap?.CheckYounger(page);
            _changes.RetiredScratch.Add((nint)page);
            return;
        }
        var made = _changes.Made;
        var index = Page.ScratchIndex(page);
        Invariant.Check(made[index] == (nint)page, $"A scratch page of batch {_number} has a wrong index.");
        made[index] = made[^1];
        Page.ScratchIndex((byte*)made[index]) = index;
        made.RemoveAt(made.Count - 1);
        pool.Return(page);
    }

    private byte* CopyPage(PageRef reference, byte* page)
    {
        var copy = pool.Rent(1);
        Buffer.MemoryCopy(page, copy, Page.Bytes, Page.Bytes);
        Track(copy);
        if (Page.Type(copy) == PageType.Leaf)
            Page.CopyNumber(copy) = 0;
        if (!reference.IsScratch && Tree >= 0 && deltas.AreMade && Page.Type(copy) == PageType.Leaf)
            deltas.Add(copy, Tree, reference, before: null);
        else
            Retire(reference);
        return copy;
    }

    /// <summary>The delta's memory is retired, but its base stays in use if the copy becomes a delta again.</summary>
    private byte* CopyDelta(byte* delta)
    {
        var whole = space.ResolveBase(delta);
        var copy = pool.Rent(1);
        DeltaPage.Fold(copy, delta, whole);
        Track(copy);
        deltas.Add(copy, Tree, DeltaPage.Base(delta).Reference, EarlierOf(delta));
        Retire(PageRef.ToDelta(delta), 1);
        return copy;
    }

    /// <summary>The delta of an earlier batch in whose place a delta of this one is; null if its base had none. Any other delta itself.</summary>
    private byte* EarlierOf(byte* delta) => Page.Batch(delta) == _number ? (byte*)DeltaPage.Before(delta) : delta;

    private void Track(byte* page)
    {
        Page.Batch(page) = _number;
        (Page.Placed(page), Page.LeftBy(page)) = (default, 0);
        Page.ScratchIndex(page) = _changes.Made.Count;
        _changes.Made.Add((nint)page);
    }
}
