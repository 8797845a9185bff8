namespace KvCluster.Tests;

/// <summary>
/// Occupies every thread of the process's pool until it is disposed. The pool adds about two threads per second, so the items last for minutes. Only for tests
/// that nothing runs beside.
/// </summary>
internal sealed class OccupiedPool : IDisposable
{
    private const int Items = 1_000;
    private readonly ManualResetEventSlim _go = new();
    private readonly CountdownEvent _left = new(Items);
    private int _begun;

    public OccupiedPool()
    {
        for (var item = 0; item < Items; item++)
            ThreadPool.UnsafeQueueUserWorkItem(static pool => pool.Occupy(), this, preferLocal: false);
    }

    /// <summary>Whether items still wait for a thread.</summary>
    public bool IsFull => Volatile.Read(ref _begun) < Items;

    /// <summary>Lets the threads go, and waits for the end of all items.</summary>
    public void Dispose()
    {
        _go.Set();
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
