// What leaves by OTLP, configured by OpenTelemetry's own environment variables and nothing else. Started and stopped by a program's main thread. The
// SDK's threads export; that they cannot is no error of the program: it goes on, and says so once.
using System.Reflection;
using Microsoft.Extensions.Logging;
using OpenTelemetry;
using OpenTelemetry.Exporter;
using OpenTelemetry.Logs;
using OpenTelemetry.Metrics;
using OpenTelemetry.Resources;
using OpenTelemetry.Trace;

namespace KvCluster.ServiceDefaults.Telemetry;

/// <summary>Traces, metrics and logs of a program by OTLP; without an endpoint in the environment nothing of it is created.</summary>
internal sealed class TelemetryExport : IDisposable
{
    /// <summary>One of so many requests that come without a trace begins one, where OTEL_TRACES_SAMPLER says nothing. The SDK would trace each.</summary>
    public const int TracedOneIn = 1_000;

    private const string Endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT";

    /// <summary>For what waits to be sent when the program stops; an endpoint that is gone must not hold it up.</summary>
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

    /// <summary>Begins to export what the environment asks for; null: that is nothing, and nothing of the SDK is loaded.</summary>
    /// <param name="service">Whose.</param>
    /// <param name="log">Told once when nothing can be sent.</param>
    public static TelemetryExport? Start(ExportedService service, ILogger log)
    {
        var (traces, metrics) = (IsAsked("TRACES"), IsAsked("METRICS"));
        return traces || metrics || IsAsked("LOGS") ? Start(ResourceOf(service), traces, metrics, log) : null;
    }

    /// <summary>Sends a program's logs too, if the environment asks for it.</summary>
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
        // Together: each waits for the same endpoint.
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

    // The variables of one signal go before those of all.
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

    // What the environment says of the service goes before what the program does.
    private static ResourceBuilder ResourceOf(ExportedService service) => ResourceBuilder.CreateEmpty()
        .AddService(service.Name, "kvcluster", VersionText, autoGenerateServiceInstanceId: false, service.Instance)
        .AddTelemetrySdk()
        .AddEnvironmentVariableDetector();

    private static string VersionText => typeof(TelemetryExport).Assembly.GetCustomAttribute<AssemblyInformationalVersionAttribute>()?.InformationalVersion.Split('+')[0] ?? "0";
}
