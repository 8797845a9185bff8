using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.Client.Transport;

namespace KvCluster.Router.Api;

/// <summary>The service Admin of a router: passes a call to the node that can execute it, or to every node. A singleton.</summary>
internal sealed class AdminProxy(NodeFanOut nodes, RouterOptions options) : Admin.V1.Admin.AdminBase
{
    /// <summary>For a caller without a deadline, who may watch again.</summary>
    private static readonly TimeSpan WatchTimeMax = TimeSpan.FromDays(1);

    public override Task<CheckpointResponse> Checkpoint(CheckpointRequest request, ServerCallContext context) =>
        nodes.CheckpointAsync(request, Deadlines.OfAll(context, options.Timeout), context.CancellationToken);

    public override Task<TransferResponse> Transfer(TransferRequest request, ServerCallContext context) =>
        nodes.TransferAsync(request, Deadlines.Of(context, options.Timeout), context.CancellationToken);

    public override Task<DrainResponse> Drain(DrainRequest request, ServerCallContext context) =>
        nodes.DrainAsync(request, Deadlines.Of(context, options.Timeout), context.CancellationToken);

    public override Task<ReplaceResponse> Replace(ReplaceRequest request, ServerCallContext context) =>
        nodes.ReplaceAsync(request, Deadlines.Of(context, options.Timeout), context.CancellationToken);

    public override Task<GetOperationResponse> GetOperation(GetOperationRequest request, ServerCallContext context) =>
        nodes.GetOperationAsync(request, Deadlines.Of(context, options.Timeout), context.CancellationToken);

    public override Task<CancelOperationResponse> CancelOperation(CancelOperationRequest request, ServerCallContext context) =>
        nodes.CancelOperationAsync(request, Deadlines.Of(context, options.Timeout), context.CancellationToken);

    public override Task<ListOperationsResponse> ListOperations(ListOperationsRequest request, ServerCallContext context) =>
        nodes.ListOperationsAsync(request, Deadlines.OfAll(context, options.Timeout), context.CancellationToken);

    public override async Task WatchOperation(WatchOperationRequest request, IServerStreamWriter<WatchOperationResponse> responseStream, ServerCallContext context)
    {
        await foreach (var state in nodes.WatchOperationAsync(request, Deadlines.Of(context, WatchTimeMax), context.CancellationToken).ConfigureAwait(false))
            await responseStream.WriteAsync(state).ConfigureAwait(false);
    }

    public override Task<QuarantineResponse> Quarantine(QuarantineRequest request, ServerCallContext context) =>
        nodes.QuarantineAsync(request, Deadlines.Of(context, options.Timeout), context.CancellationToken);

    public override Task<ExamineResponse> Examine(ExamineRequest request, ServerCallContext context) =>
        nodes.ExamineAsync(request, Deadlines.OfAll(context, options.Timeout), context.CancellationToken);

    public override Task<PlaceResponse> Place(PlaceRequest request, ServerCallContext context) =>
        nodes.PlaceAsync(request, Deadlines.Of(context, options.Timeout), context.CancellationToken);

    public override Task<LevelsResponse> Levels(LevelsRequest request, ServerCallContext context) =>
        nodes.LevelsAsync(request, Deadlines.Of(context, options.Timeout), context.CancellationToken);
}
