using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>A batch's root with what it made and let go, until it is published or dropped. Pooled; on the writer only.</summary>
internal sealed class SealedBatch
{
    /// <summary>The state after the batch.</summary>
    public StoreRoot Root { get; set; } = null!;

    /// <summary>Scratch pages it made and still uses; each knows its index here.</summary>
    public List<nint> Made { get; } = [];

    /// <summary>Scratch pages of earlier batches that its root does not reach.</summary>
    public List<nint> RetiredScratch { get; } = [];

    /// <summary>Pages of the file that its root does not reach.</summary>
    public List<PageRun> RetiredFilePages { get; } = [];

    /// <summary>Empties it for the next batch.</summary>
    public void Clear()
    {
        Root = null!;
        Made.Clear();
        RetiredScratch.Clear();
        RetiredFilePages.Clear();
    }
}
