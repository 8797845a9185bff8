namespace KvCluster.ServiceDefaults.Telemetry;

/// <summary>The measurements under one set of attributes. Any thread measures; one thread collects.</summary>
/// <param name="labels">The attributes as text: a="x",b="y"; empty if there are none.</param>
/// <param name="bounds">For a histogram, the upper bounds of its buckets; empty for others.</param>
internal sealed class MetricSeries(string labels, double[] bounds)
{
    private readonly long[] _counts = new long[bounds.Length == 0 ? 0 : bounds.Length + 1];
    private double _sum;

    /// <summary>The attributes as text.</summary>
    public string Labels => labels;

    /// <summary>Its lines on the pages so far, without their values; null before the first. Of the thread that collects.</summary>
    public SeriesLines? Lines { get; set; }

    /// <summary>The collection in which an observed series was last measured.</summary>
    public long Collection { get; private set; } = -1;

    /// <summary>The value; for a histogram the sum of all values.</summary>
    public double Value => Volatile.Read(ref _sum);

    /// <summary>The number of values in a bucket. The last bucket has those above all bounds.</summary>
    public long CountOf(int bucket) => Volatile.Read(ref _counts[bucket]);

    /// <summary>Counts a value of a histogram.</summary>
    public void Record(double value)
    {
        var bucket = 0;
        while (bucket < bounds.Length && value > bounds[bucket])
            bucket++;
        Interlocked.Increment(ref _counts[bucket]);
        Add(value);
    }

    public void Add(double value)
    {
        for (var seen = Volatile.Read(ref _sum); ;)
        {
            var before = Interlocked.CompareExchange(ref _sum, seen + value, seen);
            if (before.Equals(seen))
                return;
            seen = before;
        }
    }

    public void Set(double value) => Volatile.Write(ref _sum, value);

    /// <summary>
    /// Sets the value that an instrument reports in a collection. Several instruments of one name, for example of several clients in the process, add up.
    /// </summary>
    public void Observe(double value, long collection)
    {
        Set(Collection == collection ? Value + value : value);
        Collection = collection;
    }
}

/// <summary>The lines of a series on a page, up to their values.</summary>
/// <param name="Common">The labels of all series that they have.</param>
/// <param name="Beginnings">For a histogram those of its buckets, the sum and the count, otherwise one.</param>
internal sealed record SeriesLines(string Common, byte[][] Beginnings);
