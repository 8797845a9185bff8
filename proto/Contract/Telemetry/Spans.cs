// Spans of our programs, on the runtime's own ActivitySource. None becomes the current one of its thread or of its caller's flow: the threads and streams
// here serve many callers in turn, and would keep what came first. Any thread.
using System.Diagnostics;
using System.Text.Json;
using Grpc.Core;

namespace KvCluster.Telemetry;

/// <summary>Begins and ends spans.</summary>
internal static class Spans
{
    /// <summary>Name of W3C's header.</summary>
    public const string Header = "traceparent";

    /// <summary>Bytes of its value: version, trace, span and flags.</summary>
    public const int HeaderLength = 55;

    /// <summary>Begins a span below another one; null: nobody listens, or it is not sampled.</summary>
    /// <param name="source">Whose it is.</param>
    /// <param name="name">What is done.</param>
    /// <param name="kind">On which side of what.</param>
    /// <param name="parent">default: it begins a trace, if the sampler agrees.</param>
    /// <param name="links">Others that it is done for.</param>
    public static Activity? Start(ActivitySource source, string name, ActivityKind kind, ActivityContext parent, IEnumerable<ActivityLink>? links = null)
    {
        var current = Activity.Current;
        if (parent == default)
            Activity.Current = null;
        var span = source.StartActivity(name, kind, parent, tags: null, links);
        Activity.Current = current;
        return span is null or { Recorded: true } ? span : null;
    }

    /// <summary>Begins the span of a remote procedure call, with the attributes of OpenTelemetry's conventions.</summary>
    public static Activity? StartCall(ActivitySource source, string method, ActivityKind kind, ActivityContext parent) =>
        Start(source, method, kind, parent)?.SetTag(RpcTags.System, "grpc").SetTag(RpcTags.Method, method);

    /// <summary>Reads a parent in another process. False: there is none, or it is not sampled.</summary>
    /// <param name="traceparent">As in W3C's header; null or empty: none.</param>
    /// <param name="parent">The parent.</param>
    public static bool TryParse(string? traceparent, out ActivityContext parent) =>
        ActivityContext.TryParse(traceparent, null, isRemote: true, out parent) && parent.TraceFlags.HasFlag(ActivityTraceFlags.Recorded);

    /// <summary>A status as gRPC writes it: "DEADLINE_EXCEEDED".</summary>
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
    /// <param name="status">gRPC's status by name: "OK".</param>
    /// <param name="reason">Of a refusal; null: it was answered.</param>
    public static void StopCall(Activity span, string status, string? reason)
    {
        span.SetTag(RpcTags.Status, status);
        if (reason is not null)
            span.SetTag(RpcTags.Error, reason).SetStatus(ActivityStatusCode.Error, reason);
        Stop(span);
    }
}
