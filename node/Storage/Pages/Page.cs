using System.Buffers.Binary;
using System.Runtime.CompilerServices;
using System.Runtime.Intrinsics.X86;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Pages;

/// <summary>
/// The header that starts every page except a meta page, and the layout that leaf and branch share: after the header the dense array of key heads, then
/// the slots, the gap, the cells, and at the page's end the prefix (FORMAT.md, "Page header"). Pure; called by whoever owns the page.
/// </summary>
/// <remarks>
/// Some fields of the header are used only in scratch memory and zero in the file: a leaf's count of insertions at its end, and in the last 24 bytes the index
/// in the batch's list of its pages, the number of the batch that created the page, and the location in the file that a checkpoint gave it. Others are in the
/// place of fields that only pages of the file have.
/// </remarks>
internal static unsafe class Page
{
    /// <summary>Bytes of a page.</summary>
    public const int Bytes = 8192;

    /// <summary>Bytes of the header.</summary>
    public const int HeaderBytes = 64;

    /// <summary>Bytes for heads, slots, cells and prefix.</summary>
    public const int BodyBytes = Bytes - HeaderBytes;

    /// <summary>A head and a slot.</summary>
    public const int EntryBytes = sizeof(ulong) + sizeof(ushort);

    /// <summary>Longest key, in bytes.</summary>
    public const int KeyBytesMax = KvLimits.KeyBytesMax;

    /// <summary>Longest value with its header, in bytes.</summary>
    public const int ValueBytesMax = KvLimits.ValueBytesMax + 64;

    private const int CacheLineBytes = 64;

    /// <summary>
    /// Where the last of the first cache lines begins that a search is likely to read: after the header they have the heads and slots of 70 entries.
    /// </summary>
    private const int PrefetchedBytes = 11 * CacheLineBytes;

    public static ref uint Checksum(byte* page) => ref *(uint*)page;

    public static ref PageType Type(byte* page) => ref *(PageType*)(page + 4);

    /// <summary>Whether a leaf has cells that refer to other pages: overflow runs or trees.</summary>
    public static ref bool LeafHasReferences(byte* page) => ref *(bool*)(page + 5);

    public static ref ushort Count(byte* page) => ref *(ushort*)(page + 6);

    /// <summary>The page's number in the file.</summary>
    public static ref ulong Number(byte* page) => ref *(ulong*)(page + 8);

    /// <summary>The etag of the checkpoint that wrote it.</summary>
    public static Etag Etag(byte* page) => new(*(ulong*)(page + 24), *(ulong*)(page + 16));

    /// <summary>
    /// Scratch only: the batch that retired the page while a checkpoint that reaches it was in progress; 0 before that. In the place of the etag's change.
    /// </summary>
    public static ref ulong LeftBy(byte* page) => ref *(ulong*)(page + 16);

    /// <summary>Scratch only: what the checkpoint that placed the page has found in it and below it. In the place of the etag's epoch.</summary>
    public static ref SubtreeSummary Summary(byte* page) => ref *(SubtreeSummary*)(page + 24);

    public static void SetEtag(byte* page, Etag etag) => (*(ulong*)(page + 16), *(ulong*)(page + 24)) = (etag.Change, etag.Epoch);

    public static ref ushort PrefixLength(byte* page) => ref *(ushort*)(page + 32);

    /// <summary>Offset of the lowest cell.</summary>
    public static ref ushort CellsStart(byte* page) => ref *(ushort*)(page + 34);

    /// <summary>Bytes among the cells that no slot refers to.</summary>
    public static ref ushort Garbage(byte* page) => ref *(ushort*)(page + 36);

    /// <summary>Scratch only: how many of a leaf's last insertions, one after the other, were at its end.</summary>
    public static ref ushort Appended(byte* page) => ref *(ushort*)(page + 38);

    /// <summary>
    /// In an overflow run, how many of the value's first bytes are in the leaf's cell and not in the run; 0 if it is not divided. In the place of the offset of
    /// the lowest cell.
    /// </summary>
    public static ref ushort BytesInLeaf(byte* run) => ref *(ushort*)(run + 34);

    /// <summary>Bytes of the value in an overflow run; they follow the header.</summary>
    public static ref uint ValueLength(byte* page) => ref *(uint*)(page + 40);

    /// <summary>
    /// Scratch only, in a leaf of the open batch: one more than the index among the leaves that may become deltas of their bases; 0 if it must stay whole. In
    /// the place of an overflow run's length. Formatting a page clears it, so what is split or merged stays whole.
    /// </summary>
    public static ref int CopyNumber(byte* page) => ref *(int*)(page + 40);

    /// <summary>Scratch only: index in the batch's list of its pages.</summary>
    public static ref int ScratchIndex(byte* page) => ref *(int*)(page + 44);

    /// <summary>Scratch only: the batch that created the page; only that batch may change it.</summary>
    public static ref ulong Batch(byte* page) => ref *(ulong*)(page + 48);

    /// <summary>Scratch only: where a checkpoint placed the page (a reference; the checksum is in the page's own field), or a mark with bit 0 set.</summary>
    public static ref PageRef Placed(byte* page) => ref *(PageRef*)(page + 56);

    public static ulong* Heads(byte* page) => (ulong*)(page + HeaderBytes);

    public static ushort* Slots(byte* page) => (ushort*)(page + HeaderBytes + (Count(page) * sizeof(ulong)));

    public static byte* Cell(byte* page, int index) => page + Slots(page)[index];

    public static ReadOnlySpan<byte> Prefix(byte* page) => new(page + Bytes - PrefixLength(page), PrefixLength(page));

    /// <summary>Free bytes between slots and cells.</summary>
    public static int Gap(byte* page) => CellsStart(page) - HeaderBytes - (Count(page) * EntryBytes);

    /// <summary>Bytes of the body in use.</summary>
    public static int Used(byte* page) => BodyBytes - Gap(page) - Garbage(page);

    /// <summary>Bytes for a prefix of this length, including the padding before it.</summary>
    public static int PrefixBytes(int prefixLength) => (prefixLength + 7) & ~7;

    /// <summary>The first eight bytes as a number with the same order; shorter keys are padded with zeros.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static ulong Head(ReadOnlySpan<byte> suffix)
    {
        if (suffix.Length >= sizeof(ulong))
            return BinaryPrimitives.ReadUInt64BigEndian(suffix);
        var head = 0ul;
        for (var i = 0; i < suffix.Length; i++)
            head |= (ulong)suffix[i] << (56 - (i * 8));
        return head;
    }

    /// <summary>Formats an empty page with a prefix, whose bytes must not be in this page.</summary>
    /// <param name="keepOwner">Keeps the fields that tie a scratch page to its batch.</param>
    public static void Format(byte* page, PageType type, ReadOnlySpan<byte> prefix, bool keepOwner = false)
    {
        // Memory that was never written is not read: the kernel would map zeros for the read, and replace them at the write behind it.
        var (index, batch, placed) = keepOwner ? (ScratchIndex(page), Batch(page), Placed(page)) : default;
        new Span<byte>(page, Bytes).Clear();
        if (keepOwner)
            (ScratchIndex(page), Batch(page), Placed(page)) = (index, batch, placed);
        Type(page) = type;
        PrefixLength(page) = (ushort)prefix.Length;
        prefix.CopyTo(new Span<byte>(page + Bytes - prefix.Length, prefix.Length));
        CellsStart(page) = (ushort)(Bytes - PrefixBytes(prefix.Length));
    }

    /// <summary>
    /// Asks the processor for what a search of a page reads: the header, the heads and slots of a typical leaf, and the prefix, with which comes the address
    /// translation of the second half. A search would otherwise wait for one cache line after the other.
    /// </summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static void Prefetch(byte* page)
    {
        if (!Sse.IsSupported)
            return;
        for (var offset = 0; offset <= PrefetchedBytes; offset += CacheLineBytes)
            Sse.Prefetch0(page + offset);
        Sse.Prefetch0(page + Bytes - CacheLineBytes);
    }

    /// <summary>
    /// Asks for what a search of a delta reads first: the smallest ones as a whole, of others the header with the heads and slots of 19 entries. To ask for as
    /// much as of a page would have the processor wait with its base, which it reads next.
    /// </summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static void PrefetchDelta(byte* delta)
    {
        if (!Sse.IsSupported)
            return;
        Sse.Prefetch0(delta);
        Sse.Prefetch0(delta + CacheLineBytes);
        Sse.Prefetch0(delta + (2 * CacheLineBytes));
        Sse.Prefetch0(delta + (3 * CacheLineBytes));
    }

    /// <summary>Asks for the header of a page.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static void PrefetchHeader(byte* page)
    {
        if (Sse.IsSupported)
            Sse.Prefetch0(page);
    }

    /// <summary>Asks for the cache line of something in managed memory, and for the next one.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static void PrefetchManaged<T>(ref readonly T place)
    {
        if (!Sse.IsSupported)
            return;
        // What the collector moves meanwhile was asked for in vain.
        var line = (byte*)Unsafe.AsPointer(in place);
        Sse.Prefetch0(line);
        Sse.Prefetch0(line + CacheLineBytes);
    }

    /// <summary>Asks for the two cache lines behind that in which a leaf's cell begins: the value's end would be waited for after the cell's length.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static void PrefetchCell(byte* cell)
    {
        if (!Sse.IsSupported)
            return;
        Sse.Prefetch0(cell + CacheLineBytes);
        Sse.Prefetch0(cell + (2 * CacheLineBytes));
    }

    /// <summary>
    /// Asks for two cache lines of a page that a scan will enter next, others for each entry that it passes until then: from the page's end, where the first
    /// cells of a page filled in order are.
    /// </summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static void PrefetchBody(byte* page, int step)
    {
        if (!Sse.IsSupported)
            return;
        var line = page + ((Bytes - ((step + 1) * 2 * CacheLineBytes)) & (Bytes - 1));
        Sse.Prefetch0(line);
        Sse.Prefetch0(line + CacheLineBytes);
    }

    /// <summary>Computes the checksum of a page or run, including the header in its present state.</summary>
    public static uint ComputeChecksum(byte* page, int bytes) => Crc32C.Of(new ReadOnlySpan<byte>(page + 4, bytes - 4));
}
