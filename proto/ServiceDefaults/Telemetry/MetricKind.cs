using System.Diagnostics.Metrics;

namespace KvCluster.ServiceDefaults.Telemetry;

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
