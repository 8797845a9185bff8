using System.Diagnostics;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Telemetry;
using KvCluster.Telemetry;
using KvCluster.V1;

namespace KvCluster.Node.Api.Calls;

/// <summary>Measures or traces one client call. Ends once.</summary>
internal readonly struct RequestWatch
{
    private readonly NodeMetrics _metrics;
    private readonly TimeProvider _clock;
    private readonly Method _method;
    private readonly long _arrived;
    private readonly Activity? _span;

    /// <summary>Begins the measurement.</summary>
    /// <param name="metrics">The node's metrics.</param>
    /// <param name="clock">The clock of <paramref name="arrived"/>.</param>
    /// <param name="method">The call.</param>
    /// <param name="arrived">Timestamp at which the call arrived.</param>
    /// <param name="span">The call's span; null if it is not traced.</param>
    public RequestWatch(NodeMetrics metrics, TimeProvider clock, Method method, long arrived, Activity? span)
    {
        (_metrics, _clock, _method, _arrived, _span) = (metrics, clock, method, arrived, span);
        metrics.RequestBegan();
    }

    public void Answered()
    {
        if (_span is null)
        {
            _metrics.RequestAnswered(_method, _clock.GetElapsedTime(_arrived));
            return;
        }
        // Recorded while the span is current, so that the measurement becomes an exemplar of its trace.
        var current = Activity.Current;
        Activity.Current = _span;
        _metrics.RequestAnswered(_method, _clock.GetElapsedTime(_arrived));
        Activity.Current = current;
        Spans.StopCall(_span, "OK", null);
    }

    public void Refused(ApiError refusal)
    {
        if (refusal.ReplyBytes > 0)
            _metrics.RequestDeferred();
        else
            _metrics.RequestRefused(_method, refusal.Reason);
        if (_span is not null)
            Spans.StopCall(_span, refusal.StatusName, refusal.Reason);
    }
}
