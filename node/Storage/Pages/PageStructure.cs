namespace KvCluster.Storage.Pages;

/// <summary>
/// Checks that the bytes of a page have the structure in FORMAT.md: every offset and length stays within the page, and every reference is to a page of the
/// file. Bytes are checked where they come in, at a page's first access and when a snapshot is installed, because a checksum only proves that they are
/// what their sender wrote. Pure; any thread.
/// </summary>
/// <remarks>
/// Some properties cannot be checked within one page: that a reference is within the current length of the file (<see cref="PageSpace.CheckPage"/>), that
/// it is to a page of the right type (<see cref="PageSpace.ResolveNode(PageLink*)"/>, <see cref="TreePage.Value"/>), and that keys are in order across
/// pages.
/// </remarks>
internal static unsafe class PageStructure
{
    /// <summary>The most levels a tree can have. With at least two children per branch, a deeper tree would have more pages than a file can.</summary>
    public const int DepthMax = 32;

    /// <summary>The most keys that can be below a branch's child: the shortest ones, in as many leaves as a file can have.</summary>
    public const ulong SubtreeKeysMax = (ulong)FreeMap.FilePagesMax * (Page.BodyBytes / (Page.EntryBytes + TreePage.LeafCellHeader));

    /// <summary>What is wrong with a page of 8,192 bytes, or the first page of a run; null if nothing is.</summary>
    public static string? Problem(byte* page) => Page.Type(page) switch
    {
        PageType.Leaf or PageType.Branch => ProblemOfNode(page),
        PageType.Overflow when Page.ValueLength(page) > Page.ValueBytesMax => $"its value length of {Page.ValueLength(page)} bytes is too large",
        PageType.Overflow when Page.Count(page) != 0 || Page.PrefixLength(page) != 0 => "it is an overflow run with entries or a prefix",
        PageType.Overflow or PageType.FreeSections or PageType.FreeDirectory => null,
        _ => $"it has the invalid type {(byte)Page.Type(page)}",
    };

    private static string? ProblemOfNode(byte* page)
    {
        int count = Page.Count(page), prefixLength = Page.PrefixLength(page), start = Page.CellsStart(page);
        var end = Page.Bytes - Page.PrefixBytes(prefixLength);
        if (prefixLength > Page.KeyBytesMax)
            return $"its prefix of {prefixLength} bytes is too long";
        if (start > end || start < Page.HeaderBytes + (count * Page.EntryBytes))
            return $"its cells cannot start at {start} with {count} entries and a prefix of {prefixLength} bytes";
        // A rebuild relies on this count to compute the bytes in use.
        if (Page.Garbage(page) > end - start)
            return $"it records {Page.Garbage(page)} bytes of garbage, but its cells have only {end - start} bytes";
        var isBranch = Page.Type(page) == PageType.Branch;
        if (isBranch && count == 0)
            return "it is a branch without children";
        var used = 0;
        for (var i = 0; i < count; i++)
        {
            int slot = Page.Slots(page)[i];
            if (slot < start || slot > end)
                return $"entry {i} is at {slot}, outside the cells from {start} to {end}";
            if ((isBranch ? ProblemOfChild(page, i, slot, end) : ProblemOfValue(page, i, slot, end)) is { } problem)
                return problem;
            var keyBytes = prefixLength + TreePage.SuffixLength(page, i);
            if (keyBytes > Page.KeyBytesMax)
                return $"the key of entry {i} is too long, with {keyBytes} bytes";
            // A branch's first entry stands for all keys that are less, and has none itself.
            if (keyBytes == 0 && !isBranch)
                return $"the key of entry {i} is empty";
            used += TreePage.CellBytes(page, i);
        }
        return used > end - start ? $"its {count} entries need {used} bytes, but its cells have only {end - start}" : null;
    }

    private static string? ProblemOfChild(byte* page, int index, int slot, int end)
    {
        if (slot % 8 != 0
            || slot + TreePage.BranchCellHeader > end || slot + TreePage.BranchCellHeader + TreePage.RestLength(TreePage.SuffixLength(page, index)) > end)
            return $"child {index} at {slot} extends beyond the cells or is not aligned to 8 bytes";
        if (ProblemOfReference(TreePage.Child(page, index)) is { } problem)
            return $"child {index} {problem}";
        var keys = TreePage.Subtree(page, index)->Summary.Keys;
        return keys is 0 or > SubtreeKeysMax ? $"child {index} cannot have {keys} keys below it" : null;
    }

    private static string? ProblemOfValue(byte* page, int index, int slot, int end)
    {
        if (slot + TreePage.LeafCellHeader > end)
            return $"entry {index} at {slot} extends beyond the cells";
        if (TreePage.Reference(page, index) is var link && link == null)
        {
            // The mark of a deleted key, which only deltas have, is beyond the page as a length.
            var cellEnd = slot + TreePage.LeafCellHeader + TreePage.RestLength(TreePage.SuffixLength(page, index))
                + TreePage.InlineBytes(*(ushort*)(page + slot + 2));
            return cellEnd > end ? $"entry {index} at {slot} ends at {cellEnd}, but the cells end at {end}" : ProblemOfCompressed(page, index);
        }
        // Checked first, because what the length says tells how long the cell is.
        var isWithin = slot % 8 == 0 && slot + TreePage.OverflowCellHeader <= end;
        if (isWithin && !TreePage.HasTree(page, index) && OverflowRun.Problem(*(uint*)(page + slot + 4)) is { } wrong)
            return $"entry {index} has {wrong}";
        if (!isWithin || slot + TreePage.ReferenceCellHeader(page + slot) > end || slot + TreePage.BytesOfReference(page, index) > end)
            return $"entry {index} at {slot} extends beyond the cells or is not aligned to 8 bytes";
        if (ProblemOfCompressed(page, index) is { } compressed)
            return compressed;
        if (!Page.LeafHasReferences(page))
            return $"entry {index} refers to another page, but the page's header says that no entry does";
        return ProblemOfReference(link) is { } problem ? $"the value of entry {index} {problem}" : null;
    }

    private static string? ProblemOfCompressed(byte* page, int index) =>
        TreePage.ProblemOfCompressed(Page.Cell(page, index)) is { } problem ? $"entry {index} has {problem}" : null;

    private static string? ProblemOfReference(PageLink* link) =>
        link->Reference.IsInFile(FreeMap.FilePagesMax) ? null : $"has the invalid reference {link->Reference}";
}
