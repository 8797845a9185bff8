using System.Numerics;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Pages;

/// <summary>
/// Resolves references to pages to their addresses in memory. Used by readers on any thread, the writer and the checkpoint executor. An exception means
/// that a page of the file does not match its parent's reference.
/// </summary>
/// <remarks>
/// The file is mapped in pieces, and a piece is added when the file grows into it. None is moved or removed while the file is open, so nobody holds an
/// address that could become invalid: whoever sees a reference to a page also sees the piece with the page, which was added before.
/// </remarks>
internal sealed unsafe class PageSpace
{
    /// <summary>Bytes by which each piece extends into the next, so that a run that begins in a piece is in its memory as a whole.</summary>
    private const long OverlapBytes = 16 << 20;

    /// <summary>
    /// Runs from this length on are not accessed before the system was asked whether all of them is in memory, which takes less than a tenth of copying them.
    /// Of shorter ones only <see cref="ForgetEvicted"/> knows.
    /// </summary>
    private const int RunPagesAsked = 16;

    private readonly IStorageFile _file;
    private readonly Piece* _pieces;
    private readonly int _pieceShift;

    /// <summary>The bits of pieces that are not mapped: no page is checked.</summary>
    private readonly ulong* _noneChecked;
    private int _piecesMapped;

    [ThreadStatic]
    private static long _readsOfThread;

    /// <summary>Maps the file. It does not own the file or the mapping, which is released with the file.</summary>
    /// <param name="file">The file.</param>
    /// <param name="pieceBytes">The size of a piece in bytes, a power of two, from 1 MiB on.</param>
    public PageSpace(IStorageFile file, long pieceBytes)
    {
        Invariant.Check(BitOperations.IsPow2(pieceBytes) && pieceBytes >= 1 << 20, $"A data file cannot be mapped in pieces of {pieceBytes} bytes.");
        _file = file;
        _pieceShift = BitOperations.Log2((ulong)pieceBytes);
        var pieces = (FreeMap.FilePagesMax * Page.Bytes) >> _pieceShift;
        _pieces = (Piece*)NativeMemory.Alloc((nuint)pieces, (nuint)sizeof(Piece));
        _noneChecked = NewBits();
        for (var piece = 0; piece < pieces; piece++)
            _pieces[piece] = new Piece { Checked = _noneChecked - FirstWord(piece) };
        Reserve(file.Length / Page.Bytes);
    }

    ~PageSpace()
    {
        for (var piece = 0; piece < _piecesMapped; piece++)
            FreeBits(_pieces[piece].Checked + FirstWord(piece));
        FreeBits(_noneChecked);
        NativeMemory.Free(_pieces);
    }

    /// <summary>
    /// How often this thread has read pages of any data file into memory. The writer compares two looks, to end a step that waits for the disk again and again
    /// (<c>StoreOptions.StepReadsMax</c>).
    /// </summary>
    public static long ReadsOfThread => _readsOfThread;

    /// <summary>Called for every damaged page before the exception is thrown; any thread. May be null.</summary>
    public Action<CorruptStoreException>? Damaged { get; set; }

    /// <summary>
    /// Maps what is missing for a file of this many pages. Called before the file grows, hence before there are references to its new pages. Checkpoint
    /// executor.
    /// </summary>
    /// <exception cref="StorageIoException">The system does not map it.</exception>
    public void Reserve(long pages)
    {
        for (; (long)_piecesMapped << _pieceShift < pages * Page.Bytes; _piecesMapped++)
        {
            var start = (long)_piecesMapped << _pieceShift;
            _pieces[_piecesMapped].Map = _file.Map(start, (1L << _pieceShift) + OverlapBytes) - start;
            Volatile.Write(ref *(nint*)&_pieces[_piecesMapped].Checked, (nint)(NewBits() - FirstWord(_piecesMapped)));
        }
    }

    /// <summary>The memory of a page that needs no check: a scratch page, or one known to be intact.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public byte* Locate(PageRef reference) => reference.IsScratch ? reference.Memory : PieceOf(reference)->Map + reference.Value;

    /// <summary>
    /// The memory of a page or run. On the first access since the open or since the page was written, it is read with a call that can report an error, not
    /// through the mapping, and its checksum is compared with its parent's.
    /// </summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public byte* Resolve(PageLink* link) => Resolve(PageLink.Load(link), link);

    /// <summary>Resolves a leaf, which may be a delta, or a branch.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public byte* ResolveNode(PageLink* link)
    {
        var reference = PageLink.Load(link);
        if (reference.IsDelta)
        {
            Page.PrefetchDelta(reference.Memory);
            return reference.Memory;
        }
        Page.Prefetch(Locate(reference));
        return AsNode(reference, Resolve(reference, link));
    }

    /// <summary>Resolves a leaf or branch to which a scan goes on; if it has to be read, as the next one of the file.</summary>
    /// <param name="link">The link to it.</param>
    /// <param name="again">Whether the page is also read if it was checked before, because it may have left memory since.</param>
    public byte* ResolveNext(PageLink* link, bool again)
    {
        var reference = PageLink.Load(link);
        if (reference.IsDelta)
        {
            Page.PrefetchDelta(reference.Memory);
            return reference.Memory;
        }
        Page.Prefetch(Locate(reference));
        if (!reference.IsScratch && !IsChecked(PieceOf(reference), reference.Number))
            CheckPage(reference, link->Checksum, isNext: true);
        else if (!reference.IsScratch && again)
            Read(reference.Number, 1, isNext: true);
        return AsNode(reference, Locate(reference));
    }

    /// <summary>The base of a delta, a leaf of the file.</summary>
    public byte* ResolveBase(byte* delta)
    {
        var link = DeltaPage.Base(delta);
        return ResolveNode(&link);
    }

    /// <summary>The base of a delta to which a scan goes on.</summary>
    /// <inheritdoc cref="ResolveNext"/>
    public byte* ResolveNextBase(byte* delta, bool again)
    {
        var link = DeltaPage.Base(delta);
        return ResolveNext(&link, again);
    }

    /// <summary>The base of a delta, which is read by a call that can report an error even if it was checked before.</summary>
    public byte* ResolveBaseAgain(byte* delta)
    {
        var link = DeltaPage.Base(delta);
        return ResolveNodeAgain(&link);
    }

    /// <summary>Resolves the run to which a leaf's cell refers. It must be one of a value of the length in the cell, divided at the same place.</summary>
    /// <param name="link">The link in the cell.</param>
    /// <param name="valueLength">The bytes of the value in the run (<see cref="TreePage.OverflowLength"/>).</param>
    public byte* ResolveRun(PageLink* link, uint valueLength)
    {
        var run = Resolve(link);
        if (OverflowRun.PagesFor(valueLength) is >= RunPagesAsked and var pages && PageLink.Load(link) is { IsScratch: false } reference)
            ReadEvicted(reference.Number, pages);
        var bytesInLeaf = TreePage.BytesInLeaf(link);
        return Page.Type(run) == PageType.Overflow && Page.ValueLength(run) == valueLength && Page.BytesInLeaf(run) == bytesInLeaf
            ? run
            : throw Bad($"'{_file.Path}': page {PageLink.Load(link).Number} is not an overflow run with {valueLength} bytes of a value behind the first "
                + $"{bytesInLeaf}, although its leaf refers to it as one.");
    }

    /// <summary>Makes the next access check the page, because it was rewritten. Called before any reference to it is published.</summary>
    public void Forget(long number) => Interlocked.And(ref PieceOf(PageRef.ToFile(number))->Checked[number / 64], ~(1ul << (int)(number % 64)));

    /// <summary>
    /// Makes the next access of pages that have left memory since they were checked read and check them again. Asks the system, so that no access need. Any
    /// thread, not after the file was closed.
    /// </summary>
    /// <param name="first">Where to begin, a multiple of 64.</param>
    /// <param name="inMemory">Room for the system's answer; as many pages are asked for as it has room for.</param>
    /// <param name="forgotten">Increased by the number of these pages.</param>
    /// <returns>The page to go on with, or 0 at the end of the file.</returns>
    public long ForgetEvicted(long first, Span<byte> inMemory, ref long forgotten)
    {
        var file = _file.Length / Page.Bytes;
        // A word of bits belongs to one piece.
        var piecePages = (1L << _pieceShift) / Page.Bytes;
        var end = Math.Min(file, Math.Min(first + (inMemory.Length * (long)Environment.SystemPageSize / Page.Bytes), ((first / piecePages) + 1) * piecePages));
        if (first >= end)
            return 0;
        var piece = PieceOf(PageRef.ToFile(first));
        var isAsked = false;
        for (var word = first / 64; word * 64 < end; word++)
        {
            var known = Volatile.Read(ref piece->Checked[word]);
            if (known == 0)
                continue;
            // The system is not asked before a checked page is found, because most of a large file may never have been read.
            if (!isAsked && !_file.TryTellInMemory(piece->Map + (first * Page.Bytes), first * Page.Bytes, (end - first) * Page.Bytes, inMemory))
                return 0;
            isAsked = true;
            var evicted = 0ul;
            for (var rest = known; rest != 0; rest &= rest - 1)
            {
                var bit = BitOperations.TrailingZeroCount(rest);
                if ((word * 64) + bit < end && !IsInMemory(inMemory, (word * 64) + bit - first, 1))
                    evicted |= 1ul << bit;
            }
            if (evicted == 0)
                continue;
            // A page that was checked again meanwhile is checked once more.
            Interlocked.And(ref piece->Checked[word], ~evicted);
            forgotten += BitOperations.PopCount(evicted);
        }
        return end < file ? end : 0;
    }

    /// <summary>Verifies a page's checksums even if it was verified before, and returns its length in pages.</summary>
    /// <param name="reference">The page.</param>
    /// <param name="checksum">The checksum that its parent has.</param>
    /// <param name="isNext">See <see cref="IStorageFile.ReadIntoMap"/>.</param>
    public int CheckPage(PageRef reference, uint checksum, bool isNext = false)
    {
        var number = reference.Number;
        if (number >= _file.Length / Page.Bytes || reference.Value % Page.Bytes != 0)
            throw Bad($"'{_file.Path}': the reference {reference} to page {number} is misaligned or beyond the file's {_file.Length} bytes.");
        var page = Locate(reference);
        Read(number, 1, isNext);
        var isRun = Page.Type(page) == PageType.Overflow;
        var runPages = isRun ? OverflowRun.PagesFor(Page.ValueLength(page)) : 1;
        var isThere = Page.Number(page) == (ulong)number && Page.Checksum(page) == checksum && runPages <= (_file.Length / Page.Bytes) - number
            && !(isRun && Page.ValueLength(page) > Page.ValueBytesMax);
        if (isThere && runPages > 1)
            Read(number + 1, runPages - 1, isNext);
        if (!isThere || Page.ComputeChecksum(page, runPages * Page.Bytes) != checksum)
        {
            throw Bad(
                $"'{_file.Path}': page {number} (offset {reference.Value}) does not match its parent's reference, which has the checksum {checksum:x8}.");
        }
        if (PageStructure.Problem(page) is { } problem)
            throw Bad($"'{_file.Path}': page {number} (offset {reference.Value}) matches its parent's reference, but its structure is invalid: {problem}.");
        Interlocked.Or(ref PieceOf(reference)->Checked[number / 64], 1ul << (int)(number % 64));
        return runPages;
    }

    /// <inheritdoc cref="IStorageFile.ReadsAhead"/>
    public bool ReadsAhead => _file.ReadsAhead;

    /// <summary>
    /// Begins to read pages that will be accessed soon, and does not wait. False if that was not necessary. Without pages it only asks whether the first is in
    /// memory.
    /// </summary>
    public bool TryBeginRead(long number, long count) =>
        number + count <= _file.Length / Page.Bytes && _file.TryBeginReadIntoMap(Locate(PageRef.ToFile(number)), number * Page.Bytes, count * Page.Bytes);

    /// <summary>
    /// Begins to read a leaf or branch that will be accessed soon, or the base of a delta, and does not wait. False if that was not necessary: a changed page
    /// is in memory.
    /// </summary>
    public bool TryBeginRead(PageLink* link) => FileReference(PageLink.Load(link)) is { IsScratch: false } reference && TryBeginRead(reference.Number, 1);

    /// <summary>The reference to a delta's base; otherwise the reference itself.</summary>
    public static PageRef FileReference(PageRef reference) => reference.IsDelta ? DeltaPage.Base(reference.Memory).Reference : reference;

    /// <summary>
    /// Resolves a leaf or branch. It is read by a call that can report an error even if it was checked before, because it may have left memory since. Of a
    /// delta the base is read.
    /// </summary>
    public byte* ResolveNodeAgain(PageLink* link)
    {
        var reference = PageLink.Load(link);
        if (reference.IsDelta)
            ResolveBaseAgain(reference.Memory);
        if (!reference.IsScratch && IsChecked(PieceOf(reference), reference.Number))
            Read(reference.Number, 1);
        return AsNode(reference, Resolve(reference, link));
    }

    /// <summary>Reads pages into the mapping before they are accessed there.</summary>
    /// <exception cref="CorruptStoreException">The pages cannot be read; this is treated like damaged bytes.</exception>
    public void Read(long number, long count, bool isNext = false)
    {
        _readsOfThread++;
        try
        {
            _file.ReadIntoMap(Locate(PageRef.ToFile(number)), number * Page.Bytes, count * Page.Bytes, isNext);
        }
        catch (StorageIoException failure)
        {
            var last = number + count - 1;
            throw Bad(
                $"'{_file.Path}': page {number}{(count > 1 ? $" to {last}" : "")} (offset {number * Page.Bytes}) cannot be read: {failure.Message}", failure);
        }
    }

    /// <summary>Reads pages into the mapping if some of them have left memory.</summary>
    [SkipLocalsInit]
    private void ReadEvicted(long number, int pages)
    {
        var bytes = (long)pages * Page.Bytes;
        Span<byte> inMemory = stackalloc byte[(int)(bytes / Math.Min(Environment.SystemPageSize, Page.Bytes))];
        if (_file.TryTellInMemory(Locate(PageRef.ToFile(number)), number * Page.Bytes, bytes, inMemory) && !IsInMemory(inMemory, 0, pages))
            Read(number, pages);
    }

    /// <summary>Whether the system has told that pages are in memory, counted from the first of which it was asked.</summary>
    private static bool IsInMemory(ReadOnlySpan<byte> told, long page, long pages)
    {
        var from = page * Page.Bytes / Environment.SystemPageSize;
        var end = (((page + pages) * Page.Bytes) + Environment.SystemPageSize - 1) / Environment.SystemPageSize;
        foreach (var one in told[(int)from..(int)end])
        {
            if ((one & 1) == 0)
                return false;
        }
        return true;
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private byte* Resolve(PageRef reference, PageLink* link)
    {
        if (reference.IsScratch)
            return reference.Memory;
        var piece = PieceOf(reference);
        if (!IsChecked(piece, reference.Number))
            CheckPage(reference, link->Checksum);
        return piece->Map + reference.Value;
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static bool IsChecked(Piece* piece, long page) => (Volatile.Read(ref piece->Checked[(ulong)page / 64]) & (1ul << (int)((ulong)page % 64))) != 0;

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private Piece* PieceOf(PageRef reference) => _pieces + (reference.Value >> _pieceShift);

    /// <summary>The word of the bits of all pages in which those of a piece begin.</summary>
    private long FirstWord(int piece) => ((long)piece << _pieceShift) / (64 * Page.Bytes);

    private nuint BytesOfBits => (nuint)FirstWord(1) * sizeof(ulong);

    /// <summary>One bit per page of a piece. The kernel provides memory only where bits are set.</summary>
    private ulong* NewBits() => (ulong*)SparseMemory.Allocate(BytesOfBits);

    private void FreeBits(ulong* bits) => SparseMemory.Free(bits, BytesOfBits);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private byte* AsNode(PageRef reference, byte* page) =>
        Page.Type(page) is PageType.Leaf or PageType.Branch || reference.IsDelta ? page : throw NoNode(reference, page);

    private CorruptStoreException NoNode(PageRef reference, byte* page) =>
        Bad($"'{_file.Path}': page {reference.Number} has type {(byte)Page.Type(page)}, but its parent refers to it as a leaf or branch.");

    /// <summary>The damage that a cell has whose compressed value cannot be decompressed, although its page matches its parent's reference.</summary>
    public CorruptStoreException Undecodable(byte* cell)
    {
        var place = "a changed page";
        for (var piece = 0; piece < _piecesMapped; piece++)
        {
            if (cell - _pieces[piece].Map is var offset && offset >> _pieceShift == piece)
                place = $"page {offset / Page.Bytes} (offset {offset})";
        }
        return Bad($"'{_file.Path}': {place} has a value of {TreePage.CellValueLength(cell)} bytes whose compressed bytes do not give it.");
    }

    private CorruptStoreException Bad(string message, Exception? inner = null)
    {
        var exception = new CorruptStoreException(message, inner);
        Damaged?.Invoke(exception);
        return exception;
    }

    /// <summary>A part of the file in memory. Both addresses are those that page 0 would have.</summary>
    private struct Piece
    {
        /// <summary>The mapping.</summary>
        public byte* Map;

        /// <summary>One bit per page: it was read, and its checksum compared, since the open or since it was written.</summary>
        public ulong* Checked;
    }
}
