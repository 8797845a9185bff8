using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Coordination;
using KvCluster.Node.Hosting;
using KvCluster.Node.Placement;
using KvCluster.Node.Runtime;
using KvCluster.Node.Shards.Loop;

namespace KvCluster.Node.Api.Operators;

/// <summary>The Admin service of a node, for its own replicas.</summary>
internal sealed class AdminService(
    NodeIdentity identity, ShardHost shards, LeaderPlacement placement, OperatorShards found, ReplaceCalls replacements, ReplicaBalancing replicas,
    StopPermissions permissions, NodeDiagnostics examiner, ClusterLevels levels) : Admin.V1.Admin.AdminBase
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
        var shard = found.LedHere(Required(request.HasShard, request.Shard));
        var (leader, result) = await placement.TransferAsync(shard, Optional(request.HasToNode, request.ToNode)).ConfigureAwait(false);
        return result.Done
            ? new TransferResponse { LeaderId = leader }
            : throw ApiErrors.NotTransferred(shard.Shard, result.Reason).ToStatus().ToRpcException();
    }

    public override async Task<DrainResponse> Drain(DrainRequest request, ServerCallContext context)
    {
        if (request.NodeId != identity.Node)
            throw ApiErrors.WrongNode(request.NodeId, identity.Node).ToStatus().ToRpcException();
        if (!request.HasDraining)
            throw ApiErrors.BadRequest("The request does not say whether the node is to drain or may lead again; nothing was changed.")
                .ToStatus().ToRpcException();
        if (!request.Draining)
        {
            placement.EndDrain();
            return new DrainResponse();
        }
        if (!request.Force && !placement.Draining)
            await RequireMajoritiesAsync(context.CancellationToken).ConfigureAwait(false);
        var asked = context.Deadline == DateTime.MaxValue ? DrainTimeMax : context.Deadline - DateTime.UtcNow;
        // A part of the caller's time is reserved for the answer.
        var drained = await placement.DrainAsync((asked < DrainTimeMax ? asked : DrainTimeMax) * 0.8, DrainPatience, context.CancellationToken)
            .ConfigureAwait(false);
        return new DrainResponse
        {
            GivenAway = (uint)drained.GivenAway,
            Kept = { drained.Kept.OrderBy(kept => kept.Key).Select(kept => new KeptLeadership { ShardId = kept.Key, Reason = kept.Value }) },
        };
    }

    public override async Task<ReplaceResponse> Replace(ReplaceRequest request, ServerCallContext context)
    {
        if (request is { HasFromNode: false, HasToNode: false })
            throw ApiErrors.BadRequest("The request names neither the node of a replica to replace nor that of a new one; nothing was changed.")
                .ToStatus().ToRpcException();
        var asked = new ReplacementRequest(
            Required(request.HasShard, request.Shard), Optional(request.HasFromNode, request.FromNode),
            Optional(request.HasToNode, request.ToNode)) { Force = request.Force };
        var operation = await replacements.StartAsync(asked).ConfigureAwait(false);
        return new ReplaceResponse { Operation = operation.Describe().State };
    }

    public override async Task<GetOperationResponse> GetOperation(GetOperationRequest request, ServerCallContext context)
    {
        var operation = await replacements.FindAsync(request.Id).ConfigureAwait(false);
        var (state, _) = operation.Describe();
        replacements.RequireHere(operation);
        return new GetOperationResponse { Operation = state };
    }

    public override async Task WatchOperation(
        WatchOperationRequest request, IServerStreamWriter<WatchOperationResponse> responseStream, ServerCallContext context)
    {
        var operation = await replacements.FindAsync(request.Id).ConfigureAwait(false);
        while (true)
        {
            var (state, changed) = operation.Describe();
            replacements.RequireHere(operation);
            await responseStream.WriteAsync(new WatchOperationResponse { Operation = state }).ConfigureAwait(false);
            if (state.State != OperationState.Running)
                return;
            await changed.WaitAsync(context.CancellationToken).ConfigureAwait(false);
        }
    }

    public override async Task<CancelOperationResponse> CancelOperation(CancelOperationRequest request, ServerCallContext context)
    {
        var operation = await replacements.FindAsync(request.Id).ConfigureAwait(false);
        if (operation.IsRunning)
            operation.Cancel();
        await operation.Ended.WaitAsync(context.CancellationToken).ConfigureAwait(false);
        replacements.RequireHere(operation);
        return new CancelOperationResponse { Operation = operation.Describe().State };
    }

    public override Task<ListOperationsResponse> ListOperations(ListOperationsRequest request, ServerCallContext context) =>
        Task.FromResult(new ListOperationsResponse { Operations = { replacements.List() } });

    public override async Task<QuarantineResponse> Quarantine(QuarantineRequest request, ServerCallContext context)
    {
        if (request.NodeId != identity.Node)
            throw ApiErrors.WrongNode(request.NodeId, identity.Node).ToStatus().ToRpcException();
        if (request.Reason.Length > ReasonCharsMax)
            throw ApiErrors.BadRequest($"A reason has at most {ReasonCharsMax} characters; nothing was changed.").ToStatus().ToRpcException();
        if (!OneLine.Is(request.Reason))
            throw ApiErrors.BadRequest("A reason must not contain a control character (a line break or an escape, for example); nothing was changed. "
                + "Give it as one line of text.").ToStatus().ToRpcException();
        var id = Required(request.HasShard, request.Shard);
        if (shards.Find(id) is null)
            throw ApiErrors.NoReplica(id, identity.Node).ToStatus().ToRpcException();
        var shard = found.Here(id);
        QuarantineLeave? leave = null;
        if (!request.Force)
        {
            // Counted from before the leader answered.
            var usableUntil = BootClock.Instance.GetTimestamp() + (long)(StopPermissions.UseTimeMax.TotalSeconds * BootClock.Instance.TimestampFrequency);
            var verdict = (await permissions.AskAsync([id], StopPermissions.GoneTime, context.CancellationToken).ConfigureAwait(false)).Single();
            if (verdict.Refusal is { } reason)
                throw ApiErrors.NotQuarantined(id, identity.Node, reason).ToStatus().ToRpcException();
            leave = new QuarantineLeave(verdict.Epoch, usableUntil);
        }
        var result = await shard.Replica!.Quarantine.EnterAsync(request.Reason, leave).ConfigureAwait(false);
        if (result.Done)
            return new QuarantineResponse();
        var stopped = shard.Replica.Failure is { } failure ? ApiErrors.ReplicaFailed(shard.Route, failure.Message)
            : ApiErrors.NotQuarantined(id, identity.Node, result.Reason);
        throw stopped.ToStatus().ToRpcException();
    }

    public override async Task<ExamineResponse> Examine(ExamineRequest request, ServerCallContext context) =>
        new() { Nodes = { await examiner.ExamineAsync(context.CancellationToken).ConfigureAwait(false) } };

    public override Task<PlaceResponse> Place(PlaceRequest request, ServerCallContext context) =>
        AnswerAsync(replicas.PlaceAsync(request, context.CancellationToken), ApiErrors.NotPlaced);

    public override Task<LevelsResponse> Levels(LevelsRequest request, ServerCallContext context) =>
        AnswerAsync(levels.AskAsync(request, context.CancellationToken), ApiErrors.NotRaised);

    // The answer to a change of the coordinator's records, or the error that says whether anything was changed.
    private static async Task<T> AnswerAsync<T>(Task<(T? Answer, string Refusal)> asking, Func<string, ApiError> notDone)
        where T : class
    {
        try
        {
            var (answer, refusal) = await asking.ConfigureAwait(false);
            return answer ?? throw notDone(refusal).ToStatus().ToRpcException();
        }
        catch (ChangeUnknownException failure)
        {
            throw ApiErrors.CoordinatorFailed(failure.Message).ToStatus().ToRpcException();
        }
        catch (Exception failure) when (failure is CoordinatorUnavailableException or CoordinatorAlarmException or CoordinatorRecordException)
        {
            throw notDone(failure.Message.TrimEnd('.')).ToStatus().ToRpcException();
        }
    }

    // Replicas that have failed here already count toward no majority.
    private async Task RequireMajoritiesAsync(CancellationToken cancellationToken)
    {
        var asked = shards.All.Where(static shard => shard.Replica is { Failure: null }).Select(static shard => shard.Shard).ToList();
        var refused = (await permissions.AskAsync(asked, StopPermissions.DrainTime, cancellationToken).ConfigureAwait(false))
            .Where(static verdict => verdict.Refusal is not null).OrderBy(static verdict => verdict.Shard).ToList();
        if (refused.Count > 0)
            throw ApiErrors.NotDrained(identity.Node, refused.Count, refused[0].Shard, refused[0].Refusal!).ToStatus().ToRpcException();
    }

    // Ids of shards and nodes are numbers, and an absent number would be read as the id 0.
    private static ShardId Required(bool isPresent, uint shard) =>
        isPresent ? new(shard) : throw ApiErrors.BadRequest("The request names no shard; nothing was changed.").ToStatus().ToRpcException();

    // Reads an optional node id; NodeId.None if the field is absent.
    private static NodeId Optional(bool isPresent, uint node) =>
        !isPresent || node != 0 ? new(node) : throw ApiErrors.NoNode(NodeId.None).ToStatus().ToRpcException();

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
