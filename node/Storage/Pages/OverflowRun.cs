namespace KvCluster.Storage.Pages;

/// <summary>Which large values are in a run of whole pages of their own, and how many it has (FORMAT.md, "Overflow run").</summary>
internal static class OverflowRun
{
    /// <summary>Longest value in a leaf, in bytes: a quarter page.</summary>
    public const int InlineValueBytesMax = Page.Bytes / 4;

    /// <summary>Whether a value goes to an overflow run, so that at least two entries fit in every leaf.</summary>
    public static bool IsNeeded(int keyLength, int valueLength) =>
        valueLength > InlineValueBytesMax || keyLength + valueLength > (Page.BodyBytes / 2) - Page.EntryBytes - TreePage.LeafCellHeader - 8;

    /// <summary>Pages in a run for a value of this length.</summary>
    public static int PagesFor(long valueLength) => (int)((Page.HeaderBytes + valueLength + Page.Bytes - 1) / Page.Bytes);
}
