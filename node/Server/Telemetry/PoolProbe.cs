using System.Diagnostics;

namespace KvCluster.Node.Telemetry;

/// <summary>
/// One empty item in the queue of the thread pool: how long it waits tells how long everything else there waits, the frames of other nodes among it. Queued and
/// looked at by one thread; runs on the pool.
/// </summary>
internal sealed class PoolProbe : IThreadPoolWorkItem
{
    // Of Stopwatch; 0: it has not run yet.
    private long _ranAt;
    private long _queuedAt;

    /// <summary>Queues it. Not while it waits.</summary>
    public void Queue()
    {
        Volatile.Write(ref _ranAt, 0);
        _queuedAt = Stopwatch.GetTimestamp();
        ThreadPool.UnsafeQueueUserWorkItem(this, preferLocal: false);
    }

    /// <summary>How long it waited; null: it still does.</summary>
    public TimeSpan? Waited => Volatile.Read(ref _ranAt) is not 0 and var ranAt ? Stopwatch.GetElapsedTime(_queuedAt, ranAt) : null;

    void IThreadPoolWorkItem.Execute() => Volatile.Write(ref _ranAt, Stopwatch.GetTimestamp());
}
