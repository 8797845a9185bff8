using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.V1;

namespace KvCluster.Client.Transport;

/// <summary>
/// The calls for operators: made to the nodes (<see cref="NodeFanOut"/>), or through a router, which makes them to the nodes (<see cref="RouterFanOut"/>).
/// Each gives up at a deadline of <see cref="Environment.TickCount64"/>, and fails with an <see cref="RpcException"/> whose status says what became of a
/// change. Thread-safe.
/// </summary>
internal interface IOperatorCalls
{
    /// <summary>Returns the status of every node. A node that does not answer is listed with its error.</summary>
    Task<GetStatusResponse> GetStatusAsync(GetStatusRequest request, long deadlineMs, CancellationToken cancellationToken);

    /// <summary>Makes every replica of every node write a checkpoint. A node that does not answer is listed with its error, without a shard.</summary>
    Task<CheckpointResponse> CheckpointAsync(CheckpointRequest request, long deadlineMs, CancellationToken cancellationToken);

    /// <summary>Makes every node examine its machine and the coordinator. A node that does not answer is listed with its error.</summary>
    Task<ExamineResponse> ExamineAsync(ExamineRequest request, long deadlineMs, CancellationToken cancellationToken);

    /// <summary>Asks the leader of a shard to transfer its leadership.</summary>
    Task<TransferResponse> TransferAsync(TransferRequest request, long deadlineMs, CancellationToken cancellationToken);

    /// <summary>Asks a node to transfer its leaderships, or to take some again.</summary>
    Task<DrainResponse> DrainAsync(DrainRequest request, long deadlineMs, CancellationToken cancellationToken);

    /// <summary>Asks the leader of a shard to start the replacement of a replica.</summary>
    Task<ReplaceResponse> ReplaceAsync(ReplaceRequest request, long deadlineMs, CancellationToken cancellationToken);

    /// <summary>Asks the leader of an operation's shard for its state.</summary>
    Task<GetOperationResponse> GetOperationAsync(GetOperationRequest request, long deadlineMs, CancellationToken cancellationToken);

    /// <summary>Asks the leader of an operation's shard to cancel it, and waits until it has ended.</summary>
    Task<CancelOperationResponse> CancelOperationAsync(CancelOperationRequest request, long deadlineMs, CancellationToken cancellationToken);

    /// <summary>Lists the operations of all nodes. Nodes that do not answer are named.</summary>
    Task<ListOperationsResponse> ListOperationsAsync(ListOperationsRequest request, long deadlineMs, CancellationToken cancellationToken);

    /// <summary>Follows an operation from leader to leader until it has ended.</summary>
    IAsyncEnumerable<WatchOperationResponse> WatchOperationAsync(WatchOperationRequest request, long deadlineMs, CancellationToken cancellationToken);

    /// <summary>Makes a node take its replica of a shard out of service.</summary>
    Task<QuarantineResponse> QuarantineAsync(QuarantineRequest request, long deadlineMs, CancellationToken cancellationToken);

    /// <summary>Sets where replicas may be placed.</summary>
    Task<PlaceResponse> PlaceAsync(PlaceRequest request, long deadlineMs, CancellationToken cancellationToken);

    /// <summary>Returns the levels in force, after raising them if asked to.</summary>
    Task<LevelsResponse> LevelsAsync(LevelsRequest request, long deadlineMs, CancellationToken cancellationToken);
}
