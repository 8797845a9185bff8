using System.Diagnostics;
using KvCluster.Telemetry;

namespace KvCluster.Node.Telemetry;

/// <summary>A traced journal record: its own span and, at its leader, one for its way to each follower. Used under its owner's lock.</summary>
internal sealed class TracedRecord(Activity span)
{
    private readonly Dictionary<NodeId, Activity?> _replications = [];

    /// <summary>The record's span.</summary>
    public Activity Span => span;

    /// <summary>Whether it is in this replica's journal. A leader may be the last to write it, because the others can be a majority without it.</summary>
    public bool IsWritten { get; set; }

    /// <summary>Whether all its spans have ended.</summary>
    public bool HasEnded => IsWritten && span.IsStopped && _replications.Values.All(static replication => replication is null or { IsStopped: true });

    public void EndSpan()
    {
        if (!span.IsStopped)
            Spans.Stop(span);
    }

    /// <summary>The span of its way to a follower, the same when it is sent again; null if it has arrived or nobody listens to spans.</summary>
    public Activity? BeginReplication(NodeId node)
    {
        if (_replications.TryGetValue(node, out var known))
            return known is { IsStopped: false } ? known : null;
        var replication = NodeTraces.Start("replicate", ActivityKind.Producer, span.Context)?.SetTag(RpcTags.Peer, BoxedNode.Of(node));
        _replications.Add(node, replication);
        return replication;
    }

    public void EndReplication(NodeId node)
    {
        if (_replications.GetValueOrDefault(node) is { IsStopped: false } replication)
            Spans.Stop(replication);
    }

    public void Abandon()
    {
        foreach (var open in _replications.Values.Append(span))
        {
            if (open is { IsStopped: false })
                Spans.Stop(open.SetStatus(ActivityStatusCode.Error, "nothing more was heard of it"));
        }
    }
}
