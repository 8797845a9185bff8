namespace KvCluster.Storage.Pages;

/// <summary>
/// Where a value is: in its leaf, in a run of whole pages of its own, or divided between both (FORMAT.md, "Leaf and branch" and "Overflow run").
/// </summary>
internal static class OverflowRun
{
    /// <summary>Longest value in a leaf of a store that divides no values, and longest set that is a value, in bytes: a quarter page.</summary>
    public const int InlineValueBytesMax = Page.Bytes / 4;

    /// <summary>
    /// The most pages of the run of a divided value. Its readers get a copy of the value, because its parts are not next to each other. For longer values that
    /// would cost more than it saves: they fill all but the last of their pages, which is a ninth or less.
    /// </summary>
    public const int DividedPagesMax = 8;

    /// <summary>In a cell, beside the length of the value: its beginning is in the cell.</summary>
    private const uint DividedMark = 1u << 31;

    /// <summary>
    /// Likewise: it is compressed. The length is then that of the compressed bytes, which are divided or not as a value of their length would be.
    /// </summary>
    private const uint CompressedMark = 1u << 30;

    /// <summary>The most bytes of a key and a value of which two entries fit in every leaf.</summary>
    private const int InlineEntryBytesMax = (Page.BodyBytes / 2) - Page.EntryBytes - TreePage.LeafCellHeader - 8;

    /// <summary>The same for a key and the beginning of a value, whose cell is aligned.</summary>
    private const int DividedEntryBytesMax = (Page.BodyBytes / 2) - Page.EntryBytes - TreePage.OverflowCellHeader - TreePage.AlignmentBytes - 8;

    /// <summary>Whether a value goes to an overflow run in a store that divides no values. Sets are small ones up to there in all stores.</summary>
    public static bool IsNeeded(int keyLength, int valueLength) => IsNeeded(keyLength, valueLength, dividesValues: false);

    /// <summary>Whether a value goes to an overflow run, as a whole or but for its beginning, so that at least two entries fit in every leaf.</summary>
    public static bool IsNeeded(int keyLength, int valueLength, bool dividesValues) =>
        (valueLength > InlineValueBytesMax && !dividesValues) || keyLength + valueLength > InlineEntryBytesMax;

    /// <summary>
    /// The first bytes of a value that stay in the leaf, so that the others fill whole pages; 0 if the value goes to a run as a whole: it would fill no page,
    /// or too many, or what does not fill a page is too long for the leaf.
    /// </summary>
    public static int BeginningFor(int keyLength, int valueLength)
    {
        var (pages, beginning) = Math.DivRem(Page.HeaderBytes + valueLength, Page.Bytes);
        return pages is > 0 and <= DividedPagesMax && keyLength + beginning <= DividedEntryBytesMax ? beginning : 0;
    }

    /// <summary>What a cell has as the length of a value with or without a beginning in the cell.</summary>
    public static uint Recorded(int valueLength, int beginning, bool isCompressed = false) =>
        (uint)valueLength | (beginning > 0 ? DividedMark : 0) | (isCompressed ? CompressedMark : 0);

    /// <summary>The length of the value of a cell, or of its compressed bytes.</summary>
    public static uint LengthOf(uint recorded) => recorded & ~(DividedMark | CompressedMark);

    /// <summary>Whether the value of a cell is compressed.</summary>
    public static bool IsCompressed(uint recorded) => (recorded & CompressedMark) != 0;

    /// <summary>How many of the value's first bytes the cell has.</summary>
    public static int BeginningOf(uint recorded) => (recorded & DividedMark) == 0 ? 0 : (int)((Page.HeaderBytes + LengthOf(recorded)) % Page.Bytes);

    /// <summary>
    /// What is wrong with the length that a cell records; null if a value in a run can have it. The run of a divided value has at least a page.
    /// </summary>
    public static string? Problem(uint recorded) => LengthOf(recorded) switch
    {
        > Page.ValueBytesMax => $"a value of {LengthOf(recorded)} bytes, which is too long",
        < Page.Bytes - Page.HeaderBytes when (recorded & DividedMark) != 0 =>
            $"a divided value of {LengthOf(recorded)} bytes, which do not fill a page",
        _ => null,
    };

    /// <summary>Pages in a run for so many bytes of a value.</summary>
    public static int PagesFor(long valueLength) => (int)((Page.HeaderBytes + valueLength + Page.Bytes - 1) / Page.Bytes);
}
