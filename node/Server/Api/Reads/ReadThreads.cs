// Decides on which threads trees are read for callers. A page that is not in memory blocks the thread that touches it for as long as the disk takes. The
// thread pool does not see such a thread as idle, and everything that a node sends and receives runs on the pool, heartbeats included: 128 Gets of a file
// whose disk needed 200 ms per read blocked the whole pool for twenty seconds, and the node lost its shards. Whether a page is in memory cannot be known
// without asking the kernel each time. So the number of concurrent reads on the pool is bounded, and further reads queue for a fixed set of threads of this
// node, which may wait for the disk as long as they like. Reads of pages in memory take microseconds, so almost none of them has to change threads. The loop of
// an exchange, for which all calls of the stream wait, reads no trees while InlineReads says so. A read of many keys has its turns on those threads only.
// Called by KvReads and KvScans, on any thread.
using System.Collections.Concurrent;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace KvCluster.Node.Api.Reads;

/// <summary>Places for reads of trees: some on the calling thread, the rest in turn on dedicated threads.</summary>
/// <param name="hereMax">Number of concurrent reads on calling threads.</param>
/// <param name="threads">Number of dedicated threads.</param>
internal sealed class ReadThreads(int hereMax, int threads) : IAsyncDisposable
{
    /// <summary>
    /// Concurrent reads beyond those on the pool: about as many as a solid-state disk needs to reach its full rate. Without reads these threads are idle.
    /// </summary>
    private const int ThreadsDefault = 16;

    /// <summary>Added to the number of processors, because a reading thread may have been preempted and then does not wait for the disk.</summary>
    private const int HereBeyondProcessors = 4;

    /// <summary>Pool threads for everything else, in addition to one per processor, because that many connections may wait for the same lock.</summary>
    private const int RestBeyondProcessors = 2;

    /// <summary>Smallest page size, in bytes, of the systems that this runs on: the distance between touched bytes.</summary>
    private const int PageBytes = 4 << 10;

    // Bounded by the number of calls that a node accepts.
    private readonly ConcurrentQueue<Action> _waiting = new();
    private readonly SemaphoreSlim _arrived = new(0);
    private readonly Lock _gate = new();
    private readonly TaskCompletionSource _ended = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private int _here;
    private int _running;
    private volatile bool _isStopping;

    /// <summary>Maximum number of concurrent reads on the pool of a node.</summary>
    public static int HereMaxDefault => Environment.ProcessorCount + HereBeyondProcessors;

    /// <summary>
    /// Creates and starts a node's read threads. From then on the process's thread pool has so many threads that, even if all reads on it wait for the disk,
    /// one per processor and a few more remain. By default the pool starts with one per processor and adds only one or two a second while these wait.
    /// </summary>
    public static ReadThreads Start()
    {
        ThreadPool.GetMinThreads(out var workers, out var completions);
        ThreadPool.SetMinThreads(Math.Max(workers, HereMaxDefault + Environment.ProcessorCount + RestBeyondProcessors), completions);
        var reads = new ReadThreads(HereMaxDefault, ThreadsDefault);
        reads.Run();
        return reads;
    }

    /// <summary>Starts the threads. To be called once.</summary>
    public void Run()
    {
        _running = threads;
        for (var index = 0; index < threads; index++)
            new Thread(Serve) { Name = $"kv-read-{index}", IsBackground = true }.Start();
    }

    /// <summary>Whether a read may happen on this thread now. If so, <see cref="LeaveHere"/> must follow.</summary>
    public bool TryEnterHere()
    {
        // Checked with a plain read first, so that repeated attempts in vain do not take the cache line from others.
        if (Volatile.Read(ref _here) >= hereMax)
            return false;
        if (Interlocked.Increment(ref _here) <= hereMax)
            return true;
        Interlocked.Decrement(ref _here);
        return false;
    }

    /// <summary>The read is over.</summary>
    public void LeaveHere() => Interlocked.Decrement(ref _here);

    /// <summary>
    /// Continues at once if there is a place on this thread, otherwise on one of the dedicated threads. The place must be released after the read.
    /// </summary>
    /// <param name="isElsewhere">Not on this thread, because others wait for it or the read may take long.</param>
    public Entering EnterAsync(bool isElsewhere = false) => new(this, !isElsewhere && TryEnterHere());

    /// <summary>Touches the bytes found, so that copying them later under a lock does not wait for the disk and block everyone who needs the lock.</summary>
    public static void Touch(ReadOnlySpan<byte> found)
    {
        if (found.IsEmpty)
            return;
        ref var first = ref MemoryMarshal.GetReference(found);
        for (var offset = 0; offset < found.Length; offset += PageBytes)
            Volatile.Read(ref Unsafe.Add(ref first, offset));
        Volatile.Read(ref Unsafe.Add(ref first, found.Length - 1));
    }

    /// <summary>Runs the queued reads, ends the threads and waits for them. Later reads run on the pool.</summary>
    public async ValueTask DisposeAsync()
    {
        lock (_gate)
            _isStopping = true;
        if (_running == 0)
            _ended.TrySetResult();
        _arrived.Release(Math.Max(1, threads));
        await _ended.Task.ConfigureAwait(false);
        _arrived.Dispose();
    }

    private void Queue(Action read)
    {
        // With the lock held, so that nothing is left in the queue and the semaphore is not used after the last thread has ended.
        lock (_gate)
        {
            if (!_isStopping)
            {
                _waiting.Enqueue(read);
                _arrived.Release();
                return;
            }
        }
        ThreadPool.UnsafeQueueUserWorkItem(static one => one(), read, preferLocal: false);
    }

    private void Serve()
    {
        while (true)
        {
            _arrived.Wait();
            if (_waiting.TryDequeue(out var read))
                read();
            else if (_isStopping)
                break;
        }
        if (Interlocked.Decrement(ref _running) == 0)
            _ended.TrySetResult();
    }

    /// <summary>Awaited to get a place.</summary>
    internal readonly struct Entering(ReadThreads reads, bool isHere) : ICriticalNotifyCompletion
    {
        public bool IsCompleted => isHere;

        public Entering GetAwaiter() => this;

        public Place GetResult() => new(reads, isHere);

        public void OnCompleted(Action continuation) => reads.Queue(continuation);

        public void UnsafeOnCompleted(Action continuation) => reads.Queue(continuation);
    }

    /// <summary>A place to read.</summary>
    internal readonly struct Place(ReadThreads reads, bool isHere)
    {
        /// <summary>To be awaited once after the read. Continues on the pool, so that a dedicated thread can take its next read.</summary>
        public Leaving LeaveAsync()
        {
            if (isHere)
                reads.LeaveHere();
            return new Leaving(isHere);
        }
    }

    /// <summary>Awaited to return to the pool.</summary>
    internal readonly struct Leaving(bool isOnPool) : ICriticalNotifyCompletion
    {
        public bool IsCompleted => isOnPool;

        public Leaving GetAwaiter() => this;

        public void GetResult()
        {
        }

        public void OnCompleted(Action continuation) => ThreadPool.UnsafeQueueUserWorkItem(static one => one(), continuation, preferLocal: false);

        public void UnsafeOnCompleted(Action continuation) => OnCompleted(continuation);
    }
}
