using System.Diagnostics;

namespace KvCluster.Node.Telemetry;

/// <summary>
/// An empty work item in the queue of the thread pool. Its waiting time is that of everything else there, including frames from other nodes. Queued and
/// read by one thread; runs on the pool.
/// </summary>
internal sealed class PoolProbe : IThreadPoolWorkItem
{
    // Timestamp of Stopwatch; 0 if it has not run yet.
    private long _ranAt;
    private long _queuedAt;

    /// <summary>Queues it. Not to be called while it is queued.</summary>
    public void Queue()
    {
        Volatile.Write(ref _ranAt, 0);
        _queuedAt = Stopwatch.GetTimestamp();
        ThreadPool.UnsafeQueueUserWorkItem(this, preferLocal: false);
    }

    /// <summary>How long it waited; null if it still waits.</summary>
    public TimeSpan? Waited => Volatile.Read(ref _ranAt) is not 0 and var ranAt ? Stopwatch.GetElapsedTime(_queuedAt, ranAt) : null;

    void IThreadPoolWorkItem.Execute() => Volatile.Write(ref _ranAt, Stopwatch.GetTimestamp());
}
