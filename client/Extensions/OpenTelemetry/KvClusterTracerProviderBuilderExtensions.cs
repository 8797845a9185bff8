using KvCluster.Client.Telemetry;

namespace OpenTelemetry.Trace;

/// <summary>Adds the spans of the clients of KvCluster.</summary>
public static class KvClusterTracerProviderBuilderExtensions
{
    /// <summary>Adds the spans of the calls of all clients of the process: the source "KvCluster.Client".</summary>
    public static TracerProviderBuilder AddKvCluster(this TracerProviderBuilder builder)
    {
        ArgumentNullException.ThrowIfNull(builder);
        return builder.AddSource(ClientMetrics.Name);
    }
}
