// The calls of one exchange that a cancellation may end: waiting reads, and changes in their shard's queue. A call that is answered at once is never here. A
// change that the shard's writer has taken is under way to other nodes, so it keeps its place until its outcome is known. Any thread.
using KvCluster.Storage.Transactions;

namespace KvCluster.Node.Api.Calls;

/// <summary>Finds a waiting call by its number in the stream.</summary>
internal sealed class CallWaits
{
    private readonly Lock _gate = new();
    private readonly Dictionary<ulong, Wait> _waits = [];
    private readonly Dictionary<ulong, QueuedChange> _changes = [];

    /// <summary>A read begins to wait, on the thread that started it.</summary>
    /// <param name="id">The call's number. If the caller uses one twice, which is not allowed, only the first call is found.</param>
    /// <param name="stream">Fires when the stream ends.</param>
    public Wait Begin(ulong id, CancellationToken stream)
    {
        var wait = new Wait(this, id, stream);
        lock (_gate)
            _waits.TryAdd(id, wait);
        return wait;
    }

    /// <summary>A change was submitted. If the caller uses a number twice, only the first call is found.</summary>
    public void Begin(ulong id, in QueuedChange change)
    {
        lock (_gate)
            _changes.TryAdd(id, change);
    }

    /// <summary>That change was answered.</summary>
    public void End(ulong id, in QueuedChange change)
    {
        lock (_gate)
        {
            if (_changes.TryGetValue(id, out var found) && found == change)
                _changes.Remove(id);
        }
    }

    /// <summary>The caller cancelled the call. Callbacks of the cancellation run on another thread.</summary>
    public void Cancel(ulong id)
    {
        lock (_gate)
        {
            // With the lock held, like the end of the wait, so that it is not disposed meanwhile.
            if (_waits.Remove(id, out var wait))
                _ = wait.CancelAsync();
            else if (_changes.Remove(id, out var change))
                change.GiveUp();
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

    /// <summary>The wait of one call.</summary>
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
