// Where trees are read for callers. A page that is not in memory holds up the thread that touches it for as long as the disk takes, and threads that wait so are not
// idle to the thread pool, on which everything of a node leaves and arrives, heartbeats too: 128 Gets of a file whose disk needed 200 ms for a read kept the whole
// pool for twenty seconds, and the node lost its shards. Nobody can say beforehand whether a page is there without asking the kernel each time, so what is
// bounded is how many read on the pool at once; who comes beyond that has its turn on a fixed set of threads of this node, which may wait for the disk as they like.
// Pages that are in memory take microseconds: then next to none has to change threads. The loop of an exchange, for which all calls of the stream wait, stays away from trees while
// InlineReads says so; and a read of many keys has its turns on those threads only. Called by KvReads and KvScans, on any thread.
using System.Collections.Concurrent;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace KvCluster.Node.Api;

/// <summary>Places for reads of trees: some on the thread that asks, and the rest in turn on threads that do nothing else.</summary>
/// <param name="hereMax">So many read at once on the threads that ask.</param>
/// <param name="threads">So many threads for the rest.</param>
internal sealed class ReadThreads(int hereMax, int threads) : IAsyncDisposable
{
    /// <summary>Reads at once that a disk is asked for besides those on the pool: about what lets a solid-state disk reach its rate; each is an idle thread otherwise.</summary>
    private const int ThreadsDefault = 16;

    /// <summary>More than processors, since a thread that reads may have lost its processor, and then nobody waits for a disk.</summary>
    private const int HereBeyondProcessors = 4;

    /// <summary>Threads of the pool for all else, besides one for each processor: as many connections may wait on the same lock.</summary>
    private const int RestBeyondProcessors = 2;

    /// <summary>Smallest page of the systems that this runs on, in bytes: how far apart what is touched lies.</summary>
    private const int PageBytes = 4 << 10;

    // Bounded by the calls that a node takes.
    private readonly ConcurrentQueue<Action> _waiting = new();
    private readonly SemaphoreSlim _arrived = new(0);
    private readonly Lock _gate = new();
    private readonly TaskCompletionSource _ended = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private int _here;
    private int _running;
    private volatile bool _isStopping;

    /// <summary>How many read on the pool at once in a node.</summary>
    public static int HereMaxDefault => Environment.ProcessorCount + HereBeyondProcessors;

    /// <summary>
    /// Those of a node, whose threads have begun. The process's pool keeps so many threads from here on that reads which all wait for the disk leave it one for each processor, and some: it begins
    /// with one for each processor, and adds one or two a second where those wait.
    /// </summary>
    public static ReadThreads Start()
    {
        ThreadPool.GetMinThreads(out var workers, out var completions);
        ThreadPool.SetMinThreads(Math.Max(workers, HereMaxDefault + Environment.ProcessorCount + RestBeyondProcessors), completions);
        var reads = new ReadThreads(HereMaxDefault, ThreadsDefault);
        reads.Run();
        return reads;
    }

    /// <summary>Begins the threads. Once.</summary>
    public void Run()
    {
        _running = threads;
        for (var index = 0; index < threads; index++)
            new Thread(Serve) { Name = $"kv-read-{index}", IsBackground = true }.Start();
    }

    /// <summary>Whether a read may happen on this thread now. If so, <see cref="LeaveHere"/> follows it.</summary>
    public bool TryEnterHere()
    {
        // A look first: who comes in vain again and again does not take the others' cache line.
        if (Volatile.Read(ref _here) >= hereMax)
            return false;
        if (Interlocked.Increment(ref _here) <= hereMax)
            return true;
        Interlocked.Decrement(ref _here);
        return false;
    }

    /// <summary>The read is over.</summary>
    public void LeaveHere() => Interlocked.Decrement(ref _here);

    /// <summary>Goes on at once where there is a place on this thread, else on one of those for it. The place is given back when the read is over.</summary>
    /// <param name="isElsewhere">Not on this thread: others wait for what it does next, or it is a read that may take long.</param>
    public Entering EnterAsync(bool isElsewhere = false) => new(this, !isElsewhere && TryEnterHere());

    /// <summary>
    /// Touches what was found, so that whoever copies it under a lock does not wait for the disk with that, and all who need the lock with him.
    /// </summary>
    public static void Touch(ReadOnlySpan<byte> found)
    {
        if (found.IsEmpty)
            return;
        ref var first = ref MemoryMarshal.GetReference(found);
        for (var offset = 0; offset < found.Length; offset += PageBytes)
            Volatile.Read(ref Unsafe.Add(ref first, offset));
        Volatile.Read(ref Unsafe.Add(ref first, found.Length - 1));
    }

    /// <summary>Runs what waits, and ends the threads; waits for them. Who comes later reads on the pool.</summary>
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
        // With the lock nothing is left behind, nor the semaphore touched, when the last thread has ended.
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

    /// <summary>Awaited for a place.</summary>
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
        /// <summary>To be awaited once when the read is over: goes on on the pool, so that the thread has its next turn.</summary>
        public Leaving LeaveAsync()
        {
            if (isHere)
                reads.LeaveHere();
            return new Leaving(isHere);
        }
    }

    /// <summary>Awaited for the pool.</summary>
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
