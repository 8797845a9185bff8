using System.Diagnostics;
using System.Numerics;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// How many operations took how long, to 1.6 % of the time, in 30 KB for any number of them: where memory is what is measured, a list of all times would take a
/// part of it. One thread at a time.
/// </summary>
internal sealed class LatencyCounts
{
    // Each power of two has so many equal parts. Times below two of it are exact.
    private const int Parts = 1 << PartBits;
    private const int PartBits = 6;
    private const int TickBits = 63;
    private readonly long[] _counts = new long[(TickBits - PartBits + 1) * Parts];

    /// <summary>The number of operations.</summary>
    public long Count { get; private set; }

    /// <summary>Counts an operation that took so many ticks of the stopwatch.</summary>
    public void Add(long ticks)
    {
        var shift = Math.Max(0, BitOperations.Log2((ulong)ticks) - PartBits);
        _counts[(shift * Parts) + (int)(ticks >> shift)]++;
        Count++;
    }

    /// <summary>Counts the operations that another one has counted.</summary>
    public void Add(LatencyCounts other)
    {
        for (var index = 0; index < _counts.Length; index++)
            _counts[index] += other._counts[index];
        Count += other.Count;
    }

    /// <summary>The time that this part of the operations is below, in ms.</summary>
    public double MillisecondsOf(double part)
    {
        var (index, left) = (0, (long)(Count * part));
        while (index < _counts.Length - 1 && left >= _counts[index])
            left -= _counts[index++];
        var shift = Math.Max(0, (index / Parts) - 1);
        return (double)((index - (shift * Parts) + 1L) << shift) * 1000 / Stopwatch.Frequency;
    }
}
