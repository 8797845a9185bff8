using System.Buffers.Binary;
using System.Runtime.CompilerServices;
using System.Runtime.Intrinsics;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Pages;

/// <summary>Searches and changes one leaf or branch page (FORMAT.md, "Leaf" and "Branch"). Pure; only the batch that owns the page changes it.</summary>
/// <remarks>
/// A leaf cell is [suffix length u16][value length u16][rest of the key][value]. If the value length is 0xFFFF, the cell starts at an offset divisible by
/// eight and is [suffix length u16][0xFFFF][value length u32][reference u64][checksum u32][rest of the key][beginning of the value, if the length says so]. If
/// it is 0xFFFE, the cell has a tree of its own and is [suffix length u16][0xFFFE][zero u32][reference u64][checksum u32][value, 24 bytes][rest of the key],
/// aligned likewise. A bit of the value length says that the value is compressed (<see cref="CompressedValue"/>): what the cell has is then the length of the
/// value as it was put, and the compressed bytes; a cell that refers to a run has that length behind the checksum. A branch cell starts at an offset divisible
/// by eight and is [reference u64][checksum u32][summary u64][suffix length u16][rest of the key]. The suffix is the key without the page's prefix. Its first
/// eight bytes are only in the head, the rest is in the cell. A branch's first key stands for "less than all" and is never compared.
/// </remarks>
internal static unsafe class TreePage
{
    /// <summary>Value length that marks a value in an overflow run.</summary>
    public const ushort OverflowMark = 0xFFFF;

    /// <summary>Value length that marks a cell with a tree of its own. This value length and higher ones mark cells that refer to other pages.</summary>
    public const ushort TreeMark = 0xFFFE;

    /// <summary>Value length that marks a deleted key, in deltas only: the cell is [suffix length u16][0xFFFD][rest of the key].</summary>
    public const ushort DeletedMark = 0xFFFD;

    /// <summary>Bytes of a leaf cell before the rest of the key.</summary>
    public const int LeafCellHeader = 4;

    /// <summary>Bytes of a leaf cell before the rest of the key if the value is in an overflow run.</summary>
    public const int OverflowCellHeader = 20;

    /// <summary>Bytes of a leaf cell before the rest of the key if the value is compressed and in an overflow run.</summary>
    public const int CompressedCellHeader = OverflowCellHeader + CompressedValue.LengthBytes;

    /// <summary>Bytes of the value of a cell with a tree: the header of a set.</summary>
    public const int TreeValueBytes = SetValue.HeaderBytes;

    /// <summary>Bytes of a leaf cell before the rest of the key if it has a tree.</summary>
    public const int TreeCellHeader = OverflowCellHeader + TreeValueBytes;

    /// <summary>Bytes of a branch cell before the rest of the key.</summary>
    public const int BranchCellHeader = 22;

    /// <summary>Bytes that a cell which is aligned to eight bytes may take beside its own.</summary>
    public const int AlignmentBytes = 7;

    /// <summary>In the length of an inline value: it is compressed. No inline value is that long, and it is below the marks.</summary>
    private const ushort CompressedMark = 0x8000;

    private const int LinkInCell = 8;
    private const int SuffixLengthInBranchCell = 20;

    /// <summary>Heads that are compared one after the other faster than by halving.</summary>
    private static int HeadsCounted => Vector256.IsHardwareAccelerated ? 32 : 4;

    /// <summary>Index of the first entry with a key not less than the given one.</summary>
    public static int LowerBound(byte* page, ReadOnlySpan<byte> key, out bool found) => Search(page, key, 0, Page.Count(page), out found);

    /// <summary>The same among the entries from one on, of which all before have lesser keys. Fast if the index is not much greater.</summary>
    public static int LowerBound(byte* page, ReadOnlySpan<byte> key, int from, out bool found) =>
        Search(page, key, from, Page.Count(page), out found, isSoon: true);

    /// <summary>The child that a key belongs to.</summary>
    public static int FindChild(byte* page, ReadOnlySpan<byte> key)
    {
        var index = Search(page, key, 1, Page.Count(page), out var found);
        return found ? index : index - 1;
    }

    /// <summary>Compares an entry's key with a key.</summary>
    public static int Compare(byte* page, int index, ReadOnlySpan<byte> key)
    {
        var prefix = Page.Prefix(page);
        if (!key.StartsWith(prefix))
            return prefix.SequenceCompareTo(key);
        var suffix = key[prefix.Length..];
        var (own, other) = (Page.Heads(page)[index], Page.Head(suffix));
        return own != other ? own.CompareTo(other) : CompareBehindHead(page, index, suffix);
    }

    /// <summary>A branch's child.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static PageLink* Child(byte* page, int index) => (PageLink*)Page.Cell(page, index);

    /// <summary>A branch's child, with what the file has below it.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static SubtreeLink* Subtree(byte* page, int index) => (SubtreeLink*)Page.Cell(page, index);

    /// <summary>Whether entries of a leaf or branch, or those that a delta has itself, may refer to other pages.</summary>
    public static bool HasReferences(byte* page) =>
        Page.Type(page) == PageType.Branch || (Page.Type(page) is PageType.Leaf or PageType.Delta && Page.LeafHasReferences(page));

    /// <summary>
    /// What an entry refers to: the child of a branch's entry, the overflow run or the tree of a leaf's. Null if it refers to nothing. All that follow
    /// references find them here; which of the two a leaf's entry has is told by <see cref="HasTree"/>, and by the type of the page.
    /// </summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static PageLink* Reference(byte* page, int index)
    {
        var cell = Page.Cell(page, index);
        if (Page.Type(page) == PageType.Branch)
            return (PageLink*)cell;
        return *(ushort*)(cell + 2) >= TreeMark ? (PageLink*)(cell + LinkInCell) : null;
    }

    /// <summary>
    /// Replaces a reference by the one to the place in the file that a checkpoint gave the scratch page or run. Readers may be using it: what belongs to the
    /// reference is stored before it.
    /// </summary>
    /// <param name="page">The page with the reference.</param>
    /// <param name="link">The reference, as from <see cref="Reference"/>.</param>
    /// <param name="target">The scratch page or run.</param>
    public static void StorePlaced(byte* page, PageLink* link, byte* target)
    {
        if (Page.Type(page) == PageType.Branch)
            ((SubtreeLink*)link)->Summary = Page.Summary(target);
        PageLink.Store(link, PageLink.ToPlaced(target));
    }

    /// <summary>Whether a leaf's entry has a tree of its own.</summary>
    public static bool HasTree(byte* page, int index) => CellHasTree(Page.Cell(page, index));

    /// <summary>Whether a leaf's cell has a tree of its own.</summary>
    public static bool CellHasTree(byte* cell) => *(ushort*)(cell + 2) == TreeMark;

    /// <summary>Whether a delta's cell says that its key was deleted.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static bool IsDeleted(byte* cell) => *(ushort*)(cell + 2) == DeletedMark;

    /// <summary>
    /// The bytes that a leaf's cell has as its inline value, compressed or not; -1 if the cell refers to other pages, or says that its key was deleted.
    /// </summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static int InlineLength(byte* cell)
    {
        var length = *(ushort*)(cell + 2);
        return length < DeletedMark ? InlineBytes(length) : -1;
    }

    /// <summary>What a cell has as the length of a compressed inline value: a mark, and how many bytes it has of it.</summary>
    /// <param name="bytes">The bytes, with those of the length of the value as it was put.</param>
    public static int CompressedInline(int bytes) => CompressedMark | bytes;

    /// <summary>The bytes that a cell has of an inline value.</summary>
    /// <param name="recorded">What it has as the length.</param>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static int InlineBytes(int recorded) => recorded & ~CompressedMark;

    /// <summary>
    /// Prepares a leaf's cell, in a page of the open batch, for another inline value of which it has as many bytes as of the one before. Returns the place.
    /// </summary>
    /// <param name="cell">The cell.</param>
    /// <param name="recorded">What it has as the length.</param>
    public static byte* RecordInline(byte* cell, int recorded)
    {
        *(ushort*)(cell + 2) = (ushort)recorded;
        return cell + LeafCellHeader + RestLength(*(ushort*)cell);
    }

    /// <summary>Whether the value of a leaf's cell is in a run, or a part of it.</summary>
    public static bool HasRun(byte* cell) => *(ushort*)(cell + 2) == OverflowMark;

    /// <summary>Whether the value of a leaf's cell is compressed.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static bool IsCompressed(byte* cell)
    {
        var length = *(ushort*)(cell + 2);
        return length >= CompressedMark && (length < DeletedMark || (length == OverflowMark && OverflowRun.IsCompressed(*(uint*)(cell + 4))));
    }

    /// <summary>Whether the cells of two entries with the same key, neither deleted, have the same value or refer to the same pages.</summary>
    public static bool HaveSameValue(byte* one, byte* other)
    {
        var length = *(ushort*)(one + 2);
        if (length != *(ushort*)(other + 2))
            return false;
        if (length < TreeMark)
            return InlineValue(one, length).SequenceEqual(InlineValue(other, length));
        if (*(uint*)(one + 4) != *(uint*)(other + 4))
            return false;
        // The link, and the value beside a tree or the length of a compressed value.
        var bytes = ReferenceCellHeader(one) - LinkInCell;
        return new ReadOnlySpan<byte>(one + LinkInCell, bytes).SequenceEqual(new ReadOnlySpan<byte>(other + LinkInCell, bytes))
            && Beginning(one).SequenceEqual(Beginning(other));
    }

    /// <summary>
    /// How many entries of two leaves with the same prefix, one after the other from these indexes on, have the same keys and inline values.
    /// </summary>
    public static int CountSame(byte* page, int index, byte* other, int otherIndex)
    {
        var most = Math.Min(Page.Count(page) - index, Page.Count(other) - otherIndex);
        ulong* heads = Page.Heads(page) + index, otherHeads = Page.Heads(other) + otherIndex;
        ushort* slots = Page.Slots(page) + index, otherSlots = Page.Slots(other) + otherIndex;
        var same = 0;
        while (same < most && heads[same] == otherHeads[same] && IsSameInlineCell(page + slots[same], other + otherSlots[same]))
            same++;
        return same;
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static bool IsSameInlineCell(byte* one, byte* other)
    {
        var lengths = *(uint*)one;
        if (lengths != *(uint*)other || lengths >> 16 >= TreeMark)
            return false;
        var bytes = RestLength((ushort)lengths) + InlineBytes((int)(lengths >> 16));
        return new ReadOnlySpan<byte>(one + LeafCellHeader, bytes).SequenceEqual(new ReadOnlySpan<byte>(other + LeafCellHeader, bytes));
    }

    /// <summary>The tree of a leaf's cell. It may be read while a checkpoint's end replaces the reference. The number of keys is not known here.</summary>
    public static TreeRoot CellTree(byte* cell) => new() { Link = PageLink.LoadWhole((PageLink*)(cell + LinkInCell)) };

    /// <summary>Replaces the root and the value of a leaf's entry that has a tree. The page must belong to the open batch.</summary>
    public static void SetTree(byte* page, int index, PageLink root, ReadOnlySpan<byte> value)
    {
        var cell = Page.Cell(page, index);
        *(PageLink*)(cell + LinkInCell) = root;
        value.CopyTo(new Span<byte>(cell + OverflowCellHeader, TreeValueBytes));
    }

    /// <summary>The bytes of a value in its overflow run. The length of the value precedes the link to the run in the leaf's cell.</summary>
    public static uint OverflowLength(PageLink* run)
    {
        var recorded = *((uint*)run - 1);
        return OverflowRun.LengthOf(recorded) - (uint)OverflowRun.BeginningOf(recorded);
    }

    /// <summary>How many of a value's first bytes are in the cell that links to its run.</summary>
    public static int BytesInLeaf(PageLink* run) => OverflowRun.BeginningOf(*((uint*)run - 1));

    /// <summary>A leaf's value, in place unless it is divided or compressed. For an entry with a tree: the value beside the tree.</summary>
    public static ReadOnlySpan<byte> Value(PageSpace space, byte* page, int index) => CellValue(space, Page.Cell(page, index));

    /// <summary>
    /// At least so many of the first bytes of a cell's value, or all if it has fewer; of a compressed value at least the header with which it was put. In
    /// place, and mostly without a look at the run of a divided value.
    /// </summary>
    public static ReadOnlySpan<byte> CellBeginning(PageSpace space, byte* cell, int bytesLeast)
    {
        if (IsCompressed(cell))
            return CompressedHeader(space, cell);
        var beginning = Beginning(cell);
        return beginning.Length >= bytesLeast ? beginning : CellValue(space, cell);
    }

    /// <summary>The value of a leaf's cell: in place, but for a divided or compressed value, of which it is a copy.</summary>
    /// <exception cref="CorruptStoreException">The run is not what was written, or compressed bytes do not give a value of the recorded length.</exception>
    public static ReadOnlySpan<byte> CellValue(PageSpace space, byte* cell)
    {
        var length = *(ushort*)(cell + 2);
        if (length < CompressedMark)
            return InlineValue(cell, length);
        if (length == TreeMark)
            return new ReadOnlySpan<byte>(cell + OverflowCellHeader, TreeValueBytes);
        if (IsCompressed(cell))
            return TryDecompress(space, cell) ?? throw space.Undecodable(cell);
        var rest = RunOf(space, cell);
        var beginning = Beginning(cell);
        if (beginning.IsEmpty)
            return rest;
        var whole = GC.AllocateUninitializedArray<byte>(beginning.Length + rest.Length);
        beginning.CopyTo(whole);
        rest.CopyTo(whole.AsSpan(beginning.Length));
        return whole;
    }

    /// <summary>Reads the run of a leaf's cell, if it has one, so that its value is in memory. The value is neither put together nor decompressed.</summary>
    /// <exception cref="CorruptStoreException">The run is not what was written.</exception>
    public static void ReadRun(PageSpace space, byte* cell)
    {
        if (HasRun(cell))
            _ = RunOf(space, cell);
    }

    /// <summary>The value of a leaf's cell that is compressed; null if its bytes are not those of a value of the recorded length.</summary>
    /// <param name="space">Resolves the reference to a run. An inline value needs none.</param>
    /// <param name="cell">The cell.</param>
    public static byte[]? TryDecompress(PageSpace space, byte* cell)
    {
        var isInRun = HasRun(cell);
        return CompressedValue.TryRead(CellValueLength(cell), isInRun ? Beginning(cell) : InlineCompressed(cell), isInRun ? RunOf(space, cell) : default);
    }

    /// <summary>The length of the value of a leaf's cell as it was put, without a look at its run.</summary>
    public static int CellValueLength(byte* cell)
    {
        var length = *(ushort*)(cell + 2);
        if (length < CompressedMark)
            return length;
        if (length == TreeMark)
            return TreeValueBytes;
        if (!IsCompressed(cell))
            return (int)OverflowRun.LengthOf(*(uint*)(cell + 4));
        return length == OverflowMark ? (int)LengthInHeader(cell) : Unsafe.ReadUnaligned<int>(cell + LeafCellHeader + RestLength(*(ushort*)cell));
    }

    /// <summary>
    /// What is wrong with what a leaf's cell within a page records of its compressed value; null if nothing is, or if it has none. Compressed bytes are not
    /// looked at.
    /// </summary>
    public static string? ProblemOfCompressed(byte* cell)
    {
        if (!IsCompressed(cell))
            return null;
        if (HasRun(cell))
            return CompressedValue.Problem(LengthInHeader(cell), OverflowRun.LengthOf(*(uint*)(cell + 4)));
        return InlineLength(cell) <= CompressedValue.LengthBytes
            ? $"a compressed value in {InlineLength(cell)} bytes"
            : CompressedValue.Problem(Unsafe.ReadUnaligned<uint>(cell + LeafCellHeader + RestLength(*(ushort*)cell)), InlineCompressed(cell).Length);
    }

    /// <summary>The header of a compressed value: from the leaf if that has it, otherwise from the run.</summary>
    private static ReadOnlySpan<byte> CompressedHeader(PageSpace space, byte* cell)
    {
        var compressed = HasRun(cell) ? Beginning(cell) : InlineCompressed(cell);
        return CompressedValue.TryReadHeader(compressed.IsEmpty ? RunOf(space, cell) : compressed, out var header) ? header : CellValue(space, cell);
    }

    /// <summary>The run to which a cell refers.</summary>
    private static ReadOnlySpan<byte> RunOf(PageSpace space, byte* cell)
    {
        var link = (PageLink*)(cell + LinkInCell);
        var bytes = OverflowLength(link);
        return new ReadOnlySpan<byte>(space.ResolveRun(link, bytes) + Page.HeaderBytes, (int)bytes);
    }

    /// <summary>The beginning of a divided value, which its cell has behind the rest of the key; empty in all other cells.</summary>
    private static ReadOnlySpan<byte> Beginning(byte* cell) =>
        HasRun(cell) ? new(cell + ReferenceCellHeader(cell) + RestLength(*(ushort*)cell), BeginningBytes(cell)) : default;

    private static int BeginningBytes(byte* cell) => HasRun(cell) ? OverflowRun.BeginningOf(*(uint*)(cell + 4)) : 0;

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static ReadOnlySpan<byte> InlineValue(byte* cell, int recorded) => new(cell + LeafCellHeader + RestLength(*(ushort*)cell), InlineBytes(recorded));

    /// <summary>The compressed bytes of an inline value, behind its length.</summary>
    private static ReadOnlySpan<byte> InlineCompressed(byte* cell) => InlineValue(cell, *(ushort*)(cell + 2))[CompressedValue.LengthBytes..];

    /// <summary>The length of a compressed value in a run.</summary>
    private static uint LengthInHeader(byte* cell) => *(uint*)(cell + OverflowCellHeader);

    /// <summary>Length of an entry's key.</summary>
    public static int KeyLength(byte* page, int index) => Page.PrefixLength(page) + SuffixLength(page, index);

    /// <summary>Writes an entry's key, including the prefix, and returns its length.</summary>
    public static int CopyKey(byte* page, int index, Span<byte> destination)
    {
        var prefix = Page.Prefix(page);
        prefix.CopyTo(destination);
        return prefix.Length + CopySuffix(page, index, destination[prefix.Length..]);
    }

    /// <summary>Bytes of a leaf's cell that refers to other pages, without those that align it.</summary>
    public static int BytesOfReference(byte* page, int index) => CellBytes(page, index) - AlignmentBytes;

    /// <summary>Bytes of an entry without head and slot.</summary>
    public static int CellBytes(byte* page, int index)
    {
        var cell = Page.Cell(page, index);
        if (Page.Type(page) == PageType.Branch)
            return Aligned(BranchCellHeader + RestLength(*(ushort*)(cell + SuffixLengthInBranchCell)));
        var length = *(ushort*)(cell + 2);
        var rest = RestLength(*(ushort*)cell);
        if (length == DeletedMark)
            return LeafCellHeader + rest;
        return length >= TreeMark ? ReferenceCellBytes(cell, *(ushort*)cell) + BeginningBytes(cell) : LeafCellHeader + rest + InlineBytes(length);
    }

    /// <summary>The most bytes that a leaf entry takes, including head and slot, for a key suffix of this length.</summary>
    /// <param name="suffixLength">The length of the suffix.</param>
    /// <param name="valueLength">How many bytes of the value are in the leaf.</param>
    /// <param name="overflow">Whether others are in a run.</param>
    /// <param name="isCompressed">Whether the value that is in a run is compressed.</param>
    public static int LeafEntryBytes(int suffixLength, int valueLength, bool overflow, bool isCompressed = false) => Page.EntryBytes + (overflow
        ? ReferenceCellBytes(isCompressed ? CompressedCellHeader : OverflowCellHeader, suffixLength) + valueLength
        : InlineCellBytes(suffixLength, valueLength));

    /// <summary>The bytes that a leaf's entry takes, including head and slot, in a page without a prefix.</summary>
    public static int EntryBytesWithoutPrefix(byte* page, int index) => CopyBytes(Page.Cell(page, index), KeyLength(page, index));

    /// <summary>The bytes that a deleted key takes in a delta, including head and slot.</summary>
    public static int DeletedEntryBytes(int keyLength) => Page.EntryBytes + InlineCellBytes(keyLength, 0);

    /// <summary>The most bytes that a leaf entry with a tree takes, including head and slot.</summary>
    public static int TreeEntryBytes(int suffixLength) => Page.EntryBytes + ReferenceCellBytes(TreeCellHeader, suffixLength);

    /// <summary>The most bytes that a branch entry takes, including head and slot.</summary>
    public static int BranchEntryBytes(int suffixLength) => Page.EntryBytes + Aligned(BranchCellHeader + RestLength(suffixLength));

    /// <summary>
    /// Adds an entry with an inline value to a leaf. The key must have the page's prefix, and the gap must be large enough. Returns the space for the
    /// value.
    /// </summary>
    /// <param name="page">The leaf.</param>
    /// <param name="index">The position.</param>
    /// <param name="key">The key.</param>
    /// <param name="recorded">The length of the value, or what <see cref="CompressedInline"/> makes of that of its compressed bytes.</param>
    public static Span<byte> InsertInline(byte* page, int index, ReadOnlySpan<byte> key, int recorded)
    {
        var suffix = key[Page.PrefixLength(page)..];
        var cell = Insert(page, index, suffix, InlineCellBytes(suffix.Length, InlineBytes(recorded)));
        return new Span<byte>(WriteInlineCell(cell, suffix, recorded), InlineBytes(recorded));
    }

    /// <summary>Bytes of a leaf's cell with an inline value.</summary>
    public static int InlineCellBytes(int suffixLength, int valueLength) => LeafCellHeader + RestLength(suffixLength) + valueLength;

    /// <summary>Writes a leaf's cell up to the inline value, and returns the place of that.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static byte* WriteInlineCell(byte* cell, ReadOnlySpan<byte> suffix, int recorded)
    {
        *(ushort*)cell = (ushort)suffix.Length;
        *(ushort*)(cell + 2) = (ushort)recorded;
        CopyRest(suffix, cell + LeafCellHeader);
        return cell + LeafCellHeader + RestLength(suffix.Length);
    }

    /// <summary>Adds a deleted key to a delta.</summary>
    public static void InsertDeleted(byte* delta, int index, ReadOnlySpan<byte> key)
    {
        var cell = Insert(delta, index, key, InlineCellBytes(key.Length, 0));
        WriteInlineCell(cell, key, 0);
        *(ushort*)(cell + 2) = DeletedMark;
    }

    /// <summary>Adds an entry whose value is in an overflow run, or divided. Returns the space for the beginning of a divided value.</summary>
    /// <param name="page">The leaf.</param>
    /// <param name="index">The position.</param>
    /// <param name="key">The key, which must have the page's prefix.</param>
    /// <param name="recorded">The length, as from <see cref="OverflowRun.Recorded"/>.</param>
    /// <param name="run">The run.</param>
    /// <param name="length">The length of the value as it was put, if it is compressed.</param>
    public static Span<byte> InsertOverflow(byte* page, int index, ReadOnlySpan<byte> key, uint recorded, PageLink run, uint length = 0)
    {
        var cell = InsertReference(page, index, key, OverflowMark, recorded, run, OverflowRun.BeginningOf(recorded));
        if (OverflowRun.IsCompressed(recorded))
            *(uint*)(cell + OverflowCellHeader) = length;
        return new Span<byte>(cell + ReferenceCellHeader(cell) + RestLength(*(ushort*)cell), OverflowRun.BeginningOf(recorded));
    }

    /// <summary>Adds an entry that has a tree, and beside it a value of <see cref="TreeValueBytes"/>.</summary>
    public static void InsertTree(byte* page, int index, ReadOnlySpan<byte> key, PageLink root, ReadOnlySpan<byte> value)
    {
        var cell = InsertReference(page, index, key, TreeMark, 0, root);
        value.CopyTo(new Span<byte>(cell + OverflowCellHeader, TreeValueBytes));
    }

    /// <summary>Adds a child to a branch. The key of the first child is empty.</summary>
    public static void InsertChild(byte* page, int index, ReadOnlySpan<byte> key, SubtreeLink child)
    {
        var suffix = index == 0 ? default : key[Page.PrefixLength(page)..];
        var cell = Insert(page, index, suffix, Aligned(BranchCellHeader + RestLength(suffix.Length)));
        *(SubtreeLink*)cell = child;
        *(ushort*)(cell + SuffixLengthInBranchCell) = (ushort)suffix.Length;
        CopyRest(suffix, cell + BranchCellHeader);
    }

    /// <summary>Replaces the key of a branch's child. The new key must have the page's prefix and fit in the gap together with the old head and slot.</summary>
    public static void ReplaceKey(byte* page, int index, ReadOnlySpan<byte> key)
    {
        var child = *Subtree(page, index);
        Remove(page, index);
        InsertChild(page, index, key, child);
    }

    /// <summary>Removes an entry; its cell becomes garbage.</summary>
    public static void Remove(byte* page, int index) => Remove(page, index, index + 1);

    /// <summary>Removes entries [from, to); their cells become garbage.</summary>
    public static void Remove(byte* page, int from, int to)
    {
        var count = Page.Count(page);
        var left = count - (to - from);
        for (var i = from; i < to; i++)
            Page.Garbage(page) += (ushort)CellBytes(page, i);
        var heads = Page.Heads(page);
        var slots = Page.Slots(page);
        Move(slots + to, slots + from, (count - to) * sizeof(ushort));
        Move(heads + to, heads + from, (count - to) * sizeof(ulong));
        Page.Count(page) = (ushort)left;
        Move(slots, Page.Slots(page), left * sizeof(ushort));
    }

    /// <summary>Appends entries [from, to) of a page to another page of the same type, whose prefix they have.</summary>
    /// <param name="firstKey">For a branch: the key for the source's first entry, unless it is the first in the target too.</param>
    [SkipLocalsInit]
    public static void Append(byte* target, byte* source, int from, int to, ReadOnlySpan<byte> firstKey = default)
    {
        var isBranch = Page.Type(source) == PageType.Branch;
        // A branch's first entry has another key, in the source or in the target.
        if (isBranch && from < to && (from == 0 || Page.Count(target) == 0))
        {
            Span<byte> first = stackalloc byte[Page.KeyBytesMax];
            InsertChild(target, Page.Count(target), from == 0 ? firstKey : first[..CopyKey(source, from, first)], *Subtree(source, from));
            from++;
        }
        if (Page.PrefixLength(target) == Page.PrefixLength(source))
            AppendCells(target, source, from, to);
        else
            AppendKeys(target, source, from, to);
    }

    /// <summary>The same for entries whose suffixes change, because the pages have prefixes of different lengths.</summary>
    [SkipLocalsInit]
    private static void AppendKeys(byte* target, byte* source, int from, int to)
    {
        Span<byte> key = stackalloc byte[Page.KeyBytesMax];
        for (var i = from; i < to; i++)
        {
            var cell = Page.Cell(source, i);
            var own = key[..CopyKey(source, i, key)];
            if (Page.Type(source) == PageType.Branch)
                InsertChild(target, Page.Count(target), own, *(SubtreeLink*)cell);
            else
                InsertCopy(target, Page.Count(target), own, cell);
        }
    }

    /// <summary>Adds an entry with a key and what a cell of another leaf has beside its key. The gap must be large enough.</summary>
    public static void InsertCopy(byte* page, int index, ReadOnlySpan<byte> key, byte* cell)
    {
        var length = *(ushort*)(cell + 2);
        if (length == OverflowMark)
            Beginning(cell).CopyTo(InsertOverflow(page, index, key, *(uint*)(cell + 4), *(PageLink*)(cell + LinkInCell), LengthToCopy(cell)));
        else if (length == TreeMark)
            InsertTree(page, index, key, *(PageLink*)(cell + LinkInCell), new ReadOnlySpan<byte>(cell + OverflowCellHeader, TreeValueBytes));
        else
            InlineValue(cell, length).CopyTo(InsertInline(page, index, key, length));
    }

    /// <summary>The bytes that <see cref="InsertCopy"/> takes, including head and slot, for a key suffix of this length.</summary>
    public static int CopyBytes(byte* cell, int suffixLength)
    {
        var length = *(ushort*)(cell + 2);
        return Page.EntryBytes
            + (length >= TreeMark ? ReferenceCellBytes(cell, suffixLength) + BeginningBytes(cell) : InlineCellBytes(suffixLength, InlineBytes(length)));
    }

    private static uint LengthToCopy(byte* cell) => IsCompressed(cell) ? LengthInHeader(cell) : 0;

    /// <summary>Overwrites the value of a leaf's entry by that of a cell of another leaf. False if not both are inline and of the same length.</summary>
    public static bool TryReplaceInline(byte* page, int index, byte* cell)
    {
        var place = Page.Cell(page, index);
        var length = *(ushort*)(cell + 2);
        if (length >= DeletedMark || length != *(ushort*)(place + 2))
            return false;
        InlineValue(cell, length).CopyTo(new Span<byte>(RecordInline(place, length), InlineBytes(length)));
        return true;
    }

    /// <summary>The same for entries that stay as they are: heads are copied at once, and cells without a look at their keys.</summary>
    private static void AppendCells(byte* target, byte* source, int from, int to)
    {
        if (from >= to)
            return;
        int before = Page.Count(target), count = before + to - from, start = Page.CellsStart(target);
        var heads = Page.Heads(target);
        var slots = (ushort*)(heads + count);
        var bytes = 0;
        for (var i = from; i < to; i++)
            bytes += CellBytes(source, i);
        Invariant.Check(start - bytes >= Page.HeaderBytes + (count * Page.EntryBytes), $"{to - from} entries of {bytes} bytes do not fit into a page with a "
            + $"gap of {Page.Gap(target)} bytes.");
        Move(Page.Slots(target), slots, before * sizeof(ushort));
        Move(Page.Heads(source) + from, heads + before, (to - from) * sizeof(ulong));
        var isLeaf = Page.Type(source) != PageType.Branch;
        for (var i = from; i < to; i++)
        {
            var cell = Page.Cell(source, i);
            var length = CellBytes(source, i);
            start -= length;
            var place = start;
            if (isLeaf && *(ushort*)(cell + 2) >= TreeMark)
            {
                // The padding is where the alignment needs it, before or behind the cell.
                (place, length) = (Aligned(start), length - AlignmentBytes);
                Page.LeafHasReferences(target) = true;
            }
            Move(cell, target + place, length);
            slots[before + i - from] = (ushort)place;
        }
        Page.Count(target) = (ushort)count;
        Page.CellsStart(target) = (ushort)start;
    }

    /// <summary>Length of the common prefix of entries [from, to), not counting a branch's first entry.</summary>
    [SkipLocalsInit]
    public static int CommonPrefix(byte* page, int from, int to)
    {
        if (Page.Type(page) == PageType.Branch)
            from++;
        if (to - from < 2)
            return 0;
        Span<byte> first = stackalloc byte[Page.KeyBytesMax], last = stackalloc byte[Page.KeyBytesMax];
        first = first[..CopyKey(page, from, first)];
        last = last[..CopyKey(page, to - 1, last)];
        return first.CommonPrefixLength(last);
    }

    /// <summary>Length of the prefix that entries [from, to) share with a key, not counting a branch's first entry; 0 without entries.</summary>
    [SkipLocalsInit]
    public static int CommonPrefix(byte* page, int from, int to, ReadOnlySpan<byte> key)
    {
        if (from == 0 && Page.Type(page) == PageType.Branch)
            from = 1;
        if (from >= to)
            return 0;
        Span<byte> other = stackalloc byte[Page.KeyBytesMax];
        var common = key.CommonPrefixLength(other[..CopyKey(page, from, other)]);
        return Math.Min(common, key.CommonPrefixLength(other[..CopyKey(page, to - 1, other)]));
    }

    /// <summary>Writes entries [from, to) of a page into another, which is reformatted with a prefix of at most the given length.</summary>
    [SkipLocalsInit]
    public static void Rebuild(byte* target, byte* source, int from, int to, int prefixMax)
    {
        var prefixLength = Math.Min(prefixMax, CommonPrefix(source, from, to));
        // A longer prefix pays off only if it shortens cells. Key bytes in the heads cost nothing, and a full page has no space for the prefix.
        int before = Page.PrefixLength(source);
        if (prefixLength > before && GainOfPrefix(source, from, to, prefixLength) < 0)
            prefixLength = before;
        Span<byte> key = stackalloc byte[Page.KeyBytesMax];
        if (prefixLength > 0)
            CopyKey(source, to - 1, key);
        Page.Format(target, Page.Type(source), key[..prefixLength], keepOwner: true);
        Append(target, source, from, to);
    }

    /// <summary>The bytes that the cells of entries [from, to) save if the page's prefix grows to a length, less what it takes itself.</summary>
    public static int GainOfPrefix(byte* page, int from, int to, int prefixLength)
    {
        int before = Page.PrefixLength(page), prefixGrowth = prefixLength - before;
        var isBranch = Page.Type(page) == PageType.Branch;
        var saved = 0;
        for (var i = isBranch ? from + 1 : from; i < to; i++)
        {
            var length = SuffixLength(page, i);
            saved += isBranch
                ? Aligned(BranchCellHeader + RestLength(length)) - Aligned(BranchCellHeader + RestLength(length - prefixGrowth))
                : RestLength(length) - RestLength(length - prefixGrowth);
        }
        return saved - (Aligned(prefixLength) - Aligned(before));
    }

    private static int Search(byte* page, ReadOnlySpan<byte> key, int from, int to, out bool found, bool isSoon = false)
    {
        found = false;
        var prefixLength = Page.PrefixLength(page);
        if (prefixLength > 0)
        {
            var prefix = Page.Prefix(page);
            if (!key.StartsWith(prefix))
                return key.SequenceCompareTo(prefix) < 0 ? from : to;
        }
        var suffix = key[prefixLength..];
        var head = Page.Head(suffix);
        var heads = Page.Heads(page);
        var low = isSoon ? FirstNotLessSoon(heads, from, to, head) : FirstNotLess(heads, from, to, head);
        // Usually no entry or one has the same head. If there are more, they differ after the eighth byte.
        var high = low;
        if (low < to)
            Page.PrefetchCell(Page.Cell(page, low));
        while (high < to && heads[high] == head)
            high = high + 1 < to && heads[high + 1] == head ? UpperBound(heads, high, to, head) : high + 1;
        while (low < high)
        {
            var middle = (low + high) >> 1;
            var order = CompareBehindHead(page, middle, suffix);
            if (order == 0)
            {
                found = true;
                return middle;
            }
            if (order < 0)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }

    /// <summary>
    /// The index of the first head that is not less than the given one: by halving, without a branch that the processor would have to guess, until few
    /// are left, of which those that are less are counted, four at a time.
    /// </summary>
    private static int FirstNotLess(ulong* heads, int from, int to, ulong head)
    {
        var low = heads + from;
        var length = to - from;
        while (length > HeadsCounted)
        {
            var half = length >> 1;
            low += half & -(nint)Unsafe.BitCast<bool, byte>(low[half - 1] < head);
            length -= half;
        }
        var end = low + length;
        var less = (int)(low - heads);
        if (Vector256.IsHardwareAccelerated)
        {
            var (sum, wanted) = (Vector256<ulong>.Zero, Vector256.Create(head));
            for (; low + Vector256<ulong>.Count <= end; low += Vector256<ulong>.Count)
                sum -= Vector256.LessThan(Vector256.Load(low), wanted);
            less += (int)Vector256.Sum(sum);
        }
        for (; low < end; low++)
            less += Unsafe.BitCast<bool, byte>(*low < head);
        return less;
    }

    /// <summary>
    /// The same by galloping: fast if the head is among the next ones. (Bentley and Yao, "An almost optimal algorithm for unbounded searching", 1976.)
    /// </summary>
    private static int FirstNotLessSoon(ulong* heads, int from, int to, ulong head)
    {
        var step = Vector256<ulong>.Count;
        for (; from + step < to && heads[from + step - 1] < head; step <<= 1)
            from += step;
        return FirstNotLess(heads, from, Math.Min(from + step, to), head);
    }

    private static int UpperBound(ulong* heads, int from, int to, ulong head)
    {
        while (from < to)
        {
            var middle = (from + to) >> 1;
            if (heads[middle] <= head)
                from = middle + 1;
            else
                to = middle;
        }
        return from;
    }

    /// <summary>Compares the keys of entries of two leaves with the same prefix.</summary>
    public static int CompareSuffixes(byte* page, int index, byte* other, int otherIndex)
    {
        var (head, otherHead) = (Page.Heads(page)[index], Page.Heads(other)[otherIndex]);
        if (head != otherHead)
            return head.CompareTo(otherHead);
        int length = SuffixLength(page, index), otherLength = SuffixLength(other, otherIndex);
        if (length <= sizeof(ulong) || otherLength <= sizeof(ulong))
            return length - otherLength;
        return new ReadOnlySpan<byte>(Rest(page, index), length - sizeof(ulong))
            .SequenceCompareTo(new ReadOnlySpan<byte>(Rest(other, otherIndex), otherLength - sizeof(ulong)));
    }

    /// <summary>Compares an entry with a suffix that has the same head: by the rest, or by length if either has no rest.</summary>
    private static int CompareBehindHead(byte* page, int index, ReadOnlySpan<byte> suffix)
    {
        var length = SuffixLength(page, index);
        if (length <= sizeof(ulong) || suffix.Length <= sizeof(ulong))
            return length - suffix.Length;
        return new ReadOnlySpan<byte>(Rest(page, index), length - sizeof(ulong)).SequenceCompareTo(suffix[sizeof(ulong)..]);
    }

    /// <summary>Length of an entry's key without the page's prefix.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static int SuffixLength(byte* page, int index)
    {
        var cell = Page.Cell(page, index);
        return Page.Type(page) == PageType.Branch ? *(ushort*)(cell + SuffixLengthInBranchCell) : *(ushort*)cell;
    }

    private static byte* Rest(byte* page, int index)
    {
        var cell = Page.Cell(page, index);
        return Page.Type(page) == PageType.Branch ? cell + BranchCellHeader : LeafRest(cell);
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static byte* LeafRest(byte* cell) => cell + (*(ushort*)(cell + 2) < TreeMark ? LeafCellHeader : ReferenceCellHeader(cell));

    /// <summary>Writes the key of a leaf's cell without the prefix, and returns its length. Scans call it for every key.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static int CopyLeafSuffix(byte* cell, ulong head, Span<byte> destination) => WriteSuffix(head, LeafRest(cell), *(ushort*)cell, destination);

    private static int CopySuffix(byte* page, int index, Span<byte> destination) =>
        WriteSuffix(Page.Heads(page)[index], Rest(page, index), SuffixLength(page, index), destination);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static int WriteSuffix(ulong head, byte* rest, int length, Span<byte> destination)
    {
        if (length < sizeof(ulong))
            return WriteShortSuffix(head, length, destination);
        BinaryPrimitives.WriteUInt64BigEndian(destination, head);
        new ReadOnlySpan<byte>(rest, length - sizeof(ulong)).CopyTo(destination[sizeof(ulong)..]);
        return length;
    }

    private static int WriteShortSuffix(ulong head, int length, Span<byte> destination)
    {
        for (var i = 0; i < length; i++)
            destination[i] = (byte)(head >> (56 - (i * 8)));
        return length;
    }

    private static byte* InsertReference(byte* page, int index, ReadOnlySpan<byte> key, ushort mark, uint recorded, PageLink link, int beginning = 0)
    {
        var suffix = key[Page.PrefixLength(page)..];
        var header = ReferenceCellHeader(mark, recorded);
        var cell = Insert(page, index, suffix, ReferenceCellBytes(header, suffix.Length) + beginning, isAligned: true);
        *(ushort*)cell = (ushort)suffix.Length;
        *(ushort*)(cell + 2) = mark;
        *(uint*)(cell + 4) = recorded;
        *(PageLink*)(cell + LinkInCell) = link;
        CopyRest(suffix, cell + header);
        Page.LeafHasReferences(page) = true;
        return cell;
    }

    /// <summary>Allocates a head, a slot and a cell, and returns the cell.</summary>
    private static byte* Insert(byte* page, int index, ReadOnlySpan<byte> suffix, int cellBytes, bool isAligned = false)
    {
        var start = Page.CellsStart(page) - cellBytes;
        var count = Page.Count(page);
        Invariant.Check(start >= Page.HeaderBytes + ((count + 1) * Page.EntryBytes), $"A cell of {cellBytes} bytes does not fit into a page with a gap of "
            + $"{Page.Gap(page)} bytes.");
        var heads = Page.Heads(page);
        var slots = Page.Slots(page);
        var slotsAfter = (ushort*)(heads + count + 1);
        if (index < count)
        {
            Move(slots + index, slotsAfter + index + 1, (count - index) * sizeof(ushort));
            Move(slots, slotsAfter, index * sizeof(ushort));
            Move(heads + index, heads + index + 1, (count - index) * sizeof(ulong));
        }
        else
        {
            Move(slots, slotsAfter, count * sizeof(ushort));
        }
        heads[index] = Page.Head(suffix);
        Page.Count(page) = (ushort)(count + 1);
        Page.CellsStart(page) = (ushort)start;
        var cell = isAligned ? Aligned(start) : start;
        slotsAfter[index] = (ushort)cell;
        return page + cell;
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static void CopyRest(ReadOnlySpan<byte> suffix, byte* destination)
    {
        if (suffix.Length > sizeof(ulong))
            suffix[sizeof(ulong)..].CopyTo(new Span<byte>(destination, suffix.Length - sizeof(ulong)));
    }

    /// <summary>Bytes of a suffix that are not in its head.</summary>
    public static int RestLength(int suffixLength) => Math.Max(0, suffixLength - sizeof(ulong));

    /// <summary>
    /// Without the beginning of a divided value. Includes bytes for aligning the cell to eight, so that it takes the same space at every offset.
    /// </summary>
    private static int ReferenceCellBytes(byte* cell, int suffixLength) => ReferenceCellBytes(ReferenceCellHeader(cell), suffixLength);

    private static int ReferenceCellBytes(int header, int suffixLength) => header + RestLength(suffixLength) + AlignmentBytes;

    /// <summary>Bytes before the rest of the key in a leaf's cell that refers to other pages.</summary>
    public static int ReferenceCellHeader(byte* cell) => ReferenceCellHeader(*(ushort*)(cell + 2), *(uint*)(cell + 4));

    private static int ReferenceCellHeader(ushort mark, uint recorded) =>
        mark == TreeMark ? TreeCellHeader : OverflowRun.IsCompressed(recorded) ? CompressedCellHeader : OverflowCellHeader;

    private static int Aligned(int bytes) => (bytes + 7) & ~7;

    private static void Move(void* from, void* to, int bytes) => Buffer.MemoryCopy(from, to, bytes, bytes);
}
