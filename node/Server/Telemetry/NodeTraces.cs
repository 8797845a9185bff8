// Spans of a node: a call, the merged transaction that it became part of, the journal writes, the way to each follower. A node starts no trace by
// itself. It continues those that callers sampled, so a call without a trace costs only the check of a flag. Any thread.
using System.Diagnostics;
using KvCluster.Telemetry;
using KvCluster.V1;

namespace KvCluster.Node.Telemetry;

/// <summary>Starts and ends spans.</summary>
internal static class NodeTraces
{
    private static readonly ActivitySource Source = new(NodeMetrics.Name);

    /// <summary>Whether anybody listens to spans.</summary>
    public static bool IsOn => Source.HasListeners();

    /// <summary>Starts the span of a caller's call; null if it is in no sampled trace.</summary>
    /// <param name="method">The method called.</param>
    /// <param name="traceparent">The value of W3C's header of that name; null or empty if there is none.</param>
    public static Activity? StartCall(Method method, string? traceparent) =>
        IsOn && Spans.TryParse(traceparent, out var parent) ? Spans.StartCall(Source, MethodTags.NameOf(method), ActivityKind.Server, parent) : null;

    /// <summary>Starts a span whose parent is in another process; null if the parent is not sampled or not valid.</summary>
    public static Activity? StartRemote(string name, ActivityKind kind, string? traceparent) =>
        IsOn && Spans.TryParse(traceparent, out var parent) ? Spans.Start(Source, name, kind, parent) : null;

    /// <summary>Starts a child span.</summary>
    public static Activity? Start(string name, ActivityKind kind, ActivityContext parent, IEnumerable<ActivityLink>? links = null) =>
        Spans.Start(Source, name, kind, parent, links);

    /// <summary>Adds a child span that has just ended.</summary>
    public static void Add(string name, ActivityContext parent, TimeSpan took, string tag, object? value)
    {
        if (Start(name, ActivityKind.Internal, parent) is not { } span)
            return;
        var end = DateTime.UtcNow;
        span.SetTag(tag, value).SetStartTime(end - took).SetEndTime(end);
        Spans.Stop(span);
    }
}
