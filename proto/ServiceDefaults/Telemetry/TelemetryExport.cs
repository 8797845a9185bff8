// Telemetry exported by OTLP, configured only by OpenTelemetry's own environment variables. Started and stopped by a program's main thread. The SDK's threads
// export. If they cannot, the program continues and logs that once.
//
// OpenTelemetry.Extensions.Hosting starts and ends the providers with a host. A node has a host for each of its ports, and their telemetry begins before the
// first of them and ends after the last one. So the providers are built by the SDK's builders, and their owner is the program.
using KvCluster.ServiceDefaults.Programs;
using Microsoft.Extensions.Logging;
using OpenTelemetry;
using OpenTelemetry.Exporter;
using OpenTelemetry.Logs;
using OpenTelemetry.Metrics;
using OpenTelemetry.Resources;
using OpenTelemetry.Trace;

namespace KvCluster.ServiceDefaults.Telemetry;

/// <summary>Exports traces, metrics and logs of a program by OTLP. Without an endpoint in the environment nothing is created.</summary>
internal sealed class TelemetryExport : IDisposable
{
    /// <summary>
    /// One in this many requests without a trace starts one, unless OTEL_TRACES_SAMPLER is set. The SDK's default would trace every request.
    /// </summary>
    public const int TracedOneIn = 1_000;

    private const string Endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT";

    /// <summary>The time to send what is pending when the program stops, so that an unreachable endpoint does not delay it.</summary>
    private const int FlushMilliseconds = 500;

    private readonly TracerProvider? _traces;
    private readonly MeterProvider? _metrics;
    private readonly ExportFailures? _failures;

    private TelemetryExport(TracerProvider? traces, MeterProvider? metrics, ExportFailures? failures)
    {
        _traces = traces;
        _metrics = metrics;
        _failures = failures;
    }

    /// <summary>Starts to export what the environment asks for. Returns null if that is nothing; the SDK is not loaded then.</summary>
    /// <param name="service">The identity of the telemetry.</param>
    /// <param name="log">Gets one message if nothing can be sent.</param>
    public static TelemetryExport? Start(ExportedService service, ILogger log)
    {
        var (traces, metrics) = (IsAsked("TRACES"), IsAsked("METRICS"));
        return traces || metrics || IsAsked("LOGS") ? Start(ResourceOf(service), traces, metrics, log) : null;
    }

    /// <summary>Exports a program's logs too, if the environment asks for it.</summary>
    public static void AddLogs(ILoggingBuilder logs, ExportedService service)
    {
        if (!IsAsked("LOGS"))
            return;
        logs.AddOpenTelemetry(options =>
        {
            options.IncludeFormattedMessage = true;
            options.SetResourceBuilder(ResourceOf(service));
            options.AddOtlpExporter(exporter => UseSignalPath(exporter, "LOGS"));
        });
    }

    public void Dispose()
    {
        // In parallel, because each waits for the same endpoint.
        Task.WaitAll(
            Task.Run(() => _traces?.Shutdown(FlushMilliseconds)),
            Task.Run(() => _metrics?.Shutdown(FlushMilliseconds)));
        _traces?.Dispose();
        _metrics?.Dispose();
        _failures?.Dispose();
    }

    private static TelemetryExport Start(ResourceBuilder resource, bool traces, bool metrics, ILogger log) =>
        new(traces ? TracesOf(resource) : null, metrics ? MetricsOf(resource) : null, new ExportFailures(log));

    private static TracerProvider TracesOf(ResourceBuilder resource)
    {
        var builder = Sdk.CreateTracerProviderBuilder().SetResourceBuilder(resource).AddSource("KvCluster.*");
        if (Variable("OTEL_TRACES_SAMPLER") is null)
            builder.SetSampler(new ParentBasedSampler(new TraceIdRatioBasedSampler(1.0 / TracedOneIn)));
        return builder.AddOtlpExporter(exporter => UseSignalPath(exporter, "TRACES")).Build();
    }

    private static MeterProvider MetricsOf(ResourceBuilder resource)
    {
        var builder = Sdk.CreateMeterProviderBuilder().SetResourceBuilder(resource)
            .AddMeter("KvCluster.*", "System.Runtime", "Microsoft.AspNetCore.Server.Kestrel");
        if (Variable("OTEL_METRICS_EXEMPLAR_FILTER") is null)
            builder.SetExemplarFilter(ExemplarFilterType.TraceBased);
        return builder.AddOtlpExporter(exporter => UseSignalPath(exporter, "METRICS")).Build();
    }

    // The variables of one signal have precedence over those for all.
    private static void UseSignalPath(OtlpExporterOptions exporter, string signal)
    {
        if (Variable($"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT") is { } own)
            exporter.Endpoint = new Uri(own);
    }

    private static bool IsAsked(string signal) =>
        (Variable(Endpoint) ?? Variable($"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")) is not null
        && !string.Equals(Variable("OTEL_SDK_DISABLED"), "true", StringComparison.OrdinalIgnoreCase)
        && Variable($"OTEL_{signal}_EXPORTER") is null or "otlp";

    private static string? Variable(string name) => Environment.GetEnvironmentVariable(name) is { Length: > 0 } value ? value : null;

    // The environment's description of the service has precedence over the program's.
    private static ResourceBuilder ResourceOf(ExportedService service) => ResourceBuilder.CreateEmpty()
        .AddService(service.Name, "kvcluster", ProgramVersion.Short, autoGenerateServiceInstanceId: false, service.Instance)
        .AddAttributes(service.Cluster is { } cluster ? [new("kvcluster.cluster", cluster)] : [])
        .AddTelemetrySdk()
        .AddEnvironmentVariableDetector();
}

/// <summary>The identity of exported telemetry.</summary>
/// <param name="Name">The name of the program, for example "kv-node", unless OTEL_SERVICE_NAME overrides it.</param>
/// <param name="Instance">Distinguishes its processes, for example "node-1", unless OTEL_RESOURCE_ATTRIBUTES overrides it.</param>
/// <param name="Cluster">Name of the cluster; null if the program learns it only later.</param>
internal sealed record ExportedService(string Name, string Instance, string? Cluster);
