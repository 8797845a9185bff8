using System.Buffers;
using System.Collections.Concurrent;
using System.Diagnostics.Metrics;
using System.Globalization;
using System.Text;
using KvCluster.Telemetry;
using Tag = System.Collections.Generic.KeyValuePair<string, object?>;

namespace KvCluster.ServiceDefaults.Telemetry;

/// <summary>All series of one metric name. Any thread measures; collections run one at a time.</summary>
internal sealed class MetricFamily
{
    /// <summary>The same limit as in OpenTelemetry's SDK. Further measurements go to one series that is marked as the overflow.</summary>
    public const int SeriesMax = 2_000;

    private const string OverflowLabels = "otel_metric_overflow=\"true\"";

    /// <summary>The longest number as text has 24 characters.</summary>
    private const int ValueBytesMax = 32;

    // The bounds for instruments that do not specify their buckets. Instruments of the runtime specify them.
    private static readonly double[] BoundsOtherwise = [.. Buckets.Seconds.HistogramBucketBoundaries!];

    private readonly MetricKind _kind;
    private readonly byte[] _head;
    private readonly double[] _bounds;
    private readonly ConcurrentDictionary<Tag[], MetricSeries> _series = new(TagComparer.Instance);
    private readonly ConcurrentDictionary<Tag[], MetricSeries>.AlternateLookup<ReadOnlySpan<Tag>> _lookup;
    private readonly MetricSeries _overflow;

    // The series in the order of their labels. Series are never removed, so the same number of series means the same series.
    private MetricSeries[] _sorted = [];

    public MetricFamily(Instrument instrument)
    {
        _kind = MetricKind.Of(instrument);
        Name = MetricName.Of(instrument.Name, instrument.Unit, _kind);
        var help = (instrument.Description ?? "").Replace("\\", "\\\\", StringComparison.Ordinal).Replace("\n", "\\n", StringComparison.Ordinal);
        var type = _kind.IsHistogram ? "histogram" : _kind.IsMonotonic ? "counter" : "gauge";
        _head = Encoding.UTF8.GetBytes($"# HELP {Name} {help}\n# TYPE {Name} {type}\n");
        _bounds = _kind.IsHistogram ? BoundsOf(instrument) : [];
        _lookup = _series.GetAlternateLookup<ReadOnlySpan<Tag>>();
        _overflow = new MetricSeries(OverflowLabels, _bounds);
    }

    /// <summary>The name in the exposition format.</summary>
    public string Name { get; }

    /// <summary>Records a measurement.</summary>
    public void Measure(double value, ReadOnlySpan<Tag> tags, long collection)
    {
        var series = SeriesOf(tags);
        if (_kind.IsHistogram)
            series.Record(value);
        else if (_kind.Adds)
            series.Add(value);
        else if (_kind.IsObserved)
            series.Observe(value, collection);
        else
            series.Set(value);
    }

    /// <summary>Returns a label as it stands between the braces of a series.</summary>
    public static string LabelOf(Tag tag) => $"{MetricName.OfLabel(tag.Key)}=\"{Escaped(tag.Value)}\"";

    /// <summary>Writes the results of a collection; writes nothing if nothing was measured.</summary>
    /// <param name="output">What is written to.</param>
    /// <param name="common">Labels that precede those of each series; may be empty.</param>
    /// <param name="collection">The number of the collection.</param>
    public void WriteTo(IBufferWriter<byte> output, string common, long collection)
    {
        var hasHead = false;
        foreach (var series in Sorted())
        {
            if (!IsShown(series, collection))
                continue;
            if (!hasHead)
                output.Write(new ReadOnlySpan<byte>(_head));
            hasHead = true;
            var beginnings = BeginningsOf(series, common);
            if (_kind.IsHistogram)
                WriteHistogram(output, beginnings, series);
            else
                WriteLine(output, beginnings[0], series.Value);
        }
    }

    private MetricSeries[] Sorted()
    {
        if (_sorted.Length != _series.Count + 1)
            _sorted = [.. _series.Values.Append(_overflow).OrderBy(static series => series.Labels, StringComparer.Ordinal)];
        return _sorted;
    }

    private bool IsShown(MetricSeries series, long collection) =>
        _kind.IsObserved ? series.Collection == collection : series != _overflow || _series.Count >= SeriesMax;

    private MetricSeries SeriesOf(ReadOnlySpan<Tag> tags)
    {
        if (_lookup.TryGetValue(tags, out var known))
            return known;
        if (_series.Count >= SeriesMax)
            return _overflow;
        return _series.GetOrAdd(tags.ToArray(), static (key, bounds) => new MetricSeries(LabelsOf(key), bounds), _bounds);
    }

    // Cumulative, so that no bucket is smaller than the one before it while others measure.
    private void WriteHistogram(IBufferWriter<byte> output, byte[][] beginnings, MetricSeries series)
    {
        var count = 0L;
        for (var bucket = 0; bucket <= _bounds.Length; bucket++)
            WriteLine(output, beginnings[bucket], count += series.CountOf(bucket));
        WriteLine(output, beginnings[^2], series.Value);
        WriteLine(output, beginnings[^1], count);
    }

    private static void WriteLine(IBufferWriter<byte> output, byte[] beginning, double value)
    {
        var line = output.GetSpan(beginning.Length + ValueBytesMax + 1);
        beginning.AsSpan().CopyTo(line);
        var length = beginning.Length + WriteValue(line[beginning.Length..], value);
        line[length] = (byte)'\n';
        output.Advance(length + 1);
    }

    private static int WriteValue(Span<byte> text, double value)
    {
        if (double.IsInfinity(value))
        {
            (value > 0 ? "+Inf"u8 : "-Inf"u8).CopyTo(text);
            return 4;
        }
        var fits = value.TryFormat(text, out var length, "R", CultureInfo.InvariantCulture);
        Invariant.Check(fits, $"The value {value} of a metric is longer than {ValueBytesMax} characters.");
        return length;
    }

    // All of a series' lines but the values. They are most of a page, and the same on each, unless the cluster's name became known.
    private byte[][] BeginningsOf(MetricSeries series, string common)
    {
        if (series.Lines is not { } lines || lines.Common != common)
            series.Lines = lines = new SeriesLines(common, BeginningsOf(Joined(common, series.Labels)));
        return lines.Beginnings;
    }

    private byte[][] BeginningsOf(string labels) => _kind.IsHistogram
        ?
        [
            .. Enumerable.Range(0, _bounds.Length + 1).Select(bucket => Beginning($"{Name}_bucket", Joined(labels, $"le=\"{BoundOf(bucket)}\""))),
            Beginning($"{Name}_sum", labels),
            Beginning($"{Name}_count", labels),
        ]
        : [Beginning(Name, labels)];

    // Without an exponent, as Prometheus writes the bounds that it receives by OTLP.
    private string BoundOf(int bucket) => bucket < _bounds.Length ? ((decimal)_bounds[bucket]).ToString(CultureInfo.InvariantCulture) : "+Inf";

    private static byte[] Beginning(string name, string labels) => Encoding.UTF8.GetBytes(labels.Length == 0 ? $"{name} " : $"{name}{{{labels}}} ");

    private static string Joined(string labels, string further) => labels.Length == 0 ? further : further.Length == 0 ? labels : $"{labels},{further}";

    private static string LabelsOf(Tag[] tags) => string.Join(',', tags.Select(LabelOf));

    private static string Escaped(object? value) => (Convert.ToString(value, CultureInfo.InvariantCulture) ?? "")
        .Replace("\\", "\\\\", StringComparison.Ordinal).Replace("\"", "\\\"", StringComparison.Ordinal).Replace("\n", "\\n", StringComparison.Ordinal);

    private static double[] BoundsOf(Instrument instrument) => instrument switch
    {
        Histogram<double> { Advice.HistogramBucketBoundaries: { } bounds } => [.. bounds],
        Histogram<long> { Advice.HistogramBucketBoundaries: { } bounds } => [.. bounds.Select(bound => (double)bound)],
        Histogram<int> { Advice.HistogramBucketBoundaries: { } bounds } => [.. bounds.Select(bound => (double)bound)],
        _ => BoundsOtherwise,
    };
}

/// <summary>How an instrument's measurements are to be interpreted.</summary>
/// <param name="IsMonotonic">A sum that never decreases.</param>
/// <param name="IsGauge">A current value.</param>
/// <param name="IsHistogram">Values that are counted by size.</param>
/// <param name="Adds">A measurement is a difference; otherwise it is the total.</param>
/// <param name="IsObserved">It is observed at each collection, and a series that it does not report then is gone.</param>
internal readonly record struct MetricKind(bool IsMonotonic, bool IsGauge, bool IsHistogram, bool Adds, bool IsObserved)
{
    /// <summary>Returns the kind by the instrument's type.</summary>
    public static MetricKind Of(Instrument instrument)
    {
        var type = instrument.GetType().GetGenericTypeDefinition();
        return new MetricKind(
            IsMonotonic: type == typeof(Counter<>) || type == typeof(ObservableCounter<>),
            IsGauge: type == typeof(Gauge<>) || type == typeof(ObservableGauge<>),
            IsHistogram: type == typeof(Histogram<>),
            Adds: type == typeof(Counter<>) || type == typeof(UpDownCounter<>),
            IsObserved: instrument.IsObservable);
    }
}
