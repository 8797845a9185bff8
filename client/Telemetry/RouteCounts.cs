namespace KvCluster.Client.Telemetry;

/// <summary>
/// How keys found their shards, as the metric "kvcluster.client.routes" shows it. Hits and misses are counted per processor, each in a cache line
/// of its own, so that callers do not wait for one another; they are exact unless two threads change places on a processor in between.
/// </summary>
internal sealed class RouteCounts : IDisposable
{
    private const int LongsPerLine = 16;
    private readonly long[] _counts;
    private readonly int _mask;
    private long _stale;

    public RouteCounts()
    {
        var lines = (int)System.Numerics.BitOperations.RoundUpToPowerOf2((uint)Environment.ProcessorCount);
        _mask = lines - 1;
        _counts = new long[lines * LongsPerLine];
        ClientMetrics.Add(this);
    }

    /// <summary>Keys that the prefix cache found.</summary>
    public long Hits => Sum(0);

    /// <summary>Keys that were looked for in the map.</summary>
    public long Misses => Sum(1);

    /// <summary>Answers that brought newer routes than the call was sent by.</summary>
    public long Stale => Volatile.Read(ref _stale);

    public void Hit() => _counts[Line()]++;

    public void Miss() => _counts[Line() + 1]++;

    public void CountStale() => Interlocked.Increment(ref _stale);

    public void Dispose() => ClientMetrics.Remove(this);

    private int Line() => (Thread.GetCurrentProcessorId() & _mask) * LongsPerLine;

    private long Sum(int place)
    {
        var sum = 0L;
        for (var index = place; index < _counts.Length; index += LongsPerLine)
            sum += Volatile.Read(ref _counts[index]);
        return sum;
    }
}
