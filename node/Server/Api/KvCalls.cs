// The calls of service Kv on encoded messages, for unary calls and for those of an exchange. Called on the API's threads. A call runs as
// far as it can without waiting, so that changes are submitted in the order in which they came. Every error of a caller becomes
// a refusal; an exception that leaves this class is a bug.
using System.Diagnostics;
using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Changes;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Api.Reads;
using KvCluster.Node.Telemetry;
using KvCluster.Telemetry;
using KvCluster.V1;

namespace KvCluster.Node.Api;

/// <summary>Dispatches each call to the class that runs it.</summary>
internal sealed class KvCalls
{
    private readonly NodeMetrics _metrics;
    private readonly TimeProvider _clock;
    private readonly KvQueries _queries;
    private readonly KvReads _reads;
    private readonly KvWrites _changes;
    private readonly KvSessions _sessions;
    private readonly NodeId _node;

    /// <summary>Made once for a node.</summary>
    public KvCalls(ShardLookup lookup, ReadOpener opener, ReadThreads threads, KeptSnapshots kept, QueryMemory memory, NodeMetrics metrics, TimeProvider clock)
    {
        _metrics = metrics;
        _clock = clock;
        _node = lookup.Node;
        _queries = new KvQueries(lookup, opener, threads, kept, memory, clock);
        _reads = new KvReads(lookup, opener, threads, _queries, clock);
        _changes = new KvWrites(lookup);
        _sessions = new KvSessions(lookup);
    }

    /// <summary>Whether calls should record when they arrived.</summary>
    public bool Watches => _metrics.WatchesRequests || NodeTraces.IsOn;

    /// <summary>Runs a call. Its outcome goes to the sink, perhaps after this returns. The request's bytes are not used after this returns.</summary>
    public ValueTask StartAsync<TSink>(Method method, ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink => target.ArrivedTimestamp == 0
            ? RunAsync(method, request, target, sink)
            : RunAsync(method, request, target, new MeteredSink<TSink>(sink, new RequestWatch(_metrics, _clock, method, target.ArrivedTimestamp, target.Span)));

    /// <summary>A call was refused before it was run.</summary>
    /// <param name="method">Its method.</param>
    /// <param name="refusal">Why.</param>
    /// <param name="span">Its span; null if it is not traced.</param>
    public void Refused(Method method, ApiError refusal, Activity? span = null)
    {
        if (span is not null)
            Spans.StopCall(span, refusal.StatusName, refusal.Reason);
        if (!_metrics.WatchesRequests)
            return;
        _metrics.RequestBegan();
        _metrics.RequestRefused(method, refusal.Reason);
    }

    /// <summary>A call ended by an exception, which is a bug, and not through its sink.</summary>
    /// <returns>The error for its caller.</returns>
    public ApiError Failed(Exception failure, Method method, in CallTarget target)
    {
        var refusal = ApiErrors.Internal(failure, method.IsChange());
        if (target.ArrivedTimestamp == 0)
            return refusal;
        _metrics.RequestRefused(method, refusal.Reason);
        if (target.Span is { } span)
            Spans.StopCall(span, refusal.StatusName, refusal.Reason);
        return refusal;
    }

    private ValueTask RunAsync<TSink>(Method method, ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        try
        {
            return method switch
            {
                Method.Get => _reads.GetAsync(request, target, sink),
                Method.List => _queries.ListAsync(request, target, sink),
                Method.Count => _queries.CountAsync(request, target, sink),
                Method.SetScan => _queries.SetScanAsync(request, target, sink),
                Method.SetCount => _queries.SetCountAsync(request, target, sink),
                Method.SetIntersect => _queries.SetIntersectAsync(request, target, sink),
                Method.GetMany => _reads.GetManyAsync(request, target, sink),
                Method.Put => _changes.PutAsync(request, target, sink),
                Method.Delete => _changes.DeleteAsync(request, target, sink),
                Method.DeleteRange => _changes.DeleteRangeAsync(request, target, sink),
                Method.Increment => _changes.IncrementAsync(request, target, sink),
                Method.Touch => _changes.TouchAsync(request, target, sink),
                Method.Write when target.Chunk != 0 => _changes.LoadAsync(request, target, sink),
                Method.Write => _changes.WriteAsync(request, target, sink),
                Method.Transact => _changes.TransactAsync(request, target, sink),
                Method.SetAdd => _changes.SetAddAsync(request, target, sink),
                Method.SetRemove => _changes.SetRemoveAsync(request, target, sink),
                Method.OpenSession => _changes.OpenSessionAsync(request, target, sink),
                Method.EndSession => _changes.EndSessionAsync(request, target, sink),
                Method.KeepAlive => _sessions.KeepAliveAsync(request, target, sink),
                Method.Unspecified => Refusals.Send(sink, ApiErrors.BadRequest("The call has no method.")),
                _ => Refusals.Send(sink, ApiErrors.UnknownMethod(_node, method)),
            };
        }
        catch (Exception failure) when (ApiErrors.Of(failure) is { } refusal)
        {
            return Refusals.Send(sink, refusal);
        }
    }
}
