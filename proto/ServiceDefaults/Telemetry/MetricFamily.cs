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

    // For instruments that do not specify their buckets. Those of the runtime do.
    private static readonly double[] BoundsOtherwise = [.. Buckets.Seconds.HistogramBucketBoundaries!];

    private readonly MetricKind _kind;
    private readonly string _help;
    private readonly double[] _bounds;
    private readonly ConcurrentDictionary<Tag[], MetricSeries> _series = new(TagComparer.Instance);
    private readonly ConcurrentDictionary<Tag[], MetricSeries>.AlternateLookup<ReadOnlySpan<Tag>> _lookup;
    private readonly MetricSeries _overflow;

    public MetricFamily(Instrument instrument)
    {
        _kind = MetricKind.Of(instrument);
        Name = MetricName.Of(instrument.Name, instrument.Unit, _kind);
        _help = instrument.Description ?? "";
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
    /// <param name="text">What is written to.</param>
    /// <param name="common">Labels that precede those of each series; may be empty.</param>
    /// <param name="collection">The number of the collection.</param>
    public void WriteTo(StringBuilder text, string common, long collection)
    {
        var shown = _series.Values.Append(_overflow).Where(series => IsShown(series, collection)).OrderBy(series => series.Labels, StringComparer.Ordinal).ToArray();
        if (shown.Length == 0)
            return;
        text.Append("# HELP ").Append(Name).Append(' ').Append(_help.Replace("\\", "\\\\", StringComparison.Ordinal).Replace("\n", "\\n", StringComparison.Ordinal)).Append('\n');
        text.Append("# TYPE ").Append(Name).Append(' ').Append(_kind.IsHistogram ? "histogram" : _kind.IsMonotonic ? "counter" : "gauge").Append('\n');
        foreach (var series in shown)
        {
            var labels = Joined(common, series.Labels);
            if (_kind.IsHistogram)
                WriteHistogram(text, labels, series);
            else
                WriteLine(text, Name, labels, Text(series.Value));
        }
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
    private void WriteHistogram(StringBuilder text, string labels, MetricSeries series)
    {
        var count = 0L;
        for (var bucket = 0; bucket <= _bounds.Length; bucket++)
        {
            count += series.CountOf(bucket);
            var bound = bucket < _bounds.Length ? Bound(_bounds[bucket]) : "+Inf";
            WriteLine(text, $"{Name}_bucket", Joined(labels, $"le=\"{bound}\""), Text(count));
        }
        WriteLine(text, $"{Name}_sum", labels, Text(series.Value));
        WriteLine(text, $"{Name}_count", labels, Text(count));
    }

    private static void WriteLine(StringBuilder text, string name, string labels, string value)
    {
        text.Append(name);
        if (labels.Length > 0)
            text.Append('{').Append(labels).Append('}');
        text.Append(' ').Append(value).Append('\n');
    }

    private static string Joined(string labels, string further) => labels.Length == 0 ? further : further.Length == 0 ? labels : $"{labels},{further}";

    private static string LabelsOf(Tag[] tags) => string.Join(',', tags.Select(LabelOf));

    private static string Escaped(object? value) => (Convert.ToString(value, CultureInfo.InvariantCulture) ?? "")
        .Replace("\\", "\\\\", StringComparison.Ordinal).Replace("\"", "\\\"", StringComparison.Ordinal).Replace("\n", "\\n", StringComparison.Ordinal);

    private static string Text(double value) =>
        double.IsPositiveInfinity(value) ? "+Inf" : double.IsNegativeInfinity(value) ? "-Inf" : value.ToString("R", CultureInfo.InvariantCulture);

    // Without an exponent, as Prometheus writes the bounds that it receives by OTLP.
    private static string Bound(double bound) => ((decimal)bound).ToString(CultureInfo.InvariantCulture);

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
