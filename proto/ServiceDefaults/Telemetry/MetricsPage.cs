// The page that Prometheus scrapes, made with the runtime's own MeterListener. It needs no package, and nothing is measured before the first scrape.
// Measurements arrive on any thread and take no lock once their series exists; pages are written one at a time. A page has a thousand lines and is scraped
// every few seconds, also while nothing else happens, so all but the values of its lines is kept.
using System.Buffers;
using System.Diagnostics.Metrics;
using KvCluster.ServiceDefaults.Security;
using Tag = System.Collections.Generic.KeyValuePair<string, object?>;

namespace KvCluster.ServiceDefaults.Telemetry;

/// <summary>
/// The metrics of this process as text (version 0.0.4 of Prometheus' exposition format). Counters and histograms start with the first page.
/// </summary>
/// <param name="shows">Which meters to include, because one process may run several nodes, each with its own page.</param>
/// <param name="cluster">
/// Name of the cluster, a label of every series, so that one Prometheus can watch several clusters however it names their jobs; empty while it is not known.
/// </param>
internal sealed class MetricsPage(Func<Meter, bool> shows, Func<string> cluster) : IDisposable
{
    /// <summary>The content type of the page.</summary>
    public const string ContentType = "text/plain; version=0.0.4; charset=utf-8";

    private readonly Lock _gate = new();
    private readonly SortedDictionary<string, MetricFamily> _families = new(StringComparer.Ordinal);
    private MeterListener? _listener;
    private long _collection;
    private bool _isDisposed;

    /// <summary>Whether a meter is one of the whole process, which a page includes besides its owner's.</summary>
    public static bool IsOfProcess(Meter meter) => meter.Name is "System.Runtime" or "Microsoft.AspNetCore.Server.Kestrel" or CertificateMetrics.Name;

    /// <summary>Collects and writes all metrics.</summary>
    /// <param name="output">Receives the page. Nothing is written to it if the collection fails.</param>
    public void WriteTo(IBufferWriter<byte> output)
    {
        lock (_gate)
        {
            ObjectDisposedException.ThrowIf(_isDisposed, this);
            _listener ??= Listen();
            _collection++;
            _listener.RecordObservableInstruments();
            lock (_families)
            {
                var common = cluster() is { Length: > 0 } name ? MetricFamily.LabelOf(new Tag("kvcluster.cluster", name)) : "";
                foreach (var family in _families.Values)
                    family.WriteTo(output, common, _collection);
            }
        }
    }

    public void Dispose()
    {
        lock (_gate)
        {
            _isDisposed = true;
            _listener?.Dispose();
        }
    }

    private MeterListener Listen()
    {
        var listener = new MeterListener { InstrumentPublished = OnPublished };
        listener.SetMeasurementEventCallback<double>(static (_, value, tags, state) => Measure(state, value, tags));
        listener.SetMeasurementEventCallback<float>(static (_, value, tags, state) => Measure(state, value, tags));
        listener.SetMeasurementEventCallback<long>(static (_, value, tags, state) => Measure(state, value, tags));
        listener.SetMeasurementEventCallback<int>(static (_, value, tags, state) => Measure(state, value, tags));
        listener.SetMeasurementEventCallback<short>(static (_, value, tags, state) => Measure(state, value, tags));
        listener.SetMeasurementEventCallback<byte>(static (_, value, tags, state) => Measure(state, value, tags));
        listener.Start();
        return listener;
    }

    private void OnPublished(Instrument instrument, MeterListener listener)
    {
        if (!shows(instrument.Meter))
            return;
        var family = new MetricFamily(instrument);
        lock (_families)
        {
            if (!_families.TryAdd(family.Name, family))
                family = _families[family.Name];
        }
        listener.EnableMeasurementEvents(instrument, new Target(this, family));
    }

    private static void Measure(object? state, double value, ReadOnlySpan<Tag> tags)
    {
        var target = (Target)state!;
        target.Family.Measure(value, tags, target.Page._collection);
    }

    private sealed record Target(MetricsPage Page, MetricFamily Family);
}
