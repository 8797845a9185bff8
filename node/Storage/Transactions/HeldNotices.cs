using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// The notices to stores for requests that one caller submits together, held back until all of them are queued. The first request of a batch would wake its
/// writer at once, which makes a record of it alone and another one of the rest of the shard's part. Used by one thread at a time, which calls <see
/// cref="Give"/> before it waits for anything.
/// </summary>
internal sealed class HeldNotices
{
    /// <summary>Requests after which the writers are told, so that they do not wait for the rest of a long message.</summary>
    internal const int RequestsMax = 64;

    /// <summary>Bytes of requests after which they are told: enough for a record, and much less than a queue takes.</summary>
    internal const long BytesMax = 64 << 10;

    private readonly List<RequestQueue> _queues = [];

    // Filled and emptied within one call.
    private readonly List<ISerialExecutor> _writers = [];
    private long _bytes;

    /// <summary>A request was added to a queue, whose writer does not know of it.</summary>
    /// <param name="queue">The queue.</param>
    /// <param name="bytes">The request's bytes.</param>
    public void Add(RequestQueue queue, long bytes)
    {
        _queues.Add(queue);
        _bytes += bytes;
        if (_queues.Count == RequestsMax || _bytes >= BytesMax)
            Give();
    }

    /// <summary>Tells the writers of all requests that were added and that they have not taken meanwhile.</summary>
    public void Give()
    {
        // The requests must be visible before it is looked at whether a queue waits for a release, after which its writer takes them all.
        if (_queues.Count > 0)
            Interlocked.MemoryBarrier();
        foreach (var queue in _queues)
        {
            if (!queue.IsEmpty && queue.NotifyQuietly() is { } writer && !_writers.Contains(writer))
                _writers.Add(writer);
        }
        _queues.Clear();
        _bytes = 0;
        foreach (var writer in _writers)
            writer.WakeUp();
        _writers.Clear();
    }
}
