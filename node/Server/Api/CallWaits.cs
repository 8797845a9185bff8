// The calls of one exchange that wait and do nothing else meanwhile: those that a cancel ends. A call that is answered at once is never here, and a change is not
// either: once it is in its shard's queue it may be on its way to other nodes, so it keeps its place until its outcome is known. Any thread.
namespace KvCluster.Node.Api;

/// <summary>Finds a waiting call by its number in the stream.</summary>
internal sealed class CallWaits
{
    private readonly Lock _gate = new();
    private readonly Dictionary<ulong, Wait> _waits = [];

    /// <summary>A call begins to wait, on the thread that started it.</summary>
    /// <param name="id">The call. Of two with one number, which the caller must not send, only the first is found.</param>
    /// <param name="stream">Ends with the stream.</param>
    public Wait Begin(ulong id, CancellationToken stream)
    {
        var wait = new Wait(this, id, stream);
        lock (_gate)
            _waits.TryAdd(id, wait);
        return wait;
    }

    /// <summary>Its caller gave it up. What that runs, runs elsewhere.</summary>
    public void Cancel(ulong id)
    {
        lock (_gate)
        {
            // Under the lock, as the wait's end is: it is not disposed of meanwhile.
            if (_waits.Remove(id, out var wait))
                _ = wait.CancelAsync();
        }
    }

    private void End(ulong id, Wait wait)
    {
        lock (_gate)
        {
            if (_waits.TryGetValue(id, out var found) && found == wait)
                _waits.Remove(id);
        }
    }

    /// <summary>One call's wait.</summary>
    internal sealed class Wait(CallWaits? waits, ulong id, CancellationToken stream) : IDisposable
    {
        private readonly CancellationTokenSource? _given = waits is null ? null : CancellationTokenSource.CreateLinkedTokenSource(stream);

        /// <summary>Fires when nobody waits for the answer any more.</summary>
        public CancellationToken Token => _given?.Token ?? stream;

        public Task CancelAsync() => _given!.CancelAsync();

        public void Dispose()
        {
            waits?.End(id, this);
            _given?.Dispose();
        }
    }
}
