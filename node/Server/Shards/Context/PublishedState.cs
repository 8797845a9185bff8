using KvCluster.Internal.V1;
using KvCluster.V1;

namespace KvCluster.Node.Shards.Context;

/// <summary>
/// What other threads see of the core's decisions: the shard's route, and whether this replica takes writes. Set on the shard's writer executor as the core's
/// effects are performed, read on any thread.
/// </summary>
/// <param name="routeChanged">Called on the writer executor with each newer route. Must not block.</param>
internal sealed class PublishedState(Action<ShardRoute> routeChanged)
{
    private volatile bool _isServing;
    private volatile ShardRoute _route = new();

    /// <summary>Whether this replica leads and takes writes. May be out of date when it returns.</summary>
    public bool IsServing => _isServing;

    /// <summary>The newest route known. Not modified afterwards.</summary>
    public ShardRoute Route => _route;

    public void Serve(bool on) => _isServing = on;

    /// <summary>The core has adopted a record. The leader stays known unless the record is of a later epoch.</summary>
    public void Adopt(ShardRecord record)
    {
        var known = _route;
        var keepsLeader = known.Epoch >= record.Epoch && !known.LeaderId.IsNone;
        var route = new ShardRoute
        {
            ShardId = record.ShardId,
            Start = record.Start,
            End = record.End,
            Generation = record.Generation,
            Epoch = keepsLeader ? known.Epoch : record.Epoch,
            LeaderId = keepsLeader ? known.LeaderId : NodeId.None,
        };
        route.Nodes.AddRange(record.Replicas.Where(replica => !replica.Learner).Select(replica => replica.Node));
        Publish(route);
    }

    /// <summary>The core knows who leads an epoch; node 0: nobody.</summary>
    public void Lead(ulong epoch, NodeId node)
    {
        var route = _route.Clone();
        (route.Epoch, route.LeaderId) = (epoch, node);
        Publish(route);
    }

    private void Publish(ShardRoute route)
    {
        if (route.Equals(_route))
            return;
        _route = route;
        routeChanged(route);
    }
}
