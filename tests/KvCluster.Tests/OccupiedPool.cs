namespace KvCluster.Tests;

/// <summary>
/// Occupies every thread of the process's pool until it is disposed, and keeps the pool from adding more: a timer that is due would be the first thing that a
/// new thread runs. Only for tests that nothing runs beside.
/// </summary>
internal sealed class OccupiedPool : IDisposable
{
    private const int Items = 1_000;
    private readonly ManualResetEventSlim _go = new();
    private readonly CountdownEvent _left = new(Items);
    private readonly int _threadsMax;
    private readonly int _ioThreadsMax;
    private int _begun;

    public OccupiedPool()
    {
        ThreadPool.GetMaxThreads(out _threadsMax, out _ioThreadsMax);
        ThreadPool.GetMinThreads(out var threads, out _);
        Assert.True(ThreadPool.SetMaxThreads(Math.Max(threads, ThreadPool.ThreadCount), _ioThreadsMax), "The pool does not let itself be bounded.");
        for (var item = 0; item < Items; item++)
            ThreadPool.UnsafeQueueUserWorkItem(static pool => pool.Occupy(), this, preferLocal: false);
    }

    /// <summary>Whether items still wait for a thread.</summary>
    public bool IsFull => Volatile.Read(ref _begun) < Items;

    /// <summary>Lets the threads go, and waits for the end of all items.</summary>
    public void Dispose()
    {
        _go.Set();
        ThreadPool.SetMaxThreads(_threadsMax, _ioThreadsMax);
        Assert.True(_left.Wait(Eventually.Limit), "The pool does not run its items.");
        _go.Dispose();
        _left.Dispose();
    }

    private void Occupy()
    {
        Interlocked.Increment(ref _begun);
        _go.Wait();
        _left.Signal();
    }
}
