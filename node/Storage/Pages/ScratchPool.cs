using System.Runtime.InteropServices;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Pages;

/// <summary>
/// Native memory for pages that are not in the file yet. Single pages come from slabs of 1 MiB, of which a few empty ones are kept and the others returned
/// to the system; longer runs are allocated one by one. Writer only.
/// </summary>
internal sealed unsafe class ScratchPool : IDisposable
{
    private const int SlabPages = 128;
    private const int SlabBytes = SlabPages * Page.Bytes;

    /// <summary>Empty slabs kept for the next batches: 16 MiB, about what a large transaction takes.</summary>
    private const int EmptySlabsMax = 16;

    /// <summary>Empty slabs kept while memory is short.</summary>
    private const int EmptySlabsLeast = 1;

    /// <summary>
    /// A pool with this many slabs gets the memory of further ones at once, in one call. A fault per 4 KiB took a third of the writer's time in a load. A
    /// pool with less, as that of an idle shard, takes only the memory that it touches.
    /// </summary>
    private const int TouchedSlabsMax = 8;

    private readonly Dictionary<nint, Slab> _slabs = [];

    /// <summary>Slabs with free pages; pages are taken from the last one. Each slab stores its index.</summary>
    private readonly List<Slab> _open = [];
    private readonly HashSet<nint> _runs = [];
    private int _empty;
    private int _emptyMax = EmptySlabsMax;
    private long _bytes;
    private long _reservedBytes;

    ~ScratchPool() => Free();

    /// <summary>Bytes in use. Any thread.</summary>
    public long Bytes => Volatile.Read(ref _bytes);

    /// <summary>Bytes allocated from the system, in use or not. Any thread.</summary>
    public long ReservedBytes => Volatile.Read(ref _reservedBytes);

    /// <summary>Number of pages in a scratch page or run.</summary>
    public static int PagesOf(byte* page) => Page.Type(page) == PageType.Overflow ? Page.RunPages(Page.ValueLength(page)) : 1;

    /// <summary>Memory for a run of pages, with undefined content.</summary>
    public byte* Rent(int pages)
    {
        Volatile.Write(ref _bytes, _bytes + ((long)pages * Page.Bytes));
        if (pages > 1)
        {
            var run = (nint)NativeMemory.AlignedAlloc((nuint)pages * Page.Bytes, Page.Bytes);
            _runs.Add(run);
            Volatile.Write(ref _reservedBytes, _reservedBytes + ((long)pages * Page.Bytes));
            return (byte*)run;
        }
        if (_open.Count == 0)
            AddSlab();
        var slab = _open[^1];
        _empty -= slab.Free.Count == SlabPages ? 1 : 0;
        var page = slab.Free.Pop();
        if (slab.Free.Count == 0)
            Close(slab);
        return (byte*)page;
    }

    /// <summary>Returns a page or run, which nobody may reach any more.</summary>
    public void Return(byte* page)
    {
        var pages = PagesOf(page);
        Volatile.Write(ref _bytes, _bytes - ((long)pages * Page.Bytes));
        if (pages > 1)
        {
            var known = _runs.Remove((nint)page);
            Invariant.Check(known, $"A scratch run of {pages} pages is returned twice.");
            NativeMemory.AlignedFree(page);
            Volatile.Write(ref _reservedBytes, _reservedBytes - ((long)pages * Page.Bytes));
            return;
        }
        var slab = _slabs[(nint)page & ~(SlabBytes - 1)];
        if (slab.Free.Count == 0)
        {
            slab.Index = _open.Count;
            _open.Add(slab);
        }
        slab.Free.Push((nint)page);
        if (slab.Free.Count == SlabPages && ++_empty > _emptyMax)
            Drop(slab);
    }

    /// <summary>Keeps fewer empty slabs from now on, and returns those beyond; or as many as usual again.</summary>
    public void KeepEmpty(bool few)
    {
        _emptyMax = few ? EmptySlabsLeast : EmptySlabsMax;
        for (var index = _open.Count - 1; index >= 0 && _empty > _emptyMax; index--)
        {
            if (_open[index].Free.Count == SlabPages)
                Drop(_open[index]);
        }
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        Free();
        GC.SuppressFinalize(this);
    }

    private void AddSlab()
    {
        // Aligned to its size, so that a page's address identifies its slab.
        var memory = (byte*)NativeMemory.AlignedAlloc(SlabBytes, SlabBytes);
        // Kernels before 5.14 refuse; then each page is faulted in.
        if (OperatingSystem.IsLinux() && _slabs.Count >= TouchedSlabsMax)
            _ = LibC.Advise(memory, SlabBytes, LibC.AdvisePopulateWrite);
        var slab = new Slab((nint)memory) { Index = _open.Count };
        for (var i = SlabPages - 1; i >= 0; i--)
            slab.Free.Push((nint)(memory + (i * Page.Bytes)));
        _slabs.Add(slab.Memory, slab);
        _open.Add(slab);
        _empty++;
        Volatile.Write(ref _reservedBytes, _reservedBytes + SlabBytes);
    }

    private void Drop(Slab slab)
    {
        Close(slab);
        _empty--;
        _slabs.Remove(slab.Memory);
        // The allocator may keep the address range; this returns its memory to the system anyway.
        if (OperatingSystem.IsLinux())
            _ = LibC.Advise((byte*)slab.Memory, SlabBytes, LibC.AdviseDontNeed);
        NativeMemory.AlignedFree((void*)slab.Memory);
        Volatile.Write(ref _reservedBytes, _reservedBytes - SlabBytes);
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
        foreach (var memory in _runs)
            NativeMemory.AlignedFree((void*)memory);
        _slabs.Clear();
        _runs.Clear();
        _open.Clear();
    }

    /// <summary>1 MiB of pages.</summary>
    private sealed class Slab(nint memory)
    {
        public nint Memory { get; } = memory;

        public Stack<nint> Free { get; } = new(SlabPages);

        /// <summary>Index among the slabs with free pages.</summary>
        public int Index { get; set; }
    }
}
