using KvCluster.Telemetry;

namespace KvCluster.Node.Telemetry;

/// <summary>Counts calls by their duration. Any thread, without a lock. A read while calls end may miss the newest.</summary>
internal sealed class CallDurations
{
    private static readonly long[] BoundsTicks = [.. Buckets.Seconds.HistogramBucketBoundaries!.Select(seconds => (long)Math.Round(seconds * TimeSpan.TicksPerSecond))];

    private readonly long[] _calls = new long[BoundsTicks.Length + 1];

    public void Add(TimeSpan took)
    {
        var found = Array.BinarySearch(BoundsTicks, took.Ticks);
        Interlocked.Increment(ref _calls[found < 0 ? ~found : found]);
    }

    public V1.CallDurations ToMessage()
    {
        var message = new V1.CallDurations();
        message.BoundsUs.AddRange(BoundsTicks.Select(ticks => (ulong)(ticks / TimeSpan.TicksPerMicrosecond)));
        for (var i = 0; i < _calls.Length; i++)
            message.Calls.Add((ulong)Volatile.Read(ref _calls[i]));
        return message;
    }
}
