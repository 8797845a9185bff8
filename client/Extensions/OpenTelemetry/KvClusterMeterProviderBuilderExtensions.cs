using KvCluster.Client.Telemetry;

namespace OpenTelemetry.Metrics;

/// <summary>Adds the metrics of the clients of KvCluster.</summary>
public static class KvClusterMeterProviderBuilderExtensions
{
    /// <summary>Adds the metrics of all clients of the process: the meter "KvCluster.Client".</summary>
    public static MeterProviderBuilder AddKvCluster(this MeterProviderBuilder builder)
    {
        ArgumentNullException.ThrowIfNull(builder);
        return builder.AddMeter(ClientMetrics.Name);
    }
}
