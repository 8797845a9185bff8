using System.Diagnostics;

namespace KvCluster.Node.Telemetry;

/// <summary>
/// An empty work item in the queue of the thread pool, behind others that wait. Its waiting time is that of everything else there, including frames from other
/// nodes. Queued and read by one thread; runs on the pool.
/// </summary>
internal sealed class PoolProbe : IThreadPoolWorkItem
{
    // Timestamp of Stopwatch; 0 if it has not run yet.
    private long _ranAt;
    private long _queuedAt;

    /// <summary>Whether it was queued and its waiting time has not been taken.</summary>
    public bool IsQueued { get; private set; }

    /// <summary>
    /// Queues it if anything waits in the pool at this moment. Otherwise nothing waits for long, and the probe would only wake a thread. Not to be called while
    /// it <see cref="IsQueued"/>.
    /// </summary>
    public bool TryQueue()
    {
        if (ThreadPool.PendingWorkItemCount == 0)
            return false;
        IsQueued = true;
        Volatile.Write(ref _ranAt, 0);
        _queuedAt = Stopwatch.GetTimestamp();
        ThreadPool.UnsafeQueueUserWorkItem(this, preferLocal: false);
        return true;
    }

    /// <summary>How long it waited, once it has run; null if it still waits.</summary>
    public TimeSpan? Take()
    {
        var ranAt = Volatile.Read(ref _ranAt);
        if (ranAt == 0)
            return null;
        IsQueued = false;
        return Stopwatch.GetElapsedTime(_queuedAt, ranAt);
    }

    void IThreadPoolWorkItem.Execute() => Volatile.Write(ref _ranAt, Stopwatch.GetTimestamp());
}
