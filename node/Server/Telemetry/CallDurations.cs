using KvCluster.Telemetry;

namespace KvCluster.Node.Telemetry;

/// <summary>Counts calls by their duration. Any thread, without a lock. A read while calls end may miss the newest.</summary>
internal sealed class CallDurations
{
    private static readonly long[] BoundsTicks =
        [.. Buckets.Seconds.HistogramBucketBoundaries!.Select(seconds => (long)Math.Round(seconds * TimeSpan.TicksPerSecond))];

    private readonly long[] _calls = new long[BoundsTicks.Length + 1];

    public void Add(TimeSpan took)
    {
        var found = Array.BinarySearch(BoundsTicks, took.Ticks);
        Interlocked.Increment(ref _calls[found < 0 ? ~found : found]);
    }

    /// <summary>The calls since a moment, and how long they took.</summary>
    /// <param name="before">The counts at that moment, which become the present ones. It has <see cref="Counts"/> numbers, at first all 0.</param>
    public DurationsTold Since(long[] before)
    {
        var calls = new long[_calls.Length];
        for (var bucket = 0; bucket < calls.Length; bucket++)
        {
            var now = Volatile.Read(ref _calls[bucket]);
            (calls[bucket], before[bucket]) = (now - before[bucket], now);
        }
        return new DurationsTold(calls.Sum(), PercentileUs(calls, 0.5), PercentileUs(calls, 0.99));
    }

    /// <summary>Number of counts.</summary>
    public static int Counts => BoundsTicks.Length + 1;

    public V1.CallDurations ToMessage()
    {
        var message = new V1.CallDurations();
        message.BoundsUs.AddRange(BoundsTicks.Select(ticks => (ulong)(ticks / TimeSpan.TicksPerMicrosecond)));
        for (var i = 0; i < _calls.Length; i++)
            message.Calls.Add((ulong)Volatile.Read(ref _calls[i]));
        return message;
    }

    // The duration below which the share of the calls is, interpolated linearly within its bucket, in microseconds; 0 without calls, and the last bound if it
    // is beyond that.
    private static long PercentileUs(long[] calls, double share)
    {
        var rank = share * calls.Sum();
        var below = 0L;
        for (var bucket = 0; rank > 0 && bucket < BoundsTicks.Length; below += calls[bucket++])
        {
            if (below + calls[bucket] < rank)
                continue;
            var least = bucket == 0 ? 0 : BoundsTicks[bucket - 1];
            return (long)Math.Round((least + ((BoundsTicks[bucket] - least) * (rank - below) / calls[bucket])) / TimeSpan.TicksPerMicrosecond);
        }
        return rank > 0 ? BoundsTicks[^1] / TimeSpan.TicksPerMicrosecond : 0;
    }
}

/// <summary>How many calls there were, and how long they took.</summary>
/// <param name="Count">Their number.</param>
/// <param name="P50Us">The median of their durations, in microseconds.</param>
/// <param name="P99Us">The 99th percentile.</param>
internal readonly record struct DurationsTold(long Count, long P50Us, long P99Us);
