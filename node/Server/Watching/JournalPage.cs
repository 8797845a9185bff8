using KvCluster.Storage;
using KvCluster.Storage.Journal;

namespace KvCluster.Node.Watching;

/// <summary>What was read of the journal, for all watchers that are behind at one position.</summary>
/// <param name="store">Whose journal.</param>
/// <param name="after">The position.</param>
/// <param name="page">What follows it.</param>
internal sealed class JournalPage(ReplicaStore store, Etag after, TailPage page)
{
    public ReplicaStore Store => store;

    public Etag After => after;

    public TailPage Page => page;

    /// <summary>The events of each record.</summary>
    public IReadOnlyList<WatchBatch> Batches { get; } = [.. page.Bodies.Select(WatchBatch.Decode)];
}
