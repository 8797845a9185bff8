using System.Numerics;
using System.Runtime.InteropServices;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Pages;

/// <summary>
/// Native memory for pages that are not in the file yet. Single pages come from slabs of 1 MiB, of which some empty ones are kept and the others returned
/// to the system in steps (<see cref="GiveBackSome"/>); longer runs are allocated one by one, and large ones are kept likewise. The blocks of deltas are cut
/// out of single pages, each of which has blocks of one size. What the system has given is counted page by page, so that free pages between those in use can
/// be returned too. Writer only.
/// </summary>
/// <param name="emptyBytesMax">Bytes of empty slabs, and of free runs, that are kept.</param>
internal sealed unsafe class ScratchPool(long emptyBytesMax) : IDisposable
{
    /// <summary>As many as a word of <see cref="Slab"/> has bits.</summary>
    private const int SlabPages = 128;
    private const int SlabBytes = SlabPages * Page.Bytes;

    /// <summary>
    /// A pool with this many slabs gets the memory of further ones at once, in one call. A fault per 4 KiB took a third of the writer's time in a load. A
    /// pool with less, as that of a quiescent shard, takes only the memory that it touches.
    /// </summary>
    private const int TouchedSlabsMax = 8;

    /// <summary>Pages of the shortest run that is kept. The memory of a shorter one costs less than to look for it among many.</summary>
    private const int KeptRunPagesMin = 32;

    /// <summary>The largest block.</summary>
    public const int BlockBytesMax = 4096;

    /// <summary>Sizes of blocks, close enough to each other that a delta wastes a fifth of its block on average.</summary>
    private static readonly int[] _blockBytes = [256, 384, 512, 768, 1024, 1536, 2048, BlockBytesMax];

    private readonly Dictionary<nint, Slab> _slabs = [];

    /// <summary>Slabs with free pages; pages are taken from the last one. Each slab stores its index.</summary>
    private readonly List<Slab> _open = [];

    /// <summary>Empty slabs beyond those that are kept, all of them without an index. They are given back in steps, unless they are needed before.</summary>
    private readonly Stack<Slab> _surplus = new();

    /// <summary>The runs in use, with the pages that each has.</summary>
    private readonly Dictionary<nint, int> _runs = [];

    /// <summary>Free runs that are kept, the oldest first.</summary>
    private readonly List<(nint Memory, int Pages)> _keptRuns = [];

    /// <summary>Pages with free blocks, by the size of these; blocks are taken from the last one. Each stores its index.</summary>
    private readonly List<CutPage>[] _cut = [.. _blockBytes.Select(static _ => new List<CutPage>())];

    /// <summary>The empty ones among the slabs with free pages.</summary>
    private int _empty;
    private long _emptyMax = emptyBytesMax / SlabBytes;

    /// <summary>Bytes that became free since the last <see cref="GiveBackSome"/>.</summary>
    private long _bytesFreed;
    private long _bytes;
    private long _bytesOfFolds;
    private long _holeBytes;
    private long _reservedBytes;
    private long _keptRunBytes;
    private long _runBytes;
    private long _runBytesTaken;

    ~ScratchPool() => Free();

    /// <summary>Bytes in use. Any thread.</summary>
    public long Bytes => Volatile.Read(ref _bytes);

    /// <summary>Bytes that deltas would take more if they were pages, as they are in the file once a checkpoint has folded them. Any thread.</summary>
    public long BytesOfFolds => Volatile.Read(ref _bytesOfFolds);

    /// <summary>Bytes that the system has given, in use or not. Any thread.</summary>
    public long ReservedBytes => Volatile.Read(ref _reservedBytes);

    /// <summary>Bytes of the runs in use. Any thread.</summary>
    public long RunBytes => Volatile.Read(ref _runBytes);

    /// <summary>Bytes of all runs so far. Any thread.</summary>
    public long RunBytesTaken => Volatile.Read(ref _runBytesTaken);

    /// <summary>
    /// Bytes between deltas, and behind runs that are shorter than their memory. They are returned with the last delta of their page, or the run. Any thread.
    /// </summary>
    public long HoleBytes => Volatile.Read(ref _holeBytes);

    /// <summary>Whether there is more free memory than what is kept, for <see cref="GiveBackSome"/>.</summary>
    public bool HasSurplus => _surplus.Count > 0 || _keptRunBytes > KeptRunBytesMax;

    // What empty slabs leave.
    private long KeptRunBytesMax => Math.Max(0, (_emptyMax - _empty) * SlabBytes);

    /// <summary>Number of pages in a scratch page or run.</summary>
    public static int PagesOf(byte* page) => Page.Type(page) == PageType.Overflow ? OverflowRun.PagesFor(Page.ValueLength(page)) : 1;

    /// <summary>Bytes of a scratch page, run or delta.</summary>
    public static long BytesOf(byte* page) => Page.Type(page) == PageType.Delta ? DeltaPage.Bytes(page) : (long)PagesOf(page) * Page.Bytes;

    /// <summary>The size of the smallest block with room for so many bytes.</summary>
    public static int BlockBytesFor(int bytes)
    {
        foreach (var size in _blockBytes)
        {
            if (bytes <= size)
                return size;
        }
        throw new ArgumentOutOfRangeException(nameof(bytes), bytes, $"A block has at most {BlockBytesMax} bytes.");
    }

    /// <summary>Memory for a delta, with undefined content.</summary>
    /// <param name="bytes">The size of a block, as from <see cref="BlockBytesFor"/>.</param>
    public byte* RentBlock(int bytes)
    {
        Volatile.Write(ref _bytes, _bytes + bytes);
        Volatile.Write(ref _bytesOfFolds, _bytesOfFolds + Page.Bytes - bytes);
        var open = _cut[Array.IndexOf(_blockBytes, bytes)];
        if (open.Count == 0)
        {
            var taken = Take();
            var made = new CutPage(taken, bytes) { Index = 0 };
            open.Add(made);
            SlabOf((byte*)taken).SetCut(taken, made);
            Volatile.Write(ref _holeBytes, _holeBytes + Page.Bytes);
        }
        Volatile.Write(ref _holeBytes, _holeBytes - bytes);
        var page = open[^1];
        var block = BitOperations.TrailingZeroCount(page.Free);
        page.Free &= page.Free - 1;
        if (page.Free == 0)
            open.RemoveAt(open.Count - 1);
        return (byte*)page.Memory + (block * bytes);
    }

    /// <summary>Memory for a run of pages, with undefined content.</summary>
    public byte* Rent(int pages)
    {
        Volatile.Write(ref _bytes, _bytes + ((long)pages * Page.Bytes));
        return (byte*)(pages > 1 ? TakeRun(pages) : Take());
    }

    private nint TakeRun(int pages)
    {
        var bytes = (long)pages * Page.Bytes;
        Volatile.Write(ref _runBytes, _runBytes + bytes);
        Volatile.Write(ref _runBytesTaken, _runBytesTaken + bytes);
        // The newest first, which may still be in the processor's cache. One that is a little longer does as well.
        for (var place = _keptRuns.Count - 1; pages >= KeptRunPagesMin && place >= 0; place--)
        {
            var (kept, keptPages) = _keptRuns[place];
            if (keptPages < pages || keptPages > pages + (pages / 8))
                continue;
            _keptRuns.RemoveAt(place);
            _keptRunBytes -= (long)keptPages * Page.Bytes;
            Volatile.Write(ref _holeBytes, _holeBytes + ((long)(keptPages - pages) * Page.Bytes));
            _runs.Add(kept, keptPages);
            return kept;
        }
        var run = (nint)NativeMemory.AlignedAlloc((nuint)bytes, Page.Bytes);
        // All of it in one call, as for a slab; where the kernel refuses, each page is faulted in.
        if (pages >= KeptRunPagesMin && OperatingSystem.IsLinux())
            _ = LibC.Advise((byte*)run, (nuint)bytes, LibC.AdvisePopulateWrite);
        _runs.Add(run, pages);
        Reserve(bytes);
        return run;
    }

    private nint Take()
    {
        if (_open.Count == 0)
            Open(_surplus.TryPop(out var spare) ? spare : AddSlab());
        var slab = _open[^1];
        _empty -= slab.Free.Count == SlabPages ? 1 : 0;
        var page = slab.Free.Pop();
        if (slab.TryTouch(page))
            Reserve(Page.Bytes);
        if (slab.Free.Count == 0)
            Close(slab);
        return page;
    }

    /// <summary>Returns a page, run or delta, which nobody may reach any more.</summary>
    public void Return(byte* page)
    {
        if (Page.Type(page) == PageType.Delta)
        {
            ReturnBlock(page);
            return;
        }
        var pages = PagesOf(page);
        Volatile.Write(ref _bytes, _bytes - ((long)pages * Page.Bytes));
        if (pages > 1)
        {
            var known = _runs.Remove((nint)page, out var taken);
            Invariant.Check(known, $"A scratch run of {pages} pages is returned twice.");
            Volatile.Write(ref _runBytes, _runBytes - ((long)pages * Page.Bytes));
            Volatile.Write(ref _holeBytes, _holeBytes - ((long)(taken - pages) * Page.Bytes));
            PutBackRun((nint)page, taken);
            return;
        }
        PutBack((nint)page);
    }

    private void PutBackRun(nint run, int pages)
    {
        if (pages < KeptRunPagesMin)
        {
            DropRun(run, pages);
            return;
        }
        _keptRuns.Add((run, pages));
        _keptRunBytes += (long)pages * Page.Bytes;
        _bytesFreed += (long)pages * Page.Bytes;
    }

    private void DropKeptRuns(long most)
    {
        var dropped = 0;
        for (; _keptRunBytes > most; dropped++)
        {
            var (run, pages) = _keptRuns[dropped];
            _keptRunBytes -= (long)pages * Page.Bytes;
            DropRun(run, pages);
        }
        _keptRuns.RemoveRange(0, dropped);
    }

    private void DropRun(nint run, int pages)
    {
        var bytes = (long)pages * Page.Bytes;
        if (bytes >= SlabBytes)
            GiveBack((byte*)run, bytes);
        NativeMemory.AlignedFree((void*)run);
        Reserve(-bytes);
    }

    private void ReturnBlock(byte* delta)
    {
        var bytes = DeltaPage.Bytes(delta);
        Volatile.Write(ref _bytes, _bytes - bytes);
        Volatile.Write(ref _bytesOfFolds, _bytesOfFolds - Page.Bytes + bytes);
        var slab = SlabOf(delta);
        var page = slab.CutOf((nint)delta);
        var block = 1u << (int)(((nint)delta - page.Memory) / bytes);
        Invariant.Check(page.BlockBytes == bytes && (page.Free & block) == 0, $"A delta of {bytes} bytes is returned twice, or to a page of others.");
        var open = _cut[Array.IndexOf(_blockBytes, bytes)];
        if (page.Free == 0)
        {
            page.Index = open.Count;
            open.Add(page);
        }
        page.Free |= block;
        Volatile.Write(ref _holeBytes, _holeBytes + bytes);
        if (page.Free != page.AllFree)
            return;
        Volatile.Write(ref _holeBytes, _holeBytes - Page.Bytes);
        var last = open[^1];
        open[page.Index] = last;
        last.Index = page.Index;
        open.RemoveAt(open.Count - 1);
        slab.SetCut(page.Memory, null);
        PutBack(page.Memory);
    }

    private Slab SlabOf(byte* page) => _slabs[(nint)page & ~(SlabBytes - 1)];

    private void PutBack(nint page)
    {
        var slab = SlabOf((byte*)page);
        if (slab.Free.Count == 0)
        {
            slab.Index = _open.Count;
            _open.Add(slab);
        }
        slab.Free.Push(page);
        _bytesFreed += Page.Bytes;
        if (slab.Free.Count < SlabPages)
            return;
        if (_empty < _emptyMax)
        {
            _empty++;
            return;
        }
        Close(slab);
        _surplus.Push(slab);
    }

    /// <summary>
    /// Returns some of the free memory beyond what is kept to the system: a slab, or twice what became free since the last call. Pages that are returned in
    /// another order than they were taken in leave many slabs empty in one step, and the writer would wait until the system has taken all of them.
    /// </summary>
    public void GiveBackSome()
    {
        var left = Math.Max(SlabBytes, 2 * _bytesFreed);
        for (_bytesFreed = 0; left > 0 && _surplus.TryPop(out var slab); left -= SlabBytes)
            Drop(slab);
        DropKeptRuns(Math.Max(KeptRunBytesMax, _keptRunBytes - Math.Max(0, left)));
    }

    /// <summary>
    /// Keeps as many bytes of empty slabs and free runs from now on. If they are fewer than before, those beyond are returned at once; what was beyond before
    /// waits for <see cref="GiveBackSome"/>.
    /// </summary>
    public void KeepEmpty(long bytesMax)
    {
        var before = _emptyMax;
        _emptyMax = bytesMax / SlabBytes;
        if (_emptyMax >= before)
            return;
        DropEmpty(_emptyMax);
        DropKeptRuns(KeptRunBytesMax);
    }

    /// <summary>Returns the memory of all free pages to the system.</summary>
    public void ReturnFree()
    {
        while (_surplus.TryPop(out var slab))
            Drop(slab);
        DropEmpty(most: 0);
        DropKeptRuns(most: 0);
        // Elsewhere the memory of single pages cannot be returned.
        if (!OperatingSystem.IsLinux())
            return;
        foreach (var slab in _open)
            ReturnFree(slab);
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        Free();
        GC.SuppressFinalize(this);
    }

    private void DropEmpty(long most)
    {
        for (var index = _open.Count - 1; index >= 0 && _empty > most; index--)
        {
            var slab = _open[index];
            if (slab.Free.Count < SlabPages)
                continue;
            Close(slab);
            _empty--;
            Drop(slab);
        }
    }

    private void ReturnFree(Slab slab)
    {
        var touched = slab.TouchedFree();
        for (var first = 0; first < SlabPages; first++)
        {
            var end = first;
            while (end < SlabPages && (touched >> end & 1) != 0)
                end++;
            if (end == first)
                continue;
            GiveBack((byte*)slab.Memory + (first * Page.Bytes), (long)(end - first) * Page.Bytes);
            Reserve(-(long)(end - first) * Page.Bytes);
            first = end;
        }
        slab.Forget(touched);
    }

    private void Reserve(long bytes) => Volatile.Write(ref _reservedBytes, _reservedBytes + bytes);

    // The allocator may keep the address range; this returns its memory to the system anyway.
    private static void GiveBack(byte* memory, long bytes)
    {
        if (OperatingSystem.IsLinux())
            _ = LibC.Advise(memory, (nuint)bytes, LibC.AdviseDontNeed);
    }

    /// <summary>A slab that is new and in no list.</summary>
    private Slab AddSlab()
    {
        // Aligned to its size, so that a page's address identifies its slab.
        var memory = (byte*)NativeMemory.AlignedAlloc(SlabBytes, SlabBytes);
        var slab = new Slab((nint)memory);
        // Kernels before 5.14 refuse; then each page is faulted in.
        if (OperatingSystem.IsLinux() && _slabs.Count >= TouchedSlabsMax && LibC.Advise(memory, SlabBytes, LibC.AdvisePopulateWrite) == 0)
        {
            slab.TouchAll();
            Reserve(SlabBytes);
        }
        for (var i = SlabPages - 1; i >= 0; i--)
            slab.Free.Push((nint)(memory + (i * Page.Bytes)));
        _slabs.Add(slab.Memory, slab);
        return slab;
    }

    /// <summary>Adds an empty slab to those with free pages.</summary>
    private void Open(Slab slab)
    {
        slab.Index = _open.Count;
        _open.Add(slab);
        _empty++;
    }

    /// <summary>Returns an empty slab that is in no list.</summary>
    private void Drop(Slab slab)
    {
        _slabs.Remove(slab.Memory);
        GiveBack((byte*)slab.Memory, SlabBytes);
        NativeMemory.AlignedFree((void*)slab.Memory);
        Reserve(-slab.TouchedBytes);
    }

    private void Close(Slab slab)
    {
        var last = _open[^1];
        _open[slab.Index] = last;
        last.Index = slab.Index;
        _open.RemoveAt(_open.Count - 1);
    }

    private void Free()
    {
        foreach (var slab in _slabs.Keys)
            NativeMemory.AlignedFree((void*)slab);
        foreach (var memory in _runs.Keys)
            NativeMemory.AlignedFree((void*)memory);
        foreach (var (memory, _) in _keptRuns)
            NativeMemory.AlignedFree((void*)memory);
        _slabs.Clear();
        _runs.Clear();
        _keptRuns.Clear();
        _open.Clear();
        _surplus.Clear();
    }

    /// <summary>A page that is cut into blocks of one size.</summary>
    private sealed class CutPage(nint memory, int blockBytes)
    {
        public nint Memory { get; } = memory;

        public int BlockBytes { get; } = blockBytes;

        /// <summary>One bit for each block.</summary>
        public uint AllFree { get; } = uint.MaxValue >> (32 - (Page.Bytes / blockBytes));

        /// <summary>Its free blocks, one bit each.</summary>
        public uint Free { get; set; } = uint.MaxValue >> (32 - (Page.Bytes / blockBytes));

        /// <summary>Index among those with free blocks of the same size.</summary>
        public int Index { get; set; }
    }

    /// <summary>1 MiB of pages.</summary>
    private sealed class Slab(nint memory)
    {
        /// <summary>The pages that were used since their memory was last returned, one bit each.</summary>
        private UInt128 _touched;

        public nint Memory { get; } = memory;

        public Stack<nint> Free { get; } = new(SlabPages);

        /// <summary>The pages that are cut into blocks; null until one is.</summary>
        private CutPage?[]? _cut;

        /// <summary>The page of blocks with this address in it.</summary>
        public CutPage CutOf(nint block) => _cut![(block - Memory) / Page.Bytes]!;

        /// <summary>Sets or removes it.</summary>
        public void SetCut(nint page, CutPage? cut) => (_cut ??= new CutPage?[SlabPages])[(page - Memory) / Page.Bytes] = cut;

        /// <summary>Index among the slabs with free pages.</summary>
        public int Index { get; set; }

        /// <summary>Bytes of the pages that the system has given memory for.</summary>
        public long TouchedBytes => (long)UInt128.PopCount(_touched) * Page.Bytes;

        /// <summary>Notes that a page is about to be used. False if the system has given its memory already.</summary>
        public bool TryTouch(nint page)
        {
            var bit = BitOf(page);
            if ((_touched & bit) != 0)
                return false;
            _touched |= bit;
            return true;
        }

        /// <summary>The system has given the memory of all pages.</summary>
        public void TouchAll() => _touched = UInt128.MaxValue;

        /// <summary>The free pages with memory of the system, one bit each.</summary>
        public UInt128 TouchedFree()
        {
            var free = UInt128.Zero;
            foreach (var page in Free)
                free |= BitOf(page);
            return free & _touched;
        }

        /// <summary>The memory of these pages was returned.</summary>
        public void Forget(UInt128 pages) => _touched &= ~pages;

        private UInt128 BitOf(nint page) => UInt128.One << (int)((page - Memory) / Page.Bytes);
    }
}
