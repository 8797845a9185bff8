using Grpc.Core;
using KvCluster.Node.Hosting;
using KvCluster.V1;

namespace KvCluster.Node.Api;

/// <summary>The service Admin of a node, for its own replicas.</summary>
internal sealed class AdminService(NodeIdentity identity, ShardHost shards) : Admin.AdminBase
{
    public override async Task<CheckpointResponse> Checkpoint(CheckpointRequest request, ServerCallContext context)
    {
        var checkpoints = await Task.WhenAll(shards.All.Select(CheckpointAsync)).ConfigureAwait(false);
        return new CheckpointResponse { Replicas = { checkpoints } };
    }

    private async Task<ReplicaCheckpoint> CheckpointAsync(HostedShard shard)
    {
        var answer = new ReplicaCheckpoint { Node = identity.Node, Shard = shard.Route.Shard };
        if (shard.Replica is null)
        {
            answer.Error = shard.Failure;
            return answer;
        }
        try
        {
            var (covered, dataBytes) = await shard.Replica.CheckpointAsync().ConfigureAwait(false);
            answer.Etag = new V1.Etag { Epoch = covered.Epoch, Change = covered.Change };
            answer.DataBytes = (ulong)dataBytes;
        }
        catch (Exception failure)
        {
            // One replica's failure is part of the answer; the others are done all the same.
            answer.Error = failure.Message;
        }
        return answer;
    }
}
