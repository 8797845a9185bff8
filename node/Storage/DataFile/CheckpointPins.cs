using KvCluster.Storage.Pages;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// The newest checkpoint, as far as it can be pinned, and the open pins. Pins are opened and closed on any thread, under the lock; the writer reads their
/// revisions for every batch without it.
/// </summary>
internal sealed class CheckpointPins
{
    private readonly Lock _lock = new();
    private MetaPage _newest;
    private IReadOnlyList<PageRun> _newestRuns;

    /// <summary>The array is never changed but replaced under the lock.</summary>
    private ulong[] _open = [];

    /// <param name="newest">The meta page of the newest checkpoint.</param>
    /// <param name="runs">The pages that it reaches.</param>
    public CheckpointPins(MetaPage newest, IReadOnlyList<PageRun> runs) => (_newest, _newestRuns) = (newest, runs);

    /// <summary>The revision of each open pin. Any thread.</summary>
    public ulong[] Open => Volatile.Read(ref _open);

    /// <summary>From now on pins are of this checkpoint, which is finished. Writer.</summary>
    public void Advance(MetaPage newest, IReadOnlyList<PageRun> runs)
    {
        lock (_lock)
            (_newest, _newestRuns) = (newest, runs);
    }

    /// <summary>Pins the newest checkpoint.</summary>
    public CheckpointPin Pin(PageStore store)
    {
        lock (_lock)
        {
            Volatile.Write(ref _open, [.. _open, _newest.Revision]);
            return new CheckpointPin(store, this, _newest, _newestRuns);
        }
    }

    /// <summary>Closes one of the pins of a checkpoint.</summary>
    public void Unpin(ulong revision)
    {
        lock (_lock)
        {
            var index = Array.IndexOf(_open, revision);
            Invariant.Check(index >= 0, $"A pin of revision {revision} was closed, but none is open.");
            Volatile.Write(ref _open, [.. _open[..index], .. _open[(index + 1)..]]);
        }
    }
}
