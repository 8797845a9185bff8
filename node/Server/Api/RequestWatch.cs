using System.Diagnostics;
using KvCluster.Node.Telemetry;
using KvCluster.Telemetry;
using KvCluster.V1;

namespace KvCluster.Node.Api;

/// <summary>One call of a client that is measured, or is in a trace. Ends once.</summary>
internal readonly struct RequestWatch
{
    private readonly NodeMetrics _metrics;
    private readonly TimeProvider _clock;
    private readonly Method _method;
    private readonly long _arrived;
    private readonly Activity? _span;

    /// <summary>Begins.</summary>
    /// <param name="metrics">The node's.</param>
    /// <param name="clock">What <paramref name="arrived"/> is a timestamp of.</param>
    /// <param name="method">The call.</param>
    /// <param name="arrived">When it came.</param>
    /// <param name="span">Its span; null: it is in no trace.</param>
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
        // While it is the current one, so that the measurement becomes an exemplar of its trace.
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
