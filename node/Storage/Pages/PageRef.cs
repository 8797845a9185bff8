using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace KvCluster.Storage.Pages;

/// <summary>
/// A reference to a page or run, as it is stored in pages (FORMAT.md). For a page in the file it is the byte offset, for a scratch page the address of its
/// memory, with bit 0 set, and for a delta (<see cref="DeltaPage"/>) also bit 1. Zero, the location of a meta page, refers to nothing.
/// </summary>
internal readonly record struct PageRef(ulong Value)
{
    private const ulong ScratchBit = 1;
    private const ulong DeltaBit = 2;

    /// <summary>Whether the reference is to nothing.</summary>
    public bool IsNone => Value == 0;

    /// <summary>Whether the reference is to scratch memory.</summary>
    public bool IsScratch => (Value & ScratchBit) != 0;

    /// <summary>Whether the reference is to a delta, which is in scratch memory too.</summary>
    public bool IsDelta => (Value & DeltaBit) != 0;

    /// <summary>The number of the page in the file.</summary>
    public long Number => (long)(Value / Page.Bytes);

    /// <summary>The memory of a scratch page or delta.</summary>
    public unsafe byte* Memory => (byte*)(Value & ~(ScratchBit | DeltaBit));

    /// <summary>The reference to a page of the file.</summary>
    public static PageRef ToFile(long number) => new((ulong)number * Page.Bytes);

    /// <summary>The reference to scratch memory.</summary>
    public static unsafe PageRef ToScratch(byte* memory) => new((ulong)memory | ScratchBit);

    /// <summary>The reference to a delta.</summary>
    public static unsafe PageRef ToDelta(byte* memory) => new((ulong)memory | ScratchBit | DeltaBit);

    /// <summary>Whether the reference is to a page of the file other than a meta page.</summary>
    /// <param name="pagesMax">The most pages that the file may have.</param>
    public bool IsInFile(long pagesMax) => Value % Page.Bytes == 0 && Value / Page.Bytes is >= 2 and var number && number < (ulong)pagesMax;

    /// <inheritdoc/>
    public override string ToString() => Value.ToString("x", System.Globalization.CultureInfo.InvariantCulture);
}

/// <summary>
/// A reference and the checksum of what it refers to, as in a branch cell, a leaf's cell that refers to other pages and a tree's root; in cells the location is
/// divisible by eight. The checksum of a scratch page is 0.
/// </summary>
[StructLayout(LayoutKind.Sequential, Pack = 4)]
internal struct PageLink(PageRef reference, uint checksum)
{
    /// <summary>The reference.</summary>
    public PageRef Reference = reference;

    /// <summary>The checksum of that page or run.</summary>
    public uint Checksum = checksum;

    /// <summary>The reference of a link that the writer may be replacing. Whoever sees the one to the file here also sees its checksum.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static unsafe PageRef Load(PageLink* link) => new(Volatile.Read(ref *(ulong*)link));

    /// <summary>A copy of a link that the writer may be replacing: the reference before its checksum, which a scratch page does not need.</summary>
    public static unsafe PageLink LoadWhole(PageLink* link)
    {
        var reference = Load(link);
        return new PageLink(reference, link->Checksum);
    }

    /// <summary>The link to the location in the file that a checkpoint gave a scratch page or run.</summary>
    public static unsafe PageLink ToPlaced(byte* page) => new(Page.Placed(page), Page.Checksum(page));

    /// <summary>Replaces a link that readers may be using.</summary>
    public static unsafe void Store(PageLink* link, PageLink next)
    {
        link->Checksum = next.Checksum;
        Volatile.Write(ref *(ulong*)link, next.Reference.Value);
    }
}
