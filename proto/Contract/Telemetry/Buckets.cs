using System.Diagnostics.Metrics;

namespace KvCluster.Telemetry;

/// <summary>Upper bounds of the buckets of the programs' histograms: few enough to be scraped, close enough to tell a slow disk from a fast one.</summary>
internal static class Buckets
{
    /// <summary>Durations in seconds, from 50 us, which is about what a synced write takes on a good disk.</summary>
    public static readonly InstrumentAdvice<double> Seconds = new()
    {
        HistogramBucketBoundaries = [0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
    };

    /// <summary>Durations in seconds of longer activities.</summary>
    public static readonly InstrumentAdvice<double> LongSeconds = new() { HistogramBucketBoundaries = [0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300] };

    /// <summary>Sizes in bytes, from one disk block.</summary>
    public static readonly InstrumentAdvice<long> Bytes = new()
    {
        HistogramBucketBoundaries = [4 << 10,
            8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20],
    };

    /// <summary>Numbers of things processed together.</summary>
    public static readonly InstrumentAdvice<long> Counts = new() { HistogramBucketBoundaries = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 4_096, 16_384] };
}
