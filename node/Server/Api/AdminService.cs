using Grpc.Core;
using KvCluster.Node.Coordination;
using KvCluster.Node.Hosting;
using KvCluster.Node.Placement;
using KvCluster.Node.Runtime;
using KvCluster.Node.Shards;
using KvCluster.V1;

namespace KvCluster.Node.Api;

/// <summary>The Admin service of a node, for its own replicas.</summary>
internal sealed class AdminService(NodeIdentity identity, ShardHost shards, LeaderPlacement placement, ReplicaReplacement replacement, ReplicaPlacement replicas, StayingVoters voters, NodeDiagnostics examiner) : Admin.AdminBase
{
    private static readonly TimeSpan DrainTimeMax = TimeSpan.FromMinutes(1);

    /// <summary>Longer than an election, for which a shard may have to wait.</summary>
    private static readonly TimeSpan DrainPatience = TimeSpan.FromSeconds(5);

    /// <summary>Longest reason that an operator may give. It is kept in a file, in logs and in status.</summary>
    private const int ReasonCharsMax = 1_000;

    public override async Task<CheckpointResponse> Checkpoint(CheckpointRequest request, ServerCallContext context)
    {
        var checkpoints = await Task.WhenAll(shards.All.Select(CheckpointAsync)).ConfigureAwait(false);
        return new CheckpointResponse { Replicas = { checkpoints } };
    }

    public override async Task<TransferResponse> Transfer(TransferRequest request, ServerCallContext context)
    {
        var shard = LedHere(request.ShardId);
        var (leader, result) = await placement.TransferAsync(shard, request.ToNodeId).ConfigureAwait(false);
        return result.Done
            ? new TransferResponse { LeaderId = leader }
            : throw ApiErrors.NotTransferred(request.ShardId, result.Reason).ToStatus().ToRpcException();
    }

    public override async Task<DrainResponse> Drain(DrainRequest request, ServerCallContext context)
    {
        if (request.NodeId != identity.Node)
            throw ApiErrors.WrongNode(request.NodeId, identity.Node).ToStatus().ToRpcException();
        if (!request.Draining)
        {
            placement.EndDrain();
            return new DrainResponse();
        }
        if (!request.Force && !placement.Draining)
            await RequireMajoritiesAsync(context.CancellationToken).ConfigureAwait(false);
        var asked = context.Deadline == DateTime.MaxValue ? DrainTimeMax : context.Deadline - DateTime.UtcNow;
        // A part of the caller's time is reserved for the answer.
        var drained = await placement.DrainAsync((asked < DrainTimeMax ? asked : DrainTimeMax) * 0.8, DrainPatience, context.CancellationToken).ConfigureAwait(false);
        return new DrainResponse
        {
            GivenAway = (uint)drained.GivenAway,
            Kept = { drained.Kept.OrderBy(kept => kept.Key).Select(kept => new KeptLeadership { ShardId = kept.Key, Reason = kept.Value }) },
        };
    }

    public override async Task<ReplaceResponse> Replace(ReplaceRequest request, ServerCallContext context)
    {
        var shard = LedHere(request.ShardId);
        if (request.FromNodeId == identity.Node)
        {
            // The next leader does it. A leader does not remove itself, and it does not transfer for a replacement that the next leader would refuse.
            if (await replacement.ForeseeOwnAsync(shard, request).ConfigureAwait(false) is { } known)
                return known.Done ? new ReplaceResponse() : throw ApiErrors.NotReplaced(request.ShardId, known.Reason).ToStatus().ToRpcException();
            var (next, transferred) = await placement.TransferAsync(shard, NodeId.None).ConfigureAwait(false);
            throw (transferred.Done ? ApiErrors.NotLeader(new ShardRoute(shard.Route) { LeaderId = next }, identity.Node) : ApiErrors.NotReplaced(request.ShardId, transferred.Reason)).ToStatus().ToRpcException();
        }
        var result = await replacement.ReplaceAsync(shard, request, context.CancellationToken).ConfigureAwait(false);
        return result.Done ? new ReplaceResponse() : throw ApiErrors.NotReplaced(request.ShardId, result.Reason).ToStatus().ToRpcException();
    }

    public override async Task<QuarantineResponse> Quarantine(QuarantineRequest request, ServerCallContext context)
    {
        if (request.NodeId != identity.Node)
            throw ApiErrors.WrongNode(request.NodeId, identity.Node).ToStatus().ToRpcException();
        if (request.Reason.Length > ReasonCharsMax)
            throw ApiErrors.BadRequest($"A reason has at most {ReasonCharsMax} characters; nothing was changed.").ToStatus().ToRpcException();
        if (!OneLine.Is(request.Reason))
            throw ApiErrors.BadRequest("A reason must not contain a control character (a line break or an escape, for example); nothing was changed. Give it as one line of text.").ToStatus().ToRpcException();
        if (shards.Find(request.ShardId) is null)
            throw ApiErrors.NoReplica(request.ShardId, identity.Node).ToStatus().ToRpcException();
        var shard = Here(request.ShardId);
        QuarantineLeave? leave = null;
        if (!request.Force)
        {
            // Counted from before the leader answered.
            var usableUntil = BootClock.Instance.GetTimestamp() + (long)(StayingVoters.UseTimeMax.TotalSeconds * BootClock.Instance.TimestampFrequency);
            var verdict = (await voters.AskAsync([request.ShardId], StayingVoters.GoneTime, context.CancellationToken).ConfigureAwait(false)).Single();
            if (verdict.Refusal is { } reason)
                throw ApiErrors.NotQuarantined(request.ShardId, identity.Node, reason).ToStatus().ToRpcException();
            leave = new QuarantineLeave(verdict.Epoch, usableUntil);
        }
        var result = await shard.Replica!.Quarantine.EnterAsync(request.Reason, leave).ConfigureAwait(false);
        if (result.Done)
            return new QuarantineResponse();
        var stopped = shard.Replica.Failure is { } failure ? ApiErrors.ReplicaFailed(shard.Route, failure.Message) : ApiErrors.NotQuarantined(request.ShardId, identity.Node, result.Reason);
        throw stopped.ToStatus().ToRpcException();
    }

    public override async Task<MayStopResponse> MayStop(MayStopRequest request, ServerCallContext context)
    {
        if (request.Shards.Count > StayingVoters.ShardsMax)
            throw ApiErrors.BadRequest($"One call may name at most {StayingVoters.ShardsMax} shards.").ToStatus().ToRpcException();
        var asked = TimeSpan.FromMilliseconds(request.KeptMs);
        var keptTime = asked < StayingVoters.KeptTimeMax ? asked : StayingVoters.KeptTimeMax;
        var verdicts = await Task.WhenAll(request.ShardIds.Select(shard => voters.JudgeAsync(shard, request.NodeId, keptTime))).ConfigureAwait(false);
        return new MayStopResponse
        {
            Verdicts = { verdicts.Select(static verdict => new MayStopVerdict { ShardId = verdict.Shard, Epoch = verdict.Epoch, Refusal = verdict.Refusal ?? "" }) },
        };
    }

    public override async Task<ExamineResponse> Examine(ExamineRequest request, ServerCallContext context) =>
        new() { Nodes = { await examiner.ExamineAsync(context.CancellationToken).ConfigureAwait(false) } };

    public override async Task<PlaceResponse> Place(PlaceRequest request, ServerCallContext context)
    {
        try
        {
            var (answer, refusal) = await replicas.PlaceAsync(request, context.CancellationToken).ConfigureAwait(false);
            return answer ?? throw ApiErrors.NotPlaced(refusal).ToStatus().ToRpcException();
        }
        catch (Exception failure) when (failure is CoordinatorUnavailableException or CoordinatorAlarmException)
        {
            throw ApiErrors.PlacementUnknown(failure.Message).ToStatus().ToRpcException();
        }
    }

    // Replicas that have failed here already count toward no majority.
    private async Task RequireMajoritiesAsync(CancellationToken cancellationToken)
    {
        var asked = shards.All.Where(static shard => shard.Replica is { Failure: null }).Select(static shard => shard.Shard).ToList();
        var refused = (await voters.AskAsync(asked, StayingVoters.DrainTime, cancellationToken).ConfigureAwait(false)).Where(static verdict => verdict.Refusal is not null).OrderBy(static verdict => verdict.Shard).ToList();
        if (refused.Count > 0)
            throw ApiErrors.NotDrained(identity.Node, refused.Count, refused[0].Shard, refused[0].Refusal!).ToStatus().ToRpcException();
    }

    private HostedShard Here(ShardId id)
    {
        if (shards.Find(id) is not { } shard)
            throw (shards.IsUnknown(id) ? ApiErrors.NoShard(id) : ApiErrors.WrongShard(id, identity.Node, shards.RouteOf(id))).ToStatus().ToRpcException();
        return shard.Replica is null ? throw ApiErrors.ReplicaFailed(shard.Route, shard.Failure).ToStatus().ToRpcException() : shard;
    }

    private HostedShard LedHere(ShardId id)
    {
        var shard = Here(id);
        return shard.Replica!.IsServing ? shard : throw ApiErrors.NotLeader(shard.Route, identity.Node).ToStatus().ToRpcException();
    }

    private async Task<ReplicaCheckpoint> CheckpointAsync(HostedShard shard)
    {
        var answer = new ReplicaCheckpoint { NodeId = identity.Node, ShardId = shard.Route.ShardId };
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
            // One replica's failure is part of the answer. The others are still checkpointed.
            answer.Error = failure.Message;
        }
        return answer;
    }
}
