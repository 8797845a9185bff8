using System.Collections.Concurrent;
using System.Diagnostics.CodeAnalysis;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// The requests that wait for the writer, bounded in count and bytes. Any thread adds, the writer executor takes. The notice is posted
/// to the writer executor when the queue stops being empty.
/// </summary>
internal sealed class RequestQueue(int countMax, long bytesMax, ISerialExecutor writer, IWorkItem notice)
{
    private readonly ConcurrentQueue<WriteRequest> _requests = new();
    private int _count;
    private long _bytes;
    private int _givenUp;
    private int _noticed;

    /// <summary>Whether nothing waits. Exact on the writer executor only for what was added before.</summary>
    public bool IsEmpty => _requests.IsEmpty;

    /// <summary>Adds a request; false, at once, when the queue is full.</summary>
    public bool TryAdd(WriteRequest request)
    {
        var bytes = request.Bytes;
        if (Interlocked.Increment(ref _count) > countMax)
        {
            Interlocked.Decrement(ref _count);
            return false;
        }
        // One that is larger than the bound may pass alone.
        if (Interlocked.Add(ref _bytes, bytes) is var sum && sum > bytesMax && sum != bytes)
        {
            Interlocked.Add(ref _bytes, -bytes);
            Interlocked.Decrement(ref _count);
            return false;
        }
        request.Enqueue(this);
        _requests.Enqueue(request);
        Notify();
        return true;
    }

    /// <summary>Takes the next request that nobody gave up. Writer executor.</summary>
    public bool TryTake([MaybeNullWhen(false)] out WriteRequest request)
    {
        while (_requests.TryDequeue(out request))
        {
            if (request.TryTake())
            {
                Interlocked.Decrement(ref _count);
                Interlocked.Add(ref _bytes, -request.Bytes);
                return true;
            }
            ReleaseGivenUp();
        }
        return false;
    }

    /// <summary>
    /// A request is to be given up, if it still waits: it then leaves only a small object here until its turn. There are no more of these than of others, so that nobody fills a queue that
    /// stands still with them. False: this one has to keep its place.
    /// </summary>
    public bool TryReserveGivenUp()
    {
        if (Interlocked.Increment(ref _givenUp) <= countMax)
            return true;
        ReleaseGivenUp();
        return false;
    }

    /// <summary>It did not wait any more, or its turn has come.</summary>
    public void ReleaseGivenUp() => Interlocked.Decrement(ref _givenUp);

    /// <summary>It waited, and its place is free.</summary>
    public void GaveUp(int bytes)
    {
        Interlocked.Decrement(ref _count);
        Interlocked.Add(ref _bytes, -bytes);
    }

    /// <summary>Posts the notice unless one is on its way.</summary>
    public void Notify()
    {
        if (Interlocked.Exchange(ref _noticed, 1) == 0)
            writer.Post(notice);
    }

    /// <summary>To be called when the notice runs, before the queue is looked at.</summary>
    public void AcknowledgeNotice() => Interlocked.Exchange(ref _noticed, 0);
}
