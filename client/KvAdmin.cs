using System.Runtime.CompilerServices;
using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.Client.Transport;
using KvCluster.V1;
using AdminClient = KvCluster.Admin.V1.Admin.AdminClient;

namespace KvCluster.Client;

/// <summary>
/// The calls for operators: the state of the cluster, transfers of leaderships, and moves of replicas. Taken from <see cref="KvClient.Admin"/>, and usable
/// until that client is disposed. Thread-safe.
/// </summary>
/// <remarks>
/// Each call has <see cref="KvClientOptions.Timeout"/>. Errors are <see cref="KvException"/> and its subclasses: <see cref="KvUnavailableException"/> if
/// nothing was applied because no node could be reached, <see cref="KvOutcomeUnknownException"/> if the answer to a change was lost. All changes may be
/// repeated. <see cref="OperationCanceledException"/> means that the caller stopped waiting; a change may still be applied.
/// </remarks>
public sealed class KvAdmin
{
    private readonly Cluster.ClusterClient _cluster;
    private readonly AdminClient _calls;
    private readonly TimeSpan _timeout;

    internal KvAdmin(CallInvoker calls, TimeSpan timeout) => (_cluster, _calls, _timeout) = (new Cluster.ClusterClient(calls), new AdminClient(calls), timeout);

    /// <summary>Returns the status of every node. A node that does not answer is listed with its error.</summary>
    /// <param name="digest">Also compute a digest of every replica, which reads its whole tree.</param>
    /// <param name="shard">Return only this shard's replicas, each with its detail; null returns all replicas without detail.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvException">The cluster cannot be asked. A node that does not answer is in the status.</exception>
    public async Task<ClusterStatus> GetStatusAsync(bool digest = false, uint? shard = null, CancellationToken cancellationToken = default)
    {
        var request = new GetStatusRequest { Digest = digest };
        if (shard is { } id)
            request.Shard = id;
        return StatusReading.ToStatus(await GetStatusAsync(request, _timeout, cancellationToken).ConfigureAwait(false));
    }

    /// <summary>Returns the status as its message.</summary>
    /// <param name="request">What to return.</param>
    /// <param name="timeout">A node that has not answered by then is listed with its error.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    internal Task<GetStatusResponse> GetStatusAsync(GetStatusRequest request, TimeSpan timeout, CancellationToken cancellationToken) =>
        CallAsync(_cluster.GetStatusAsync, request, timeout, cancellationToken);

    /// <summary>Makes every replica of every node write a checkpoint.</summary>
    /// <exception cref="KvException">The cluster cannot be asked. A node that does not answer has its error in the list.</exception>
    public async Task<IReadOnlyList<ReplicaCheckpoint>> CheckpointAsync(CancellationToken cancellationToken = default)
    {
        var answer = await CallAsync(_calls.CheckpointAsync, new CheckpointRequest(), _timeout, cancellationToken).ConfigureAwait(false);
        return [.. answer.Replicas.Select(StatusReading.ToCheckpoint)];
    }

    /// <summary>Makes every node examine its machine, its disk and the coordinator. Each writes and syncs a small file a few times.</summary>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>By node id. A node that does not answer is listed with its error.</returns>
    /// <exception cref="KvException">The cluster cannot be asked. A node that does not answer has its error in the list.</exception>
    public async Task<IReadOnlyList<NodeExamination>> ExamineAsync(CancellationToken cancellationToken = default)
    {
        var answer = await CallAsync(_calls.ExamineAsync, new ExamineRequest(), _timeout, cancellationToken).ConfigureAwait(false);
        return [.. answer.Nodes.Select(StatusReading.ToExamination)];
    }

    /// <summary>Transfers a shard's leadership to another of its voters.</summary>
    /// <param name="shard">The shard's id.</param>
    /// <param name="toNode">The node that is to lead; null means the one that has most of the journal.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>The node that was asked to lead.</returns>
    /// <exception cref="KvException">Reason NOT_TRANSFERRED: the message says why.</exception>
    public async Task<uint> TransferAsync(uint shard, uint? toNode = null, CancellationToken cancellationToken = default)
    {
        var request = new TransferRequest { Shard = shard };
        if (toNode is { } to)
            request.ToNode = to;
        return (await CallAsync(_calls.TransferAsync, request, _timeout, cancellationToken).ConfigureAwait(false)).Leader;
    }

    /// <summary>Makes a node transfer every leadership and take none until it is told otherwise or restarted.</summary>
    /// <param name="node">The node's id.</param>
    /// <param name="draining">false if the node may lead again.</param>
    /// <param name="force">Drain even if a shard would then have no majority.</param>
    /// <param name="cancellationToken">Stops waiting; the node continues to drain.</param>
    /// <exception cref="KvException">Reason NOT_DRAINED: a shard would have no majority without the node; nothing was changed.</exception>
    public async Task<DrainOutcome> DrainAsync(uint node, bool draining = true, bool force = false, CancellationToken cancellationToken = default)
    {
        var request = new DrainRequest { Node = node, Draining = draining, Force = force };
        var answer = await CallAsync(_calls.DrainAsync, request, _timeout, cancellationToken).ConfigureAwait(false);
        return new DrainOutcome((int)answer.GivenAway, answer.Kept.ToDictionary(kept => kept.Shard, kept => kept.Reason));
    }

    /// <summary>Replaces a replica of a shard with a new one under a new id. Completes when the new one has caught up and votes.</summary>
    /// <param name="shard">The shard's id.</param>
    /// <param name="fromNode">The node whose replica is removed for good.</param>
    /// <param name="toNode">The node that gets the new one. If it is the same node, the replica is rebuilt there. Null only removes the replica, which must be
    /// a learner.</param>
    /// <param name="force">Replace even if the remaining replicas are not known to follow closely. Writes of the shard pause while the change is tried.</param>
    /// <param name="cancellationToken">Stops waiting; the operation goes on, and calling again waits for it.</param>
    /// <exception cref="KvException">Reason NOT_REPLACED: the message says why.</exception>
    /// <exception cref="KvOutcomeUnknownException">It has not ended within the timeout, and goes on.</exception>
    public Task ReplaceAsync(uint shard, uint fromNode, uint? toNode, bool force = false, CancellationToken cancellationToken = default) =>
        ReplaceAsync(shard, fromNode, toNode, force, static _ => { }, cancellationToken);

    /// <inheritdoc cref="ReplaceAsync(uint, uint, uint?, bool, CancellationToken)"/>
    /// <param name="told">Told of the operation when it has been started, and whenever it changes.</param>
    /// <returns>The operation, which is done.</returns>
    internal async Task<KvAdminOperation> ReplaceAsync(
        uint shard, uint fromNode, uint? toNode, bool force, Action<KvAdminOperation> told, CancellationToken cancellationToken)
    {
        while (true)
        {
            var operation = await StartReplaceAsync(shard, fromNode, toNode, force, cancellationToken).ConfigureAwait(false);
            told(operation);
            try
            {
                await foreach (var state in WatchOperationAsync(operation.Id, cancellationToken).ConfigureAwait(false))
                    told(operation = state);
                if (operation.State == KvOperationState.Done)
                    return operation;
                throw new KvException(KvReasons.NotReplaced, $"The replacement in shard {shard} was not completed: "
                    + $"{(operation.State == KvOperationState.Cancelled ? "an operator cancelled it" : operation.Reason)}.");
            }
            catch (KvException failure) when (failure.Reason == KvReasons.NoOperation)
            {
                // The leader that executed the operation stopped before it had changed anything.
            }
            catch (KvUnavailableException failure)
            {
                throw new KvOutcomeUnknownException($"Operation {operation.Id} has not ended in time, and goes on: {failure.Message}", failure);
            }
        }
    }

    /// <summary>
    /// Starts the replacement of a replica, or finds the operation that runs for the same. The parameters are those of
    /// <see cref="ReplaceAsync(uint, uint, uint?, bool, CancellationToken)"/>.
    /// </summary>
    /// <exception cref="KvException">Reason NOT_REPLACED: it cannot begin, and nothing was changed; the message says why.</exception>
    public async Task<KvAdminOperation> StartReplaceAsync(
        uint shard, uint fromNode, uint? toNode, bool force = false, CancellationToken cancellationToken = default)
    {
        var request = new ReplaceRequest { Shard = shard, FromNode = fromNode, Force = force };
        if (toNode is { } to)
            request.ToNode = to;
        return StatusReading.ToOperation((await CallAsync(_calls.ReplaceAsync, request, _timeout, cancellationToken).ConfigureAwait(false)).Operation);
    }

    /// <summary>Returns the state of an operation.</summary>
    /// <exception cref="KvException">Reason NO_OPERATION: it is not known, or no longer.</exception>
    public async Task<KvAdminOperation> GetOperationAsync(string id, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(id);
        return StatusReading.ToOperation(
            (await CallAsync(_calls.GetOperationAsync, new GetOperationRequest { Id = id }, _timeout, cancellationToken).ConfigureAwait(false)).Operation);
    }

    /// <summary>Cancels an operation and completes when it has ended. If it ended before, its state says how.</summary>
    /// <exception cref="KvException">Reason NO_OPERATION: it is not known, or no longer.</exception>
    public async Task<KvAdminOperation> CancelOperationAsync(string id, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(id);
        return StatusReading.ToOperation((await CallAsync(
            _calls.CancelOperationAsync, new CancelOperationRequest { Id = id }, _timeout, cancellationToken).ConfigureAwait(false)).Operation);
    }

    /// <summary>Lists the operations that run, and those that ended some time ago.</summary>
    /// <exception cref="KvException">The cluster cannot be asked. A node that does not answer is named in the answer.</exception>
    public async Task<KvAdminOperations> ListOperationsAsync(CancellationToken cancellationToken = default)
    {
        var answer = await CallAsync(_calls.ListOperationsAsync, new ListOperationsRequest(), _timeout, cancellationToken).ConfigureAwait(false);
        return new KvAdminOperations(
            [.. answer.Operations.Select(StatusReading.ToOperation)], answer.Silent.ToDictionary(static node => node.Node, static node => node.Error));
    }

    /// <summary>Returns the state of an operation at once, whenever it changes, and when it has ended, also if another node goes on with it.</summary>
    /// <param name="id">The operation's id.</param>
    /// <param name="cancellationToken">Stops watching; the operation goes on.</param>
    /// <exception cref="KvException">Reason NO_OPERATION: it is not known, or no longer.</exception>
    /// <exception cref="KvUnavailableException">It has not ended within the timeout.</exception>
    public IAsyncEnumerable<KvAdminOperation> WatchOperationAsync(string id, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(id);
        return StatesAsync(id, cancellationToken);
    }

    private async IAsyncEnumerable<KvAdminOperation> StatesAsync(string id, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        using var call = _calls.WatchOperation(new WatchOperationRequest { Id = id }, OptionsOf(_timeout, cancellationToken));
        var states = call.ResponseStream.ReadAllAsync(cancellationToken).GetAsyncEnumerator(cancellationToken);
        await using (states.ConfigureAwait(false))
        {
            while (await KvErrors.MoveNextAsync(states, cancellationToken).ConfigureAwait(false))
                yield return StatusReading.ToOperation(states.Current.Operation);
        }
    }

    /// <summary>Takes a node's replica of a shard out of service at once. Its node then has a new one built from its peers.</summary>
    /// <param name="shard">The shard's id.</param>
    /// <param name="node">The node's id.</param>
    /// <param name="reason">For logs and status; at most 1,000 characters.</param>
    /// <param name="force">Also if no majority remains. The shard then serves nothing, and what only this replica had cannot be reached.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvException">Reason NOT_QUARANTINED: it is not known that a majority would remain; nothing was changed.</exception>
    public Task QuarantineAsync(uint shard, uint node, string reason, bool force = false, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(reason);
        var request = new QuarantineRequest { Shard = shard, Node = node, Reason = reason, Force = force };
        return CallAsync(_calls.QuarantineAsync, request, _timeout, cancellationToken);
    }

    /// <summary>
    /// Sets where replicas may be placed; one node of the cluster then moves them, one at a time. Without arguments it only returns the settings.
    /// </summary>
    /// <param name="paused">true: none is moved until it is false again.</param>
    /// <param name="leave">Nodes that are to lose all their replicas because they will be removed.</param>
    /// <param name="stay">Nodes that may have replicas again.</param>
    /// <param name="stayUpTo">Of all nodes, those with greater ids leave and the others stay.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvException">Reason NOT_PLACED: too few nodes would stay, or the coordinator does not answer; nothing was changed.</exception>
    /// <exception cref="KvOutcomeUnknownException">The coordinator failed during the change, or the answer was lost.</exception>
    public async Task<PlacementStatus> PlaceAsync(
        bool? paused = null, IReadOnlyList<uint>? leave = null, IReadOnlyList<uint>? stay = null, uint? stayUpTo = null,
        CancellationToken cancellationToken = default)
    {
        var request = new PlaceRequest { Leave = { leave ?? [] }, Stay = { stay ?? [] } };
        if (paused is { } pauses)
            request.Paused = pauses;
        if (stayUpTo is { } last)
            request.StayUpTo = last;
        var answer = await CallAsync(_calls.PlaceAsync, request, _timeout, cancellationToken).ConfigureAwait(false);
        return new PlacementStatus(answer.Paused, answer.Leaving.ToDictionary(node => node.Node, node => (int)node.Replicas));
    }

    /// <summary>Returns the levels in force in the cluster, and which of them each node's program supports and uses.</summary>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvException">Reason NOT_RAISED: the coordinator does not answer.</exception>
    public Task<LevelsStatus> GetLevelsAsync(CancellationToken cancellationToken = default) => LevelsAsync(raise: false, cancellationToken);

    /// <summary>
    /// Raises each level in force to the highest that the programs of all nodes support, for good: from then on no program without it can be a node of the
    /// cluster. Nothing is changed if no node supports more. Nodes use a raised level from their next start on.
    /// </summary>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>The levels then in force.</returns>
    /// <exception cref="KvException">Reason NOT_RAISED: not all nodes support more, or that is not known; the message names them, and nothing was
    /// changed.</exception>
    public Task<LevelsStatus> RaiseLevelsAsync(CancellationToken cancellationToken = default) => LevelsAsync(raise: true, cancellationToken);

    private async Task<LevelsStatus> LevelsAsync(bool raise, CancellationToken cancellationToken) =>
        StatusReading.ToLevels(await CallAsync(_calls.LevelsAsync, new LevelsRequest { Raise = raise }, _timeout, cancellationToken).ConfigureAwait(false));

    private static async Task<TResponse> CallAsync<TRequest, TResponse>(
        Func<TRequest, CallOptions, AsyncUnaryCall<TResponse>> call, TRequest request, TimeSpan timeout, CancellationToken cancellationToken)
    {
        try
        {
            return await call(request, OptionsOf(timeout, cancellationToken)).ConfigureAwait(false);
        }
        catch (RpcException failure)
        {
            throw KvErrors.ToException(failure, cancellationToken);
        }
    }

    private static CallOptions OptionsOf(TimeSpan timeout, CancellationToken cancellationToken) =>
        new(deadline: DateTime.UtcNow + timeout, cancellationToken: cancellationToken);
}
