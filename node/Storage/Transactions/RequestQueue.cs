using System.Collections.Concurrent;
using System.Diagnostics.CodeAnalysis;
using KvCluster.Storage.Context;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// The requests that wait for the writer, bounded in count and bytes, of this store and of all stores of the node. Any thread adds; the writer executor takes.
/// Adding posts the notice to the writer executor, unless it is already posted, and has read what the request will need, if somebody does that.
/// </summary>
internal sealed class RequestQueue(int countMax, long bytesMax, MemoryAccount memory, ISerialExecutor writer, IWorkItem notice, PathPrefetch? prefetch)
{
    private readonly ConcurrentQueue<WriteRequest> _requests = new();
    private int _count;
    private long _bytes;
    private int _givenUp;
    private int _noticed;

    /// <summary>The first request, if it is put off; null otherwise.</summary>
    private WriteRequest? _held;
    private volatile bool _isReleased;

    /// <summary>Whether there is nothing to take. On the writer executor this is exact only for requests added before.</summary>
    public bool IsEmpty => _held is null ? _requests.IsEmpty : !_isReleased;

    /// <summary>Number of the requests that wait.</summary>
    public int Count => Volatile.Read(ref _count);

    /// <summary>Bytes of the requests that wait.</summary>
    public long Bytes => Interlocked.Read(ref _bytes);

    /// <summary>
    /// About how many bytes a batch takes that is closed at so many: with one request more, because the last one passes the bound. Otherwise the operations of
    /// large requests would outgrow their memory and be copied.
    /// </summary>
    public long BytesOfBatch(int bytesMax) => Math.Min(Bytes, bytesMax + (Bytes / Math.Max(1, Volatile.Read(ref _count))));

    /// <summary>Adds a request. Returns false at once when the queue is full, or those of all the node's stores are.</summary>
    public bool TryAdd(WriteRequest request)
    {
        var bytes = request.Bytes;
        if (Interlocked.Increment(ref _count) > countMax)
        {
            Interlocked.Decrement(ref _count);
            return false;
        }
        // A request that is larger than the bound may pass if it is alone.
        var mayWait = memory.MayWait(bytes, Bytes);
        if (AddBytes(bytes) is var sum && (!mayWait || (sum > bytesMax && sum != bytes)))
        {
            AddBytes(-bytes);
            Interlocked.Decrement(ref _count);
            return false;
        }
        // Pages are prefetched only for a request that is not refused, and before it is queued, because a queued request belongs to the writer.
        prefetch?.Add(request);
        request.Enqueue(this);
        _requests.Enqueue(request);
        Notify();
        return true;
    }

    /// <summary>Takes the next request that has not been given up. Writer executor.</summary>
    public bool TryTake([MaybeNullWhen(false)] out WriteRequest request)
    {
        request = null;
        if (_held is not null && (!_isReleased || (request = Interlocked.Exchange(ref _held, null)) is not null))
        {
            if (request is null)
                return false;
            Interlocked.Decrement(ref _count);
            AddBytes(-request.Bytes);
            return true;
        }
        while (_requests.TryDequeue(out request))
        {
            if (request.TryTake())
            {
                Interlocked.Decrement(ref _count);
                AddBytes(-request.Bytes);
                return true;
            }
            ReleaseGivenUp();
        }
        return false;
    }

    /// <summary>
    /// Puts a request that was taken back in front of the others, which wait behind it until it is released. It cannot be given up any more. Writer executor.
    /// </summary>
    public void Hold(WriteRequest request)
    {
        Invariant.Check(_held is null, $"Two requests were put off at once.");
        Interlocked.Increment(ref _count);
        AddBytes(request.Bytes);
        _isReleased = false;
        _held = request;
    }

    /// <summary>The request that was put off can be taken again. Writer executor, or after its end.</summary>
    public void Release() => _isReleased = true;

    /// <summary>
    /// Reserves one of the objects that requests given up in the queue leave behind until their turn. Their number is bounded like that of requests, so
    /// that nobody can fill a stalled queue with them. False: the request has to keep its place.
    /// </summary>
    public bool TryReserveGivenUp()
    {
        if (Interlocked.Increment(ref _givenUp) <= countMax)
            return true;
        ReleaseGivenUp();
        return false;
    }

    /// <summary>Returns the reservation, because the request was no longer in the queue or its turn has come.</summary>
    public void ReleaseGivenUp() => Interlocked.Decrement(ref _givenUp);

    /// <summary>Frees the place of a request that was given up in the queue.</summary>
    public void GaveUp(int bytes)
    {
        Interlocked.Decrement(ref _count);
        AddBytes(-bytes);
    }

    /// <summary>Posts the notice unless it is already posted.</summary>
    public void Notify()
    {
        if (Interlocked.Exchange(ref _noticed, 1) == 0)
            writer.Post(notice);
    }

    /// <summary>Call when the notice runs, before looking at the queue.</summary>
    public void AcknowledgeNotice() => Interlocked.Exchange(ref _noticed, 0);

    private long AddBytes(int bytes)
    {
        var sum = Interlocked.Add(ref _bytes, bytes);
        memory.RequestsChanged(sum - bytes, sum);
        return sum;
    }
}
