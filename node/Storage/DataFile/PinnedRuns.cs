namespace KvCluster.Storage.DataFile;

/// <summary>
/// Runs of the file that a pinned checkpoint reaches. Each is assigned to one such pin and checked again only when that is gone, so it costs nothing until
/// then. Writer only.
/// </summary>
internal sealed class PinnedRuns(CheckpointPins pins)
{
    private readonly Dictionary<ulong, List<RetiredRun>> _byRevision = [];
    private readonly List<ulong> _gone = [];

    /// <summary>Whether pins keep nothing.</summary>
    public bool IsEmpty => _byRevision.Count == 0;

    /// <summary>All runs.</summary>
    public IEnumerable<RetiredRun> All => _byRevision.Values.SelectMany(runs => runs);

    /// <summary>
    /// Keeps the run if a pin reaches it; otherwise adds it to those that only readers may hold. No later pin reaches it, because it would be of a later
    /// checkpoint.
    /// </summary>
    public void KeepOrPass(in RetiredRun run, RetiredPages<RetiredRun> unpinned)
    {
        foreach (var pinned in pins.Open)
        {
            if (!run.IsReachedByPin(pinned))
                continue;
            if (!_byRevision.TryGetValue(pinned, out var runs))
                _byRevision[pinned] = runs = [];
            runs.Add(run);
            return;
        }
        unpinned.Add(run);
    }

    /// <summary>Passes on what no pin reaches any more.</summary>
    public void Release(RetiredPages<RetiredRun> unpinned)
    {
        if (IsEmpty)
            return;
        var open = pins.Open;
        foreach (var pinned in _byRevision.Keys)
        {
            if (!open.Contains(pinned))
                _gone.Add(pinned);
        }
        foreach (var gone in _gone)
        {
            _byRevision.Remove(gone, out var runs);
            foreach (var run in runs!)
                KeepOrPass(run, unpinned);
        }
        _gone.Clear();
    }
}
