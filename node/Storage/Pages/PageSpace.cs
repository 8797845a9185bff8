using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Pages;

/// <summary>
/// Resolves references to pages to their addresses in memory. Used by readers on any thread, the writer and the checkpoint executor. An exception means
/// that a page of the file does not match its parent's reference.
/// </summary>
internal sealed unsafe class PageSpace
{
    private readonly IStorageFile _file;
    private readonly byte* _map;
    private readonly ulong* _checked;

    /// <summary>Maps the file. It does not own the file or the mapping, which is released with the file.</summary>
    public PageSpace(IStorageFile file, long mapBytes)
    {
        _file = file;
        PagesMax = mapBytes / Page.Bytes;
        _map = file.Map(mapBytes);
        // One bit per page of the mapped range. The kernel provides memory only where bits are set.
        _checked = (ulong*)NativeMemory.AllocZeroed((nuint)((PagesMax + 63) / 64), sizeof(ulong));
    }

    ~PageSpace() => NativeMemory.Free(_checked);

    /// <summary>Called for every damaged page before the exception is thrown; any thread. May be null.</summary>
    public Action<CorruptStoreException>? Damaged { get; set; }

    /// <summary>Pages for which the mapped range has space.</summary>
    public long PagesMax { get; }

    /// <summary>The reference to a scratch page.</summary>
    public PageRef ScratchReference(byte* page) => PageRef.ToScratch((ulong)(page - _map));

    /// <summary>The memory of a page that needs no check: a scratch page, or one known to be intact.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public byte* Locate(PageRef reference) => _map + reference.Distance;

    /// <summary>
    /// The memory of a page or run. On the first access since the open or since the page was written, it is read with a call that can report an error, not
    /// through the mapping, and its checksum is compared with its parent's.
    /// </summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public byte* Resolve(PageLink* link) => Resolve(PageLink.Load(link), link);

    /// <summary>Resolves a leaf or branch.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public byte* ResolveNode(PageLink* link)
    {
        var reference = PageLink.Load(link);
        Page.Prefetch(Locate(reference));
        return AsNode(reference, Resolve(reference, link));
    }

    /// <summary>Resolves the run to which a leaf's cell refers. Its value must have the length in the cell.</summary>
    public byte* ResolveRun(PageLink* link, uint valueLength)
    {
        var run = Resolve(link);
        return Page.Type(run) == PageType.Overflow && Page.ValueLength(run) == valueLength
            ? run
            : throw Bad($"'{_file.Path}': page {PageLink.Load(link).Number} is not an overflow run with a value of {valueLength} bytes, although its leaf refers to it as one.");
    }

    /// <summary>Makes the next access check the page, because it was rewritten. Called before any reference to it is published.</summary>
    public void Forget(long number) => Interlocked.And(ref _checked[number / 64], ~(1ul << (int)(number % 64)));

    /// <summary>Verifies a page's checksums even if it was verified before, and returns its length in pages.</summary>
    public int CheckPage(PageRef reference, uint checksum)
    {
        var number = reference.Number;
        if (number >= _file.Length / Page.Bytes || reference.Value % Page.Bytes != 0)
            throw Bad($"'{_file.Path}': the reference {reference} to page {number} is misaligned or beyond the file's {_file.Length} bytes.");
        var page = Locate(reference);
        Read(number, 1);
        var isRun = Page.Type(page) == PageType.Overflow;
        var runPages = isRun ? Page.RunPages(Page.ValueLength(page)) : 1;
        var isThere = Page.Number(page) == (ulong)number && Page.Checksum(page) == checksum && runPages <= (_file.Length / Page.Bytes) - number
            && !(isRun && Page.ValueLength(page) > Page.ValueBytesMax);
        if (isThere && runPages > 1)
            Read(number + 1, runPages - 1);
        if (!isThere || Page.ComputeChecksum(page, runPages * Page.Bytes) != checksum)
        {
            throw Bad(
                $"'{_file.Path}': page {number} (offset {reference.Value}) does not match its parent's reference, which has the checksum {checksum:x8}.");
        }
        if (PageStructure.Problem(page, PagesMax) is { } problem)
            throw Bad($"'{_file.Path}': page {number} (offset {reference.Value}) matches its parent's reference, but its structure is invalid: {problem}.");
        Interlocked.Or(ref _checked[number / 64], 1ul << (int)(number % 64));
        return runPages;
    }

    /// <summary>Begins to read pages that will be accessed soon, and does not wait. False if that was not necessary.</summary>
    public bool TryBeginRead(long number, long count) =>
        number + count <= _file.Length / Page.Bytes && _file.TryBeginReadIntoMap(number * Page.Bytes, count * Page.Bytes);

    /// <summary>Reads pages into the mapping before they are accessed there.</summary>
    /// <exception cref="CorruptStoreException">The pages cannot be read; this is treated like damaged bytes.</exception>
    public void Read(long number, long count)
    {
        try
        {
            _file.ReadIntoMap(number * Page.Bytes, count * Page.Bytes);
        }
        catch (StorageIoException failure)
        {
            var last = number + count - 1;
            throw Bad($"'{_file.Path}': page {number}{(count > 1 ? $" to {last}" : "")} (offset {number * Page.Bytes}) cannot be read: {failure.Message}", failure);
        }
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private byte* Resolve(PageRef reference, PageLink* link)
    {
        if (!reference.IsScratch)
        {
            var number = (ulong)reference.Number;
            if ((Volatile.Read(ref _checked[number / 64]) & (1ul << (int)(number % 64))) == 0)
                CheckPage(reference, link->Checksum);
        }
        return Locate(reference);
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private byte* AsNode(PageRef reference, byte* page) => Page.Type(page) is PageType.Leaf or PageType.Branch ? page : throw NoNode(reference, page);

    private CorruptStoreException NoNode(PageRef reference, byte* page) =>
        Bad($"'{_file.Path}': page {reference.Number} has type {(byte)Page.Type(page)}, but its parent refers to it as a leaf or branch.");

    private CorruptStoreException Bad(string message, Exception? inner = null)
    {
        var exception = new CorruptStoreException(message, inner);
        Damaged?.Invoke(exception);
        return exception;
    }
}
