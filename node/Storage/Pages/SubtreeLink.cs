using System.Runtime.InteropServices;

namespace KvCluster.Storage.Pages;

/// <summary>
/// What a page of the file has in itself and below: how many keys, and whether leaves among them have entries that refer to overflow runs or trees. In a
/// branch's cell, beside the reference to the page (FORMAT.md, "Leaf and branch"), so that a subtree is counted, and removed if nothing in it refers to
/// anything, without reading its leaves.
/// </summary>
/// <remarks>
/// The members of a large set are not among the keys. Checkpoints compute it when they write pages, children before parents. A batch never does: what a branch
/// has beside a reference to a page in memory is undefined.
/// </remarks>
internal readonly record struct SubtreeSummary(ulong Value)
{
    private const ulong ReferencesBit = 1ul << 63;

    /// <summary>Keys in the leaves.</summary>
    public ulong Keys => Value & ~ReferencesBit;

    /// <summary>Whether a leaf says that it has entries that refer to other pages. It may say so if it had some.</summary>
    public bool HasReferences => (Value & ReferencesBit) != 0;

    /// <inheritdoc/>
    public override string ToString() =>
        string.Create(System.Globalization.CultureInfo.InvariantCulture, $"{Keys} keys {(HasReferences ? "with" : "without")} references");

    /// <summary>The summary of a leaf or branch all of whose references are to the file.</summary>
    public static unsafe SubtreeSummary Of(byte* page)
    {
        if (Page.Type(page) == PageType.Leaf)
            return new SubtreeSummary(Page.Count(page) | (Page.LeafHasReferences(page) ? ReferencesBit : 0));
        var (keys, references) = (0ul, 0ul);
        for (var child = 0; child < Page.Count(page); child++)
        {
            var below = TreePage.Subtree(page, child)->Summary;
            keys += below.Keys;
            references |= below.Value & ReferencesBit;
        }
        return new SubtreeSummary(keys | references);
    }
}

/// <summary>A branch's reference to a child, as in its cell, where the location is divisible by eight.</summary>
/// <param name="link">The reference and the checksum.</param>
/// <param name="summary">What the file has there. Not defined for a child in memory.</param>
[StructLayout(LayoutKind.Sequential, Pack = 4)]
internal struct SubtreeLink(PageLink link, SubtreeSummary summary)
{
    /// <summary>The child.</summary>
    public PageLink Link = link;

    /// <summary>What the file has there. Whoever sees the reference to the file (<see cref="PageLink.Load"/>) also sees this.</summary>
    public SubtreeSummary Summary = summary;

    /// <summary>The link to a child in memory.</summary>
    public static SubtreeLink InMemory(PageRef reference)
    {
        Invariant.Check(reference.IsScratch, $"A branch was given the child {reference} of the file without its summary.");
        return new SubtreeLink(new PageLink(reference, 0), default);
    }
}
