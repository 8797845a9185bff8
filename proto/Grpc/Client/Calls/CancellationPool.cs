using System.Collections.Concurrent;

namespace Grpc.Net.Client.Calls;

/// <summary>Cancellation sources, with the timers in them, that went back unfired. Any thread.</summary>
internal sealed class CancellationPool
{
    /// <summary>More than calls are usually open at once; what is beyond goes to the collector.</summary>
    private const int CountMax = 256;

    private readonly ConcurrentQueue<CancellationTokenSource> _sources = new();
    private int _count;

    public CancellationTokenSource Rent()
    {
        if (!_sources.TryDequeue(out var source))
            return new CancellationTokenSource();
        Interlocked.Decrement(ref _count);
        return source;
    }

    /// <summary>Takes a source back that nobody holds the token of any more.</summary>
    public void Return(CancellationTokenSource source)
    {
        if (Volatile.Read(ref _count) >= CountMax || !source.TryReset())
        {
            source.Dispose();
            return;
        }
        Interlocked.Increment(ref _count);
        _sources.Enqueue(source);
    }
}
