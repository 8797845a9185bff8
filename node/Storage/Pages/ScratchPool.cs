using System.Runtime.InteropServices;

namespace KvCluster.Storage.Pages;

/// <summary>
/// Native memory for pages not yet in the file: single pages from slabs of 1 MiB that are kept for reuse, longer runs one by one.
/// Used on the writer only.
/// </summary>
internal sealed unsafe class ScratchPool : IDisposable
{
    private const int SlabPages = 128;

    private readonly List<nint> _slabs = [];
    private readonly Stack<nint> _free = new();
    private readonly HashSet<nint> _runs = [];
    private long _bytes;

    ~ScratchPool() => Free();

    /// <summary>Bytes in use. Any thread.</summary>
    public long Bytes => Volatile.Read(ref _bytes);

    /// <summary>Memory for a run of pages, with whatever was in it.</summary>
    public byte* Rent(int pages)
    {
        Volatile.Write(ref _bytes, _bytes + ((long)pages * Page.Bytes));
        if (pages > 1)
        {
            var run = (nint)NativeMemory.AlignedAlloc((nuint)pages * Page.Bytes, Page.Bytes);
            _runs.Add(run);
            return (byte*)run;
        }
        if (_free.Count == 0)
            AddSlab();
        return (byte*)_free.Pop();
    }

    /// <summary>Takes a page or run back. Nobody may reach it any more.</summary>
    public void Return(byte* page)
    {
        var pages = Page.Type(page) == PageType.Overflow ? Page.RunPages(Page.ValueLength(page)) : 1;
        Volatile.Write(ref _bytes, _bytes - ((long)pages * Page.Bytes));
        if (pages == 1)
        {
            _free.Push((nint)page);
            return;
        }
        var known = _runs.Remove((nint)page);
        Invariant.Check(known, $"A scratch run of {pages} pages is given back twice.");
        NativeMemory.AlignedFree(page);
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        Free();
        GC.SuppressFinalize(this);
    }

    private void AddSlab()
    {
        var slab = (byte*)NativeMemory.AlignedAlloc(SlabPages * Page.Bytes, Page.Bytes);
        _slabs.Add((nint)slab);
        for (var i = SlabPages - 1; i >= 0; i--)
            _free.Push((nint)(slab + (i * Page.Bytes)));
    }

    private void Free()
    {
        foreach (var memory in _slabs)
            NativeMemory.AlignedFree((void*)memory);
        foreach (var memory in _runs)
            NativeMemory.AlignedFree((void*)memory);
        _slabs.Clear();
        _runs.Clear();
        _free.Clear();
    }
}
