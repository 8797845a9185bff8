using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Pages;

/// <summary>
/// Resolves references: where a page lies in memory. Used by readers on any thread, the writer and the checkpoint executor. An exception
/// means that a page of the file is not what its parent refers to.
/// </summary>
/// <remarks>
/// A reference is a distance from the map's begin: of a page in the file its byte offset, of a scratch page the distance of its memory,
/// with bit 0 set. Zero (a meta page's place) refers to nothing.
/// </remarks>
internal sealed unsafe class PageSpace
{
    private const ulong ScratchBit = 1;

    private readonly IStorageFile _file;
    private readonly byte* _map;
    private readonly ulong* _checked;

    /// <summary>Maps the file; owns neither it nor the map's memory, which goes with the file.</summary>
    public PageSpace(IStorageFile file, long mapBytes)
    {
        _file = file;
        PagesMax = mapBytes / Page.Bytes;
        _map = file.Map(mapBytes);
        // One bit a page of the whole range; the system gives memory only where bits are set.
        _checked = (ulong*)NativeMemory.AllocZeroed((nuint)((PagesMax + 63) / 64), sizeof(ulong));
    }

    ~PageSpace() => NativeMemory.Free(_checked);

    /// <summary>Told of the first and every later bad page before the exception leaves; any thread. Null: nobody asks.</summary>
    public Action<CorruptStoreException>? Damaged { get; set; }

    /// <summary>Pages that fit the range.</summary>
    public long PagesMax { get; }

    /// <summary>Whether a reference is to scratch memory.</summary>
    public static bool IsScratch(ulong reference) => (reference & ScratchBit) != 0;

    /// <summary>The number of the page in the file that a reference names.</summary>
    public static long NumberOf(ulong reference) => (long)(reference / Page.Bytes);

    /// <summary>The reference to a page of the file.</summary>
    public static ulong FileReference(long number) => (ulong)number * Page.Bytes;

    /// <summary>The reference to a scratch page.</summary>
    public ulong ScratchReference(byte* page) => (ulong)(page - _map) | ScratchBit;

    /// <summary>The memory of a page, not checked: scratch, or known to be good.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public byte* Locate(ulong reference) => _map + (reference & ~ScratchBit);

    /// <summary>
    /// The memory of a page; at the first touch since open, and since it was written, it is read in a way that can fail, and its checksum is compared with
    /// its parent's.
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

    /// <summary>As above, for the reference that lies before its checksum in a branch cell or overflow cell.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public byte* ResolveChild(byte* child) => Resolve(Volatile.Read(ref *(ulong*)child), (uint*)(child + sizeof(ulong)));

    /// <summary>A leaf or branch: what a tree's root refers to.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public byte* ResolveNode(ulong reference, uint* checksum) => AsNode(reference, Resolve(reference, checksum));

    /// <summary>A leaf or branch: what a branch's cell refers to.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public byte* ResolveNode(byte* child)
    {
        var reference = Volatile.Read(ref *(ulong*)child);
        return AsNode(reference, Resolve(reference, (uint*)(child + sizeof(ulong))));
    }

    /// <summary>The run that a leaf's cell refers to, which holds a value of the length that the cell says.</summary>
    public byte* ResolveRun(byte* child, uint valueLength)
    {
        var run = ResolveChild(child);
        return Page.Type(run) == PageType.Overflow && Page.ValueLength(run) == valueLength
            ? run
            : throw Bad($"'{_file.Path}': page {NumberOf(Volatile.Read(ref *(ulong*)child))} is not the run of a value of {valueLength} bytes, as its leaf says.");
    }

    /// <summary>The page was written anew: its next touch checks it again. Before any reference to it is published.</summary>
    public void Forget(long number) => Interlocked.And(ref _checked[number / 64], ~(1ul << (int)(number % 64)));

    /// <summary>Compares a page's checksums whether it was touched or not, and gives its length in pages.</summary>
    public int CheckPage(ulong reference, uint checksum)
    {
        var number = NumberOf(reference);
        if (number >= _file.Length / Page.Bytes || reference % Page.Bytes != 0)
            throw Bad($"'{_file.Path}': a reference to page {number} lies beyond the file's {_file.Length} bytes.");
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
                $"'{_file.Path}': page {number} (offset {reference}) is not what its parent refers to: checksum {checksum:x8} expected.");
        }
        if (PageStructure.Problem(page, PagesMax) is { } problem)
            throw Bad($"'{_file.Path}': page {number} (offset {reference}) is what its parent refers to, but no sound page: {problem}.");
        Interlocked.Or(ref _checked[number / 64], 1ul << (int)(number % 64));
        return runPages;
    }

    /// <summary>Reads pages into the map before they are touched there.</summary>
    /// <exception cref="CorruptStoreException">The disk cannot read them: they are damaged, as if their bytes were others.</exception>
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
        Bad($"'{_file.Path}': page {NumberOf(reference)} has type {(byte)Page.Type(page)}, and its parent takes it for a part of a tree.");

    private CorruptStoreException Bad(string message, Exception? inner = null)
    {
        var exception = new CorruptStoreException(message, inner);
        Damaged?.Invoke(exception);
        return exception;
    }
}
