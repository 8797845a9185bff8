using System.Runtime.InteropServices;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Pages;

/// <summary>
/// Native memory for pages not yet in the file: single pages from slabs of 1 MiB, of which a few empty ones are kept and others go back to the system; longer runs one by one.
/// Used on the writer only.
/// </summary>
internal sealed unsafe class ScratchPool : IDisposable
{
    private const int SlabPages = 128;
    private const int SlabBytes = SlabPages * Page.Bytes;

    /// <summary>Empty slabs that stay for the next batches: 16 MiB, about what a large transaction takes.</summary>
    private const int EmptySlabsMax = 16;

    private readonly Dictionary<nint, Slab> _slabs = [];

    /// <summary>Slabs with free pages; pages are taken from the last. Each slab knows its index.</summary>
    private readonly List<Slab> _open = [];
    private readonly HashSet<nint> _runs = [];
    private int _empty;
    private long _bytes;
    private long _reservedBytes;

    ~ScratchPool() => Free();

    /// <summary>Bytes in use. Any thread.</summary>
    public long Bytes => Volatile.Read(ref _bytes);

    /// <summary>Bytes taken from the system, in use or not. Any thread.</summary>
    public long ReservedBytes => Volatile.Read(ref _reservedBytes);

    /// <summary>Pages that a scratch page or run takes.</summary>
    public static int PagesOf(byte* page) => Page.Type(page) == PageType.Overflow ? Page.RunPages(Page.ValueLength(page)) : 1;

    /// <summary>Memory for a run of pages, with whatever was in it.</summary>
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

    /// <summary>Takes a page or run back. Nobody may reach it any more.</summary>
    public void Return(byte* page)
    {
        var pages = PagesOf(page);
        Volatile.Write(ref _bytes, _bytes - ((long)pages * Page.Bytes));
        if (pages > 1)
        {
            var known = _runs.Remove((nint)page);
            Invariant.Check(known, $"A scratch run of {pages} pages is given back twice.");
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
        if (slab.Free.Count == SlabPages && ++_empty > EmptySlabsMax)
            Drop(slab);
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        Free();
        GC.SuppressFinalize(this);
    }

    private void AddSlab()
    {
        // At a multiple of its size, so that a page's address names its slab.
        var memory = (byte*)NativeMemory.AlignedAlloc(SlabBytes, SlabBytes);
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
        // The allocator may keep the range; its memory goes back all the same.
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

        /// <summary>Its place among those with free pages.</summary>
        public int Index { get; set; }
    }
}
