using Grpc.Core;
using KvCluster.Internal.V1;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Placement;
using KvCluster.Node.Transport;
using KvCluster.Replication.Log;

namespace KvCluster.Node.Api.Operators;

/// <summary>The Placement service: what other nodes ask about replicas. With TLS only nodes get an answer. Any thread.</summary>
internal sealed class PlacementService(PeerTransport peers, StopPermissions permissions, ReplaceCalls replacements, CopyWitness witness)
    : Internal.V1.Placement.PlacementBase
{
    public override async Task<MayStopResponse> MayStop(MayStopRequest request, ServerCallContext context)
    {
        peers.RequireNode(request.NodeId, PeerService.NamesOf(context));
        if (request.Shards.Count > StopPermissions.ShardsMax)
            throw ApiErrors.BadRequest($"One call may name at most {StopPermissions.ShardsMax} shards.").ToStatus().ToRpcException();
        var asked = TimeSpan.FromMilliseconds(request.KeptMs);
        var keptTime = asked < StopPermissions.KeptTimeMax ? asked : StopPermissions.KeptTimeMax;
        var verdicts = await Task.WhenAll(request.ShardIds.Select(shard => permissions.JudgeAsync(shard, request.NodeId, keptTime))).ConfigureAwait(false);
        return new MayStopResponse
        {
            Verdicts = { verdicts.Select(static verdict => new MayStopVerdict { ShardId = verdict.Shard, Epoch = verdict.Epoch, Refusal = verdict.Refusal
                ?? "", Stop = verdict.Refusal is null ? MayStopVerdict.Types.Stop.May : MayStopVerdict.Types.Stop.MustNot }) },
        };
    }

    public override async Task<ReplaceReplicaResponse> ReplaceReplica(ReplaceReplicaRequest request, ServerCallContext context)
    {
        peers.RequireNode(new(request.Node), PeerService.NamesOf(context));
        if (!request.HasShard)
            throw ApiErrors.BadRequest("The request names no shard; nothing was changed.").ToStatus().ToRpcException();
        await replacements.ReplaceAsync(
            new ReplacementRequest(new(request.Shard), new(request.FromNode), new(request.ToNode)) { Lost = new(request.Lost) },
            context.CancellationToken).ConfigureAwait(false);
        return new ReplaceReplicaResponse();
    }

    public override async Task<HoldsCopyResponse> HoldsCopy(HoldsCopyRequest request, ServerCallContext context)
    {
        peers.RequireNode(new(request.Node), PeerService.NamesOf(context));
        if (!request.HasShard || request.Newest is null)
            throw ApiErrors.BadRequest("The request does not name the shard and the newest record of the copy.").ToStatus().ToRpcException();
        var said = await witness.TestifyAsync(new(request.Shard), new(request.Replica), request.Newest.FromWire(), context.CancellationToken)
            .ConfigureAwait(false);
        return new HoldsCopyResponse
        {
            Holds = said is { Alarm: null, Refusal: null } ? HoldsCopyResponse.Types.Holds.All : HoldsCopyResponse.Types.Holds.Not,
            Refusal = said.Refusal ?? "",
            Alarm = said.Alarm ?? "",
            Epoch = said.Epoch,
            Committed = said.Committed.ToWire(),
            Compared = said.Compared.ToWire(),
        };
    }
}
