// Spans of the programs, on the runtime's own ActivitySource. None of them becomes the current one of its thread or of its caller's flow, because threads and
// streams here serve many callers in turn and would keep the first span. Any thread.
using System.Diagnostics;
using System.Text.Json;
using Grpc.Core;

namespace KvCluster.Telemetry;

/// <summary>Starts and ends spans.</summary>
internal static class Spans
{
    /// <summary>Name of the W3C header.</summary>
    public const string Header = "traceparent";

    /// <summary>Length of its value: version, trace, span and flags.</summary>
    public const int HeaderLength = 55;

    /// <summary>Starts a span as the child of another one. Returns null if nobody listens or it is not sampled.</summary>
    /// <param name="source">The source that it belongs to.</param>
    /// <param name="name">What is done.</param>
    /// <param name="kind">On which side of a call, for example.</param>
    /// <param name="parent">default means to start a trace, if the sampler agrees.</param>
    /// <param name="links">Other spans for which it is done.</param>
    public static Activity? Start(ActivitySource source, string name, ActivityKind kind, ActivityContext parent, IEnumerable<ActivityLink>? links = null)
    {
        var current = Activity.Current;
        if (parent == default)
            Activity.Current = null;
        var span = source.StartActivity(name, kind, parent, tags: null, links);
        Activity.Current = current;
        return span is null or { Recorded: true } ? span : null;
    }

    /// <summary>Starts the span of a remote procedure call, with the attributes of OpenTelemetry's conventions.</summary>
    public static Activity? StartCall(ActivitySource source, string method, ActivityKind kind, ActivityContext parent) =>
        Start(source, method, kind, parent)?.SetTag(RpcTags.System, "grpc").SetTag(RpcTags.Method, method);

    /// <summary>Parses a parent in another process. Returns false if there is none or it is not sampled.</summary>
    /// <param name="traceparent">As in the W3C header; null or empty if there is none.</param>
    /// <param name="parent">The parent.</param>
    public static bool TryParse(string? traceparent, out ActivityContext parent) =>
        ActivityContext.TryParse(traceparent, null, isRemote: true, out parent) && parent.TraceFlags.HasFlag(ActivityTraceFlags.Recorded);

    /// <summary>The name of a status code as gRPC writes it: "DEADLINE_EXCEEDED".</summary>
    public static string NameOf(StatusCode status) => JsonNamingPolicy.SnakeCaseUpper.ConvertName(status.ToString());

    /// <summary>Ends a span now.</summary>
    public static void Stop(Activity span)
    {
        var current = Activity.Current;
        span.Stop();
        Activity.Current = current;
    }

    /// <summary>Ends the span of a call.</summary>
    /// <param name="span">The span.</param>
    /// <param name="status">Name of the gRPC status code: "OK".</param>
    /// <param name="reason">Reason of an error; null if the call succeeded.</param>
    public static void StopCall(Activity span, string status, string? reason)
    {
        span.SetTag(RpcTags.Status, status);
        if (reason is not null)
            span.SetTag(RpcTags.Error, reason).SetStatus(ActivityStatusCode.Error, reason);
        Stop(span);
    }
}
