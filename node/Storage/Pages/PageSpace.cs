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
/// A reference is a distance from the start of the mapping: for a page in the file its byte offset, for a scratch page the distance of its memory, with
/// bit 0 set. Zero, the location of a meta page, refers to nothing.
/// </remarks>
internal sealed unsafe class PageSpace
{
    private const ulong ScratchBit = 1;

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

    /// <summary>Whether a reference is to scratch memory.</summary>
    public static bool IsScratch(ulong reference) => (reference & ScratchBit) != 0;

    /// <summary>The number of the page in the file that a reference names.</summary>
    public static long NumberOf(ulong reference) => (long)(reference / Page.Bytes);

    /// <summary>The reference to a page of the file.</summary>
    public static ulong FileReference(long number) => (ulong)number * Page.Bytes;

    /// <summary>The reference to a scratch page.</summary>
    public ulong ScratchReference(byte* page) => (ulong)(page - _map) | ScratchBit;

    /// <summary>The memory of a page that needs no check: a scratch page, or one known to be intact.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public byte* Locate(ulong reference) => _map + (reference & ~ScratchBit);

    /// <summary>
    /// The memory of a page. On the first access since the open or since the page was written, it is read in a way that can fail, and its checksum is
    /// compared with its parent's.
    /// </summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public byte* Resolve(ulong reference, uint* checksum)
    {
        if (!IsScratch(reference))
        {
            var number = reference / Page.Bytes;
            if ((Volatile.Read(ref _checked[number / 64]) & (1ul << (int)(number % 64))) == 0)
                CheckPage(reference, *checksum);
        }
        return Locate(reference);
    }

    /// <summary>Does the same for the reference in a branch cell or overflow cell, which its checksum follows.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public byte* ResolveChild(byte* child) => Resolve(Volatile.Read(ref *(ulong*)child), (uint*)(child + sizeof(ulong)));

    /// <summary>Resolves a leaf or branch to which a tree's root refers.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public byte* ResolveNode(ulong reference, uint* checksum) => AsNode(reference, Resolve(reference, checksum));

    /// <summary>Resolves a leaf or branch to which a branch's cell refers.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public byte* ResolveNode(byte* child)
    {
        var reference = Volatile.Read(ref *(ulong*)child);
        return AsNode(reference, Resolve(reference, (uint*)(child + sizeof(ulong))));
    }

    /// <summary>Resolves the run to which a leaf's cell refers. Its value must have the length in the cell.</summary>
    public byte* ResolveRun(byte* child, uint valueLength)
    {
        var run = ResolveChild(child);
        return Page.Type(run) == PageType.Overflow && Page.ValueLength(run) == valueLength
            ? run
            : throw Bad($"'{_file.Path}': page {NumberOf(Volatile.Read(ref *(ulong*)child))} is not an overflow run with a value of {valueLength} bytes, although its leaf refers to it as one.");
    }

    /// <summary>Makes the next access check the page, because it was rewritten. Called before any reference to it is published.</summary>
    public void Forget(long number) => Interlocked.And(ref _checked[number / 64], ~(1ul << (int)(number % 64)));

    /// <summary>Verifies a page's checksums even if it was verified before, and returns its length in pages.</summary>
    public int CheckPage(ulong reference, uint checksum)
    {
        var number = NumberOf(reference);
        if (number >= _file.Length / Page.Bytes || reference % Page.Bytes != 0)
            throw Bad($"'{_file.Path}': the reference {reference:x} to page {number} is misaligned or beyond the file's {_file.Length} bytes.");
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
                $"'{_file.Path}': page {number} (offset {reference}) does not match its parent's reference, which has the checksum {checksum:x8}.");
        }
        if (PageStructure.Problem(page, PagesMax) is { } problem)
            throw Bad($"'{_file.Path}': page {number} (offset {reference}) matches its parent's reference, but its structure is invalid: {problem}.");
        Interlocked.Or(ref _checked[number / 64], 1ul << (int)(number % 64));
        return runPages;
    }

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
    private byte* AsNode(ulong reference, byte* page) => Page.Type(page) is PageType.Leaf or PageType.Branch ? page : throw NoNode(reference, page);

    private CorruptStoreException NoNode(ulong reference, byte* page) =>
        Bad($"'{_file.Path}': page {NumberOf(reference)} has type {(byte)Page.Type(page)}, but its parent refers to it as a leaf or branch.");

    private CorruptStoreException Bad(string message, Exception? inner = null)
    {
        var exception = new CorruptStoreException(message, inner);
        Damaged?.Invoke(exception);
        return exception;
    }
}
