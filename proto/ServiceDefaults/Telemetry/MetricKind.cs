using System.Diagnostics.Metrics;

namespace KvCluster.ServiceDefaults.Telemetry;

/// <summary>What an instrument's measurements mean.</summary>
/// <param name="IsMonotonic">A sum that never falls.</param>
/// <param name="IsGauge">A value of now.</param>
/// <param name="IsHistogram">Values that are counted by size.</param>
/// <param name="Adds">A measurement is a difference; otherwise it is the whole.</param>
/// <param name="IsObserved">It is asked for its measurements at each collection, and what it does not name is gone.</param>
internal readonly record struct MetricKind(bool IsMonotonic, bool IsGauge, bool IsHistogram, bool Adds, bool IsObserved)
{
    /// <summary>The kind by the instrument's type.</summary>
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
