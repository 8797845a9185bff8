// Spans of a node: a call, the merged transaction that it became part of, the writes to journals, the way to each follower. A node begins no trace by
// itself; it goes on with those that callers sampled, so a call that is in none costs the reading of a flag. Any thread.
using System.Diagnostics;
using KvCluster.Telemetry;
using KvCluster.V1;

namespace KvCluster.Node.Telemetry;

/// <summary>Begins and ends spans.</summary>
internal static class NodeTraces
{
    private static readonly ActivitySource Source = new(NodeMetrics.Name);

    /// <summary>Whether anybody takes spans.</summary>
    public static bool IsOn => Source.HasListeners();

    /// <summary>Begins the span of a caller's call; null: it is in no trace that was sampled.</summary>
    /// <param name="method">The call.</param>
    /// <param name="traceparent">As in W3C's header of that name; null or empty: none.</param>
    public static Activity? StartCall(Method method, string? traceparent) =>
        IsOn && Spans.TryParse(traceparent, out var parent) ? Spans.StartCall(Source, MethodTags.NameOf(method), ActivityKind.Server, parent) : null;

    /// <summary>Begins a span whose parent is in another process; null: that is not sampled, or is no parent.</summary>
    public static Activity? StartRemote(string name, ActivityKind kind, string? traceparent) =>
        IsOn && Spans.TryParse(traceparent, out var parent) ? Spans.Start(Source, name, kind, parent) : null;

    /// <summary>Begins a span below another one.</summary>
    public static Activity? Start(string name, ActivityKind kind, ActivityContext parent, IEnumerable<ActivityLink>? links = null) =>
        Spans.Start(Source, name, kind, parent, links);

    /// <summary>Adds a span that has just ended below another one.</summary>
    public static void Add(string name, ActivityContext parent, TimeSpan took, string tag, object? value)
    {
        if (Start(name, ActivityKind.Internal, parent) is not { } span)
            return;
        var end = DateTime.UtcNow;
        span.SetTag(tag, value).SetStartTime(end - took).SetEndTime(end);
        Spans.Stop(span);
    }
}
