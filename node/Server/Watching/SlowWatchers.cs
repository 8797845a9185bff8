namespace KvCluster.Node.Watching;

/// <summary>
/// What waits for the watchers of a hub, and which of them take too little. A watcher for which more than <see cref="WatchLimits.RunsWaitingMax"/> runs of
/// events wait, or for which a batch waits that is no longer kept, is put <see cref="WatchState.Behind"/>. What waits for it is forgotten, and it reads the
/// journal by itself, from what it has taken. The last batches are kept for watchers that come back. Under the hub's lock.
/// </summary>
/// <param name="hubLock">The hub's lock.</param>
/// <param name="watchers">The hub's watchers.</param>
/// <param name="keptBytesMax">Bytes of batches that are kept: <see cref="WatchLimits.KeptBytesMax"/>.</param>
/// <param name="after">The batches after this record are kept.</param>
internal sealed class SlowWatchers(Lock hubLock, List<Watcher> watchers, Func<long> keptBytesMax, Etag after)
{
    private readonly Queue<WatchBatch> _kept = new();

    /// <summary>The batches after this record are kept.</summary>
    private Etag _keptAfter = after;
    private long _keptBytes;

    /// <summary>Adds an event to what waits for a watcher, or puts it behind. Returns false if the event is not for this watcher.</summary>
    public bool AddLocked(Watcher watcher, WatchBatch batch, int index)
    {
        Invariant.CheckHeld(hubLock);
        ref readonly var happened = ref batch.Events[index];
        if ((happened.IsOfSet && !watcher.WithSets) || happened.Etag <= watcher.Taken)
            return false;
        var newest = watcher.Newest;
        if (newest.Count > 0 && newest.Batch == batch && newest.First + newest.Count == index)
        {
            watcher.Newest = newest with { Count = newest.Count + 1 };
            return true;
        }
        if (watcher.Pending.Count >= WatchLimits.RunsWaitingMax)
        {
            LagLocked(watcher);
            return true;
        }
        if (newest.Count > 0)
            watcher.Pending.Enqueue(newest);
        watcher.Newest = new WatchRun(batch, index, 1);
        return true;
    }

    /// <summary>Keeps a batch. If the oldest ones are dropped for it, those for which they wait are put behind.</summary>
    public void KeepLocked(WatchBatch batch)
    {
        Invariant.CheckHeld(hubLock);
        _kept.Enqueue(batch);
        _keptBytes += batch.Bytes;
        var bytesMax = keptBytesMax();
        if (_keptBytes <= bytesMax)
            return;
        // Some at once, because each time all watchers are looked at.
        while (_kept.Count > 1 && _keptBytes > bytesMax - (bytesMax / 4))
        {
            var oldest = _kept.Dequeue();
            _keptBytes -= oldest.Bytes;
            _keptAfter = oldest.Etag;
        }
        var first = _kept.Peek().Number;
        foreach (var watcher in watchers)
        {
            if (watcher.Newest.Count > 0 && (watcher.Pending.Count > 0 ? watcher.Pending.Peek() : watcher.Newest).Batch.Number < first)
                LagLocked(watcher);
        }
    }

    /// <summary>The watcher keeps what it has taken. What waits for it is forgotten, and it reads the journal by itself from there.</summary>
    public void LagLocked(Watcher watcher)
    {
        Invariant.CheckHeld(hubLock);
        ForgetPendingLocked(watcher);
        watcher.State = WatchState.Behind;
    }

    /// <summary>Makes a watcher live that has taken everything before the batches that are kept. Another one is put behind.</summary>
    public void ResumeLocked(Watcher watcher)
    {
        Invariant.CheckHeld(hubLock);
        if (watcher.Taken < _keptAfter)
        {
            watcher.State = WatchState.Behind;
            return;
        }
        watcher.State = WatchState.Live;
        foreach (var batch in _kept)
        {
            for (var index = 0; batch.Etag > watcher.Taken && watcher.State == WatchState.Live && index < batch.Events.Length; index++)
            {
                if (batch.Events[index].IsIn(watcher.Range))
                    AddLocked(watcher, batch, index);
            }
        }
        // A position within a record is taken up to there.
        watcher.IsSignalled |= watcher.Newest.Count > 0;
    }

    /// <summary>The store was replaced. No batch is kept now, and those after this record will be. The hub puts each watcher behind.</summary>
    public void RestartLocked(Etag position)
    {
        Invariant.CheckHeld(hubLock);
        _keptAfter = position;
        _kept.Clear();
        _keptBytes = 0;
    }

    /// <summary>What waits for a watcher is not sent.</summary>
    public void ForgetPendingLocked(Watcher watcher)
    {
        Invariant.CheckHeld(hubLock);
        watcher.Pending.Clear();
        watcher.Newest = default;
    }
}
