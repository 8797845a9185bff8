using HdrHistogram;

namespace KvCluster.Cli.Bench;

/// <summary>
/// How long operations took, in histograms that keep three digits of each value, so that a long run takes no more memory than a short one. Any thread.
/// </summary>
internal sealed class Latencies
{
    private const int Digits = 3;

    private static readonly TimeSpan Greatest = TimeSpan.FromHours(1);

    private readonly Lock _lock = new();
    private readonly Dictionary<BenchOperation, Recorded> _byOperation = [];

    /// <summary>Notes that an operation took so long.</summary>
    public void Add(BenchOperation operation, TimeSpan latency)
    {
        lock (_lock)
        {
            if (!_byOperation.TryGetValue(operation, out var recorded))
                _byOperation.Add(operation, recorded = new Recorded());
            recorded.Add(latency);
        }
    }

    /// <summary>What was noted of each operation.</summary>
    public IReadOnlyList<(BenchOperation Operation, LatencySummary Summary)> ByOperation()
    {
        lock (_lock)
            return [.. _byOperation.OrderBy(static one => one.Key).Select(static one => (one.Key, one.Value.Summarize()))];
    }

    /// <summary>What was noted of all of them.</summary>
    public LatencySummary OfAll()
    {
        var all = new Recorded();
        lock (_lock)
        {
            foreach (var one in _byOperation.Values)
                all.Add(one);
        }
        return all.Summarize();
    }

    private sealed class Recorded
    {
        private readonly LongHistogram _histogram = new(Greatest.Ticks, Digits);
        private TimeSpan _longest;

        public void Add(TimeSpan latency)
        {
            _histogram.RecordValue(Math.Clamp(latency.Ticks, 1, Greatest.Ticks));
            _longest = latency > _longest ? latency : _longest;
        }

        public void Add(Recorded other)
        {
            _histogram.Add(other._histogram);
            _longest = other._longest > _longest ? other._longest : _longest;
        }

        // The value of a percentile is the greatest of those that the histogram does not tell apart, and so may be a little more than the longest.
        public LatencySummary Summarize() => new(_histogram.TotalCount, At(50), At(90), At(99), At(99.9), At(99.99), _longest);

        private TimeSpan At(double percentile) => TimeSpan.FromTicks(Math.Min(_longest.Ticks, _histogram.GetValueAtPercentile(percentile)));
    }
}

/// <summary>How long operations took.</summary>
/// <param name="Count">How many there were.</param>
internal sealed record LatencySummary(long Count, TimeSpan P50, TimeSpan P90, TimeSpan P99, TimeSpan P999, TimeSpan P9999, TimeSpan Max);
