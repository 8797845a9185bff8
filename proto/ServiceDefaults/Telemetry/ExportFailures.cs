using System.Diagnostics.Tracing;
using Microsoft.Extensions.Logging;

namespace KvCluster.ServiceDefaults.Telemetry;

/// <summary>Logs once that telemetry cannot be sent. The SDK reports this only to an event source, where no operator looks. Any thread.</summary>
internal sealed partial class ExportFailures(ILogger log) : EventListener
{
    private int _isTold;

    protected override void OnEventSourceCreated(EventSource eventSource)
    {
        if (eventSource.Name.StartsWith("OpenTelemetry-Exporter", StringComparison.Ordinal))
            EnableEvents(eventSource, EventLevel.Error);
    }

    protected override void OnEventWritten(EventWrittenEventArgs eventData)
    {
        // The base class's constructor may call this before the fields of this class are set.
        if (log is null || Interlocked.Exchange(ref _isTold, 1) == 1)
            return;
        object?[] values = eventData.Payload is { } payload ? [.. payload] : [];
        NotSent(log, $"{eventData.EventName}: {string.Join(", ", values)}");
    }

    [LoggerMessage(1, LogLevel.Warning, "Telemetry cannot be sent. Nothing else is affected, and this message is logged only once. {Reason}")]
    private static partial void NotSent(ILogger log, string reason);
}
