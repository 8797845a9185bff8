using KvCluster.Node.Api.Errors;
using KvCluster.Node.Hosting;
using KvCluster.Node.Telemetry;

namespace KvCluster.Node.Api.Calls;

/// <summary>Finds the replica that can serve a call, or the reason why there is none here. Any thread.</summary>
internal sealed class ShardLookup(NodeId node, ShardHost shards, HotPrefixes hot)
{
    /// <summary>This node's id.</summary>
    public NodeId Node => node;

    /// <summary>The route of a key, as far as this node knows it.</summary>
    public V1.ShardRoute? RouteOf(ReadOnlySpan<byte> key) => shards.RouteOf(key);

    /// <summary>The replica here that leads the shard of a key; without <paramref name="isForLeader"/> any working replica of it.</summary>
    public HostedShard? Find(ReadOnlySpan<byte> key, in CallTarget target, bool isForLeader, out ApiError refusal)
    {
        var found = shards.Find(key);
        hot.Saw(key);
        // If the call names a shard, that must be the one which holds the key here. Generations are not compared, because the caller may know a newer route
        // than this node.
        if (found is not null && (target.Generation == 0 || target.Shard == found.Shard))
            return CheckReplica(found, isForLeader, out refusal);
        refusal = ApiErrors.WrongShard(found?.Route ?? shards.RouteOf(key));
        return null;
    }

    /// <summary>The same for the shard in which a range begins; if reverse, for the one in which it ends.</summary>
    public HostedShard? FindForScan(bool reverse, ReadOnlySpan<byte> lower, ReadOnlySpan<byte> upper, bool isForLeader, out ApiError refusal)
    {
        if ((reverse ? shards.FindBefore(upper) : shards.Find(lower)) is { } found)
            return CheckReplica(found, isForLeader, out refusal);
        refusal = ApiErrors.WrongShard(reverse ? shards.RouteBefore(upper) : shards.RouteOf(lower));
        return null;
    }

    private HostedShard? CheckReplica(HostedShard found, bool isForLeader, out ApiError refusal)
    {
        refusal = null!;
        if (found.Replica is null)
            refusal = ApiErrors.ReplicaFailed(found.Route, found.Failure);
        else if (isForLeader && !found.Replica.IsServing)
            refusal = ApiErrors.NotLeader(found.Route, node);
        else if (!isForLeader && found.Replica.Failure is { } failure)
            refusal = ApiErrors.ReplicaFailed(found.Route, failure.Message);
        else
            return found;
        return null;
    }
}
