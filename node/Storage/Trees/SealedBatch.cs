using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>A batch's root, with the pages that the batch created and retired, until it is published or dropped. Pooled; writer only.</summary>
internal sealed class SealedBatch
{
    /// <summary>A list with room for more is not kept. Only a large range that was deleted needs it.</summary>
    private const int RunsKept = 16_384;

    /// <summary>The state after the batch.</summary>
    public StoreRoot Root { get; set; } = null!;

    /// <summary>Scratch pages that it created and still uses. Each page stores its index here.</summary>
    public List<nint> Made { get; } = [];

    /// <summary>Scratch pages of earlier batches that its root no longer reaches.</summary>
    public List<nint> RetiredScratch { get; } = [];

    /// <summary>Pages of the file that its root no longer reaches.</summary>
    public List<PageRun> RetiredFilePages { get; } = [];

    /// <summary>
    /// Numbers of pages of the file that its root no longer reaches and that the last delta on them was dropped from. If a checkpoint in progress has folded
    /// an older delta on such a page, the page into which it was folded is meant from the end of the checkpoint on.
    /// </summary>
    public List<long> DroppedBases { get; } = [];

    /// <summary>Adds pages of the file. Neighbours become one run, because a range of keys often has its pages one after the other.</summary>
    public void AddRetired(PageRun run)
    {
        var runs = RetiredFilePages;
        if (runs.Count > 0 && runs[^1] is var last && last.First + last.Count == run.First)
            runs[^1] = last with { Count = last.Count + run.Count };
        else
            runs.Add(run);
    }

    /// <summary>Clears it for the next batch.</summary>
    public void Clear()
    {
        Root = null!;
        Made.Clear();
        RetiredScratch.Clear();
        RetiredFilePages.Clear();
        DroppedBases.Clear();
        if (RetiredFilePages.Capacity > RunsKept)
            RetiredFilePages.Capacity = 0;
    }
}
