using System.Runtime.CompilerServices;

namespace KvCluster.Storage.Pages;

/// <summary>
/// A delta: a small block of scratch memory in place of a changed leaf that is in the file. It has the leaf in the file as its base, and the entries in which
/// the leaf differs from it: those that were put, and keys that were deleted. When its batch is sealed, it never changes, but for references to what a
/// checkpoint has placed, and for its base, which the end of a checkpoint replaces by the page into which it has folded an older delta of the same base
/// (<c>ReferenceSwap</c>). Any thread.
/// </summary>
/// <remarks>
/// The block has the layout of a leaf without prefix, so that <see cref="TreePage"/> searches it, and the header of a scratch page; in the place of fields that
/// only whole pages have are those below. Beside its own entries it knows what the whole leaf has, so that counting and dropping the leaf need no look at the
/// base. Nothing of this is in the file.
/// </remarks>
internal static unsafe class DeltaPage
{
    /// <summary>In <see cref="Merge"/>'s result: the entry is the delta's, and not the base's.</summary>
    public const ushort IsOwn = 0x8000;

    /// <summary>Sizes of blocks are multiples of this.</summary>
    private const int BytesUnit = 128;

    /// <summary>Bytes of the block.</summary>
    public static int Bytes(byte* delta) => *(delta + 36) * BytesUnit;

    /// <summary>Keys of the whole leaf.</summary>
    public static int Keys(byte* delta) => *(ushort*)(delta + 38);

    /// <summary>Whether entries of the whole leaf may refer to other pages.</summary>
    public static bool WholeHasReferences(byte* delta) => *(bool*)(delta + 37);

    /// <summary>
    /// What a whole leaf has as <see cref="Page.Appended"/>. In the place of the offset of the cells, which is needed only while they are written.
    /// </summary>
    public static ref ushort Appended(byte* delta) => ref *(ushort*)(delta + 34);

    /// <summary>Bytes of the body that the whole leaf uses.</summary>
    public static int WholeUsed(byte* delta) => *(ushort*)(delta + 42);

    /// <summary>
    /// While the batch is open that has made the delta: the delta of an earlier batch in whose place it is; 0 if it is the first of its base. In the place of
    /// the summary that a checkpoint stores.
    /// </summary>
    public static ref nint Before(byte* delta) => ref *(nint*)(delta + 24);

    /// <summary>The bytes that the header and the entries take.</summary>
    public static int OwnBytes(byte* delta)
    {
        int bytes = Page.HeaderBytes, count = Page.Count(delta);
        for (var own = 0; own < count; own++)
            bytes += Page.EntryBytes + TreePage.CellBytes(delta, own);
        return bytes;
    }

    /// <summary>
    /// The link to the base. Number and checksum are in one word, because both may be replaced while this reads them: one of the old base with the other of the
    /// new one would look like damage.
    /// </summary>
    public static PageLink Base(byte* delta)
    {
        var word = Volatile.Read(ref *(ulong*)(delta + 8));
        return new PageLink(PageRef.ToFile((long)(word & uint.MaxValue)), (uint)(word >> 32));
    }

    /// <summary>Replaces the base by a page that has the same entries, but for those of which the delta has its own.</summary>
    public static void StoreBase(byte* delta, PageLink link) =>
        Volatile.Write(ref *(ulong*)(delta + 8), ((ulong)link.Checksum << 32) | (ulong)link.Reference.Number);

    /// <summary>Formats a block without entries for what a whole leaf differs in from its base.</summary>
    public static void Format(byte* delta, int bytes, byte* whole, PageLink link)
    {
        new Span<byte>(delta, Page.HeaderBytes).Clear();
        Page.Type(delta) = PageType.Delta;
        Page.CellsStart(delta) = (ushort)bytes;
        *(delta + 36) = (byte)(bytes / BytesUnit);
        *(bool*)(delta + 37) = Page.LeafHasReferences(whole);
        *(ushort*)(delta + 38) = Page.Count(whole);
        *(ushort*)(delta + 40) = Page.PrefixLength(whole);
        *(ushort*)(delta + 42) = (ushort)Page.Used(whole);
        StoreBase(delta, link);
    }

    /// <summary>
    /// Formats a block without entries for what the same leaf differs in from the same base when a value has grown by some bytes, fewer than none if it has
    /// shrunk.
    /// </summary>
    public static void FormatLike(byte* delta, int bytes, byte* before, int growth)
    {
        Buffer.MemoryCopy(before, delta, Page.HeaderBytes, Page.HeaderBytes);
        Page.Count(delta) = 0;
        Page.CellsStart(delta) = (ushort)bytes;
        *(delta + 36) = (byte)(bytes / BytesUnit);
        GrowWhole(delta, growth);
    }

    /// <summary>Counts the bytes by which a value of the whole leaf has grown.</summary>
    public static void GrowWhole(byte* delta, int growth) => *(ushort*)(delta + 42) = (ushort)(WholeUsed(delta) + growth);

    /// <summary>
    /// The entries of the whole leaf in order, each as the index in the base, or as that in the delta with <see cref="IsOwn"/>. Returns their number.
    /// </summary>
    /// <param name="delta">The delta.</param>
    /// <param name="whole">Its base, which must stay the same while the result is used.</param>
    /// <param name="order">Room for <see cref="LeafFill.EntriesMax"/>.</param>
    [SkipLocalsInit]
    public static int Merge(byte* delta, byte* whole, Span<ushort> order)
    {
        Span<byte> key = stackalloc byte[Page.KeyBytesMax];
        int at = 0, next = 0, inBase = Page.Count(whole);
        for (var own = 0; own < Page.Count(delta); own++)
        {
            var place = TreePage.LowerBound(whole, key[..TreePage.CopyKey(delta, own, key)], next, out var isThere);
            while (next < place)
                order[at++] = (ushort)next++;
            next += isThere ? 1 : 0;
            if (!TreePage.IsDeleted(Page.Cell(delta, own)))
                order[at++] = (ushort)(own | IsOwn);
        }
        while (next < inBase)
            order[at++] = (ushort)next++;
        Invariant.Check(at == Keys(delta), $"A delta of {Keys(delta)} keys has {at} together with its base.");
        return at;
    }

    /// <summary>
    /// Writes the whole leaf into a page: with the prefix that it had when the delta was made of it, so that it has room. The references in the delta must not
    /// be replaced meanwhile.
    /// </summary>
    public static void Fold(byte* target, byte* delta, byte* whole)
    {
        if (!TryApply(target, delta, whole))
            FoldAnew(target, delta, whole);
        Page.Appended(target) = Appended(delta);
        Invariant.Check(Page.Count(target) == Keys(delta), $"A delta of {Keys(delta)} keys has {Page.Count(target)} together with its base.");
    }

    /// <summary>
    /// Changes a copy of the base, which is faster than to collect the entries one by one. False if the base has another prefix, or if the copy has too little
    /// room beside what removals have left in it.
    /// </summary>
    [SkipLocalsInit]
    private static bool TryApply(byte* target, byte* delta, byte* whole)
    {
        if (Page.PrefixLength(whole) != *(ushort*)(delta + 40))
            return false;
        Buffer.MemoryCopy(whole, target, Page.Bytes, Page.Bytes);
        Span<byte> buffer = stackalloc byte[Page.KeyBytesMax];
        var at = 0;
        for (var own = 0; own < Page.Count(delta); own++)
        {
            var cell = Page.Cell(delta, own);
            var key = buffer[..TreePage.CopyKey(delta, own, buffer)];
            at = TreePage.LowerBound(target, key, at, out var isThere);
            if (isThere && TreePage.TryReplaceInline(target, at, cell))
                continue;
            if (isThere)
                TreePage.Remove(target, at);
            if (TreePage.IsDeleted(cell))
                continue;
            // A leaf of which all keys were replaced may have another prefix of the same length.
            if (!key.StartsWith(Page.Prefix(target)) || Page.Gap(target) < TreePage.CopyBytes(cell, key.Length - Page.PrefixLength(target)))
                return false;
            TreePage.InsertCopy(target, at, key, cell);
        }
        return true;
    }

    [SkipLocalsInit]
    private static void FoldAnew(byte* target, byte* delta, byte* whole)
    {
        Span<ushort> order = stackalloc ushort[LeafFill.EntriesMax];
        order = order[..Merge(delta, whole, order)];
        int prefixLength = *(ushort*)(delta + 40);
        Span<byte> prefix = stackalloc byte[Page.KeyBytesMax];
        if (prefixLength > 0)
            TreePage.CopyKey(PageOf(delta, whole, order[0]), IndexOf(order[0]), prefix);
        Page.Format(target, PageType.Leaf, prefix[..prefixLength]);
        for (int from = 0, to; from < order.Length; from = to)
        {
            for (to = from + 1; to < order.Length && order[to] == order[to - 1] + 1;)
                to++;
            TreePage.Append(target, PageOf(delta, whole, order[from]), IndexOf(order[from]), IndexOf(order[to - 1]) + 1);
        }
    }

    /// <summary>The page with a merged entry.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static byte* PageOf(byte* delta, byte* whole, ushort entry) => (entry & IsOwn) != 0 ? delta : whole;

    /// <summary>The index of a merged entry in its page.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static int IndexOf(ushort entry) => entry & ~IsOwn;

    /// <summary>The keys of a range (empty: no bound) in the whole leaf.</summary>
    [SkipLocalsInit]
    public static int CountRange(PageSpace space, byte* delta, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        if (from.IsEmpty && to.IsEmpty)
            return Keys(delta);
        var whole = space.ResolveBase(delta);
        var keys = IndexOf(whole, to, isEnd: true) - IndexOf(whole, from, isEnd: false);
        Span<byte> key = stackalloc byte[Page.KeyBytesMax];
        var end = IndexOf(delta, to, isEnd: true);
        for (var own = IndexOf(delta, from, isEnd: false); own < end; own++)
        {
            TreePage.LowerBound(whole, key[..TreePage.CopyKey(delta, own, key)], out var isThere);
            keys += (TreePage.IsDeleted(Page.Cell(delta, own)) ? 0 : 1) - (isThere ? 1 : 0);
        }
        return keys;
    }

    private static int IndexOf(byte* page, ReadOnlySpan<byte> key, bool isEnd) =>
        key.IsEmpty ? isEnd ? Page.Count(page) : 0 : TreePage.LowerBound(page, key, out _);
}
