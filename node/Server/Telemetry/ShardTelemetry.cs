// Metrics and spans of one shard's replica. The store and the driver call it on the shard's writer executor; journal writes are reported on the journal's
// lanes, so the traced records, of which there are few, are protected by a lock. Of all other records only a ring of timestamps is kept.
using System.Diagnostics;
using KvCluster.Internal.V1;
using KvCluster.Replication.Log;
using KvCluster.Storage.Context;
using KvCluster.Telemetry;

namespace KvCluster.Node.Telemetry;

/// <summary>Measures and traces a replica.</summary>
internal sealed class ShardTelemetry(ShardId shard, NodeMetrics metrics) : StoreObserver
{
    /// <summary>Number of the leader's records whose way to the others is timed: several times what is in flight.</summary>
    private const int TimedMax = 64;

    /// <summary>
    /// Maximum number of traced records. When it is exceeded, all earlier ones are abandoned, so that records that a follower never acknowledges do not
    /// stay.
    /// </summary>
    private const int TracedMax = 64;

    private readonly (Etag Etag, long At)[] _timed = new (Etag, long)[TimedMax];
    private readonly Dictionary<NodeId, Etag> _acknowledged = [];
    private readonly Lock _gate = new();
    private readonly Dictionary<Etag, TracedRecord> _traced = [];
    private long _timedCount;
    private long _committedCount;
    private volatile bool _hasTraced;

    /// <inheritdoc/>
    public override bool IsWatching => metrics.WatchesStores || NodeTraces.IsOn;

    /// <inheritdoc/>
    public override void Appended(RecordRef record, int operationCount, TimeSpan waited, IReadOnlyList<object> traces)
    {
        metrics.TransactionAppended(operationCount, waited);
        _timed[_timedCount++ % TimedMax] = (record.Etag, Stopwatch.GetTimestamp());
        _committedCount = Math.Max(_committedCount, _timedCount - TimedMax);
        if (traces.Count > 0)
            Trace(record, operationCount, traces);
    }

    /// <inheritdoc/>
    public override void JournalWritten(RecordRef first, RecordRef last, int bytes, TimeSpan took)
    {
        metrics.JournalWritten(bytes, took);
        if (!_hasTraced)
            return;
        lock (_gate)
        {
            foreach (var (etag, traced) in _traced)
            {
                if (etag < first.Etag || etag > last.Etag)
                    continue;
                NodeTraces.Add("journal write", traced.Span.Context, took, "kvcluster.bytes", bytes);
                traced.IsWritten = true;
                RemoveEndedLocked(etag, traced);
            }
            _hasTraced = _traced.Count > 0;
        }
    }

    /// <inheritdoc/>
    public override void CheckpointWritten(long bytes, TimeSpan took) => metrics.CheckpointWritten(bytes, took);

    /// <inheritdoc/>
    public override void Expired(int keys, TimeSpan late) => metrics.Expired(keys, late);

    /// <inheritdoc/>
    public override void SessionsEnded(int sessions) => metrics.SessionsEnded(sessions);

    /// <summary>On a leader: everything up to an etag is on a majority. Writer executor.</summary>
    public void Committed(Etag etag)
    {
        for (; _committedCount < _timedCount && _timed[_committedCount % TimedMax] is var timed && timed.Etag <= etag; _committedCount++)
            metrics.Committed(Stopwatch.GetElapsedTime(timed.At));
        if (_hasTraced)
            EndTraced(etag, static traced => traced.EndSpan());
    }

    /// <summary>On a leader: a follower has everything up to an etag. Writer executor.</summary>
    public void Acknowledged(NodeId node, Etag etag)
    {
        var before = _acknowledged.GetValueOrDefault(node);
        _acknowledged[node] = etag;
        var newest = _timedCount;
        while (newest > 0 && newest > _timedCount - TimedMax && _timed[(newest - 1) % TimedMax].Etag > etag)
            newest--;
        if (newest > 0 && newest > _timedCount - TimedMax && _timed[(newest - 1) % TimedMax] is var timed && timed.Etag > before)
            metrics.FollowerAcknowledged(node, Stopwatch.GetElapsedTime(timed.At));
        if (_hasTraced)
            EndTraced(etag, traced => traced.EndReplication(node));
    }

    /// <summary>On a leader: records after one etag up to another one are being sent to a follower. Writer executor.</summary>
    public void Sending(Append append, NodeId node, Etag after, Etag last)
    {
        if (!_hasTraced)
            return;
        lock (_gate)
        {
            foreach (var (etag, traced) in _traced)
            {
                if (etag > after && etag <= last && traced.BeginReplication(node) is { Id: { } id })
                    append.Traces.Add(new RecordTrace { Etag = etag.ToWire(), Traceparent = id });
            }
        }
    }

    /// <summary>On a follower: traced records arrived. Writer executor.</summary>
    public void Received(Append append)
    {
        foreach (var trace in append.Traces)
        {
            // Sent again; the first span continues.
            if (IsTraced(trace.Etag.FromWire()))
                continue;
            if (NodeTraces.StartRemote("append", ActivityKind.Consumer, trace.Traceparent) is { } span)
                Keep(trace.Etag.FromWire(), span);
        }
    }

    /// <summary>On a follower: everything up to an etag is in this replica's journal. Writer executor.</summary>
    public void Durable(Etag etag)
    {
        if (_hasTraced)
        {
            EndTraced(etag, static traced =>
            {
                // The record may have been durable before its trace came, because it was sent without one before, or was known already.
                traced.IsWritten = true;
                traced.EndSpan();
            });
        }
    }

    /// <summary>The replica no longer leads, or has ended. The outcome of the traced records is not known here.</summary>
    public void Ended()
    {
        // A later leadership must not time the records that this one appended.
        (_timedCount, _committedCount) = (0, 0);
        _acknowledged.Clear();
        lock (_gate)
            AbandonLocked();
    }

    private void Trace(RecordRef record, int operationCount, IReadOnlyList<object> traces)
    {
        // One span for all calls of the record: a child of the first call's span, linked to the others.
        var links = traces.Skip(1).Select(static trace => new ActivityLink(((Activity)trace).Context));
        if (NodeTraces.Start("transaction", ActivityKind.Internal, ((Activity)traces[0]).Context, links) is { } span)
            Keep(record.Etag, span.SetTag("kvcluster.operations", operationCount));
    }

    private void Keep(Etag etag, Activity span)
    {
        span.SetTag(RpcTags.Shard, shard.Value).SetTag(RpcTags.Etag, etag.ToString());
        lock (_gate)
        {
            if (_traced.Count >= TracedMax)
                AbandonLocked();
            if (_traced.TryAdd(etag, new TracedRecord(span)))
                _hasTraced = true;
            else
                Spans.Stop(span);
        }
    }

    private void EndTraced(Etag etag, Action<TracedRecord> end)
    {
        lock (_gate)
        {
            foreach (var (key, traced) in _traced)
            {
                if (key > etag)
                    continue;
                end(traced);
                RemoveEndedLocked(key, traced);
            }
            _hasTraced = _traced.Count > 0;
        }
    }

    // Also called while all traced records are enumerated.
    private void RemoveEndedLocked(Etag etag, TracedRecord traced)
    {
        Invariant.CheckHeld(_gate);
        if (traced.HasEnded)
            _traced.Remove(etag);
    }

    private bool IsTraced(Etag etag)
    {
        if (!_hasTraced)
            return false;
        lock (_gate)
            return _traced.ContainsKey(etag);
    }

    private void AbandonLocked()
    {
        Invariant.CheckHeld(_gate);
        foreach (var traced in _traced.Values)
            traced.Abandon();
        _traced.Clear();
        _hasTraced = false;
    }
}
