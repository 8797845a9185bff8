namespace KvCluster.Node.Shards.Reads;

/// <summary>
/// Reads that wait until this replica has applied an etag. Joined from any thread; released on the shard's writer executor. A read whose caller gave
/// up is removed at once, so the number of waits is bounded by the calls that the API has open.
/// </summary>
internal sealed class AppliedWaits
{
    private readonly Lock _lock = new();
    private readonly SortedDictionary<(Etag Etag, long Number), TaskCompletionSource<bool>> _waiting = [];
    private long _numberLast;
    private int _count;
    private bool _closed;

    /// <summary>Waits until an etag is applied.</summary>
    /// <param name="etag">The etag to wait for.</param>
    /// <param name="lookAgain">Makes the writer call <see cref="Release"/> once more after this read has joined.</param>
    /// <param name="limit">The longest wait; <see cref="Timeout.InfiniteTimeSpan"/>: until the caller gives up.</param>
    /// <param name="cancellationToken">The caller gave up.</param>
    /// <returns>False if the time is up or the replica has stopped.</returns>
    public async Task<bool> JoinAsync(Etag etag, Action lookAgain, TimeSpan limit, CancellationToken cancellationToken)
    {
        // Continuations run asynchronously, so that a reader's code never runs on the writer.
        var applied = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
        (Etag, long) place;
        lock (_lock)
        {
            if (_closed)
                return false;
            place = (etag, ++_numberLast);
            _waiting.Add(place, applied);
            _count = _waiting.Count;
        }
        lookAgain();
        try
        {
            return await applied.Task.WaitAsync(limit, cancellationToken).ConfigureAwait(false);
        }
        catch (TimeoutException)
        {
            return false;
        }
        finally
        {
            lock (_lock)
            {
                _waiting.Remove(place);
                _count = _waiting.Count;
            }
        }
    }

    /// <summary>Everything up to this etag is applied.</summary>
    public void Release(Etag applied)
    {
        // Usually nobody waits. A read that joins concurrently makes the writer call this again.
        if (Volatile.Read(ref _count) == 0)
            return;
        lock (_lock)
        {
            while (_waiting.Count > 0 && _waiting.First() is var first && first.Key.Etag <= applied)
            {
                _waiting.Remove(first.Key);
                first.Value.SetResult(true);
            }
            _count = _waiting.Count;
        }
    }

    /// <summary>Refuses all waiting reads and all that come later, because the replica stops.</summary>
    public void RefuseAll()
    {
        lock (_lock)
        {
            _closed = true;
            foreach (var waiting in _waiting.Values)
                waiting.SetResult(false);
            _waiting.Clear();
            _count = 0;
        }
    }
}
