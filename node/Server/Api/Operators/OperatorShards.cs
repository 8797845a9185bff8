using Grpc.Core;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Hosting;
using KvCluster.Node.Runtime;

namespace KvCluster.Node.Api.Operators;

/// <summary>Finds the replica here that an operator's or another node's call is about. Any thread.</summary>
internal sealed class OperatorShards(NodeIdentity identity, ShardHost shards)
{
    /// <summary>The replica of a shard on this node.</summary>
    /// <exception cref="RpcException">There is none that works.</exception>
    public HostedShard Here(ShardId id)
    {
        if (shards.Find(id) is not { } shard)
            throw (shards.IsUnknown(id) ? ApiErrors.NoShard(id) : ApiErrors.WrongShard(id, identity.Node, shards.RouteOf(id))).ToStatus().ToRpcException();
        return shard.Replica is null ? throw ApiErrors.ReplicaFailed(shard.Route, shard.Failure).ToStatus().ToRpcException() : shard;
    }

    /// <summary>The same if it leads the shard.</summary>
    /// <exception cref="RpcException">It does not.</exception>
    public HostedShard LedHere(ShardId id)
    {
        var shard = Here(id);
        return shard.Replica!.IsServing ? shard : throw ApiErrors.NotLeader(shard.Route, identity.Node).ToStatus().ToRpcException();
    }
}
