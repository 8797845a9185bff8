namespace KvCluster.Client.Telemetry;

/// <summary>
/// Counts how keys found their shards, for the metric "kvcluster.client.routes". Hits and misses are counted per processor, each in its own cache line, so
/// that callers do not contend. A count is lost only if a thread is moved to another processor while it counts.
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

    /// <summary>Number of keys that were in the shard of the last key or in the one after it.</summary>
    public long Hits => Sum(0);

    /// <summary>Number of keys that were searched in the map.</summary>
    public long Misses => Sum(1);

    /// <summary>Number of answers with routes newer than the one by which the call was sent.</summary>
    public long Stale => Volatile.Read(ref _stale);

    /// <summary>Number of places to count at, which other fields of a processor may use too.</summary>
    public int Places => _mask + 1;

    /// <summary>The place of the processor that the caller runs on.</summary>
    public int Place => Thread.GetCurrentProcessorId() & _mask;

    public void Hit(int place) => _counts[place * LongsPerLine]++;

    public void Miss(int place) => _counts[(place * LongsPerLine) + 1]++;

    public void CountStale() => Interlocked.Increment(ref _stale);

    public void Dispose() => ClientMetrics.Remove(this);

    private long Sum(int place)
    {
        var sum = 0L;
        for (var index = place; index < _counts.Length; index += LongsPerLine)
            sum += Volatile.Read(ref _counts[index]);
        return sum;
    }
}
