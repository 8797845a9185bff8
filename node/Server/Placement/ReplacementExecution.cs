// Replaces replicas: as the shard's leader for any caller, and for this node's own lost replicas by asking the leader. An interrupted replacement is resumed
// by asking again, because the shard's record shows how far it got. Thread pool only.
using System.Collections.Concurrent;
using Grpc.Core;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Hosting;
using KvCluster.Node.Map;
using KvCluster.Node.Runtime;
using KvCluster.Node.Shards;
using KvCluster.Node.Shards.Loop;
using KvCluster.Node.Transport;
using KvCluster.Replication.Protocol;
using KvCluster.ServiceDefaults.Logs;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Placement;

/// <summary>
/// Builds new replicas in place of others, for an operator, for <see cref="ReplicaBalancing"/> and for damaged replicas of this node. Which replica moves is
/// decided in <see cref="MoveSelection.InOrder"/>. A node that is down keeps its replicas until an operator says that it leaves.
/// </summary>
internal sealed class ReplacementExecution : IAsyncDisposable
{
    /// <summary>Concurrent repairs of this node's replicas. Each copies a shard over the network.</summary>
    private const int RepairsMax = 4;

    private static readonly TimeSpan PollInterval = TimeSpan.FromMilliseconds(100);

    /// <summary>
    /// Number of consecutive polls, ten seconds in all, in which the node of a new replica may be disconnected, as during a restart. Then it is given up.
    /// </summary>
    private const int AwayPollsMax = 100;

    private static readonly TimeSpan RepairInterval = TimeSpan.FromSeconds(1);

    /// <summary>Time that a new replica has to receive the whole shard before the leader is asked again.</summary>
    private static readonly TimeSpan CatchUpTimeMax = TimeSpan.FromHours(1);

    private readonly NodeIdentity _identity;
    private readonly int _replicationFactor;
    private readonly TimeSpan _patience;
    private readonly ShardDirectory _map;
    private readonly ShardHost _shards;
    private readonly StopPermissions _permissions;
    private readonly PeerTransport _peers;
    private readonly TimeProvider _clock;
    private readonly ILogger _log;
    private readonly OncePerReason<ShardId> _failures = new();

    // One entry per shard: the lock held while its replicas change, and the last completed replacement, so that another call for the same finds it done.
    private readonly ConcurrentDictionary<ShardId, SemaphoreSlim> _turns = [];
    private readonly ConcurrentDictionary<ShardId, (NodeId From, NodeId To, ReplicaId Replica)> _replaced = [];
    private readonly BackgroundLoop _loop;

    /// <param name="identity">This node.</param>
    /// <param name="replicationFactor">Number of voters that each shard of the cluster should have.</param>
    /// <param name="patience">A learner that makes no progress for this long is removed.</param>
    /// <param name="map">The shards' leaders.</param>
    /// <param name="shards">The replicas of this node.</param>
    /// <param name="permissions">Checks whether a majority remains without a voter.</param>
    /// <param name="peers">Connections to leaders.</param>
    /// <param name="clock">For the patience.</param>
    /// <param name="log">Receives one line per step.</param>
    public ReplacementExecution(
        NodeIdentity identity, int replicationFactor, TimeSpan patience,
        ShardDirectory map, ShardHost shards, StopPermissions permissions, PeerTransport peers, TimeProvider clock, ILogger log)
    {
        _permissions = permissions;
        _patience = patience;
        _clock = clock;
        _replicationFactor = replicationFactor;
        _identity = identity;
        _map = map;
        _shards = shards;
        _peers = peers;
        _log = log;
        _loop = new BackgroundLoop("the repair of replicas", TakeTurnAsync, static () => CommonMoments.Until(RepairInterval), shards.Threads.Timers, log);
    }

    /// <summary>As the leader of a shard: adds a new replica on a node, waits until it has caught up, and makes it a voter in place of another.</summary>
    /// <param name="shard">A shard that this node leads.</param>
    /// <param name="request">What is asked for.</param>
    /// <param name="operation">The number of the operation, for the shard's record.</param>
    /// <param name="progress">Called while the new replica catches up, with its id and the leader's view.</param>
    /// <param name="cancellationToken">Stops waiting. What was done is in the shard's record.</param>
    public async Task<OrderResult> ReplaceAsync(
        HostedShard shard, ReplacementRequest request, ulong operation, Action<ReplicaId, LeaderView> progress, CancellationToken cancellationToken)
    {
        if (await RecordOfAsync(shard).ConfigureAwait(false) is not { } record)
            return NotDone("this replica stopped");
        if (Foresee(record, request) is { } known)
            return known;
        var (from, to) = (request.From, request.To);
        var plan = new ReplacementPlan(record, request, _replicationFactor);
        if (plan.Removal is { } removal)
        {
            var removed = await ChangeAsync(shard, from, removal, cancellationToken, request.Force, plan.RemovesLearner).ConfigureAwait(false);
            return removed.Done || await IsGoneAsync(shard, removal.Leaves).ConfigureAwait(false) ? new OrderResult(true, "") : removed;
        }

        var learner = plan.Learner;
        if (learner.IsNone)
        {
            List<ReplicaId> left = [];
            foreach (var orphan in plan.Orphans(IsAway))
            {
                if ((await RemoveLearnerAsync(shard, orphan.NodeId, orphan.ReplicaId, force: false, cancellationToken).ConfigureAwait(false)).Done)
                    left.Add(orphan.ReplicaId);
            }
            if (plan.WhyNoLearner(left) is { } reason)
                return NotDone(reason);
            learner = ClusterInit.NewReplicaId();
            var added = await ChangeAsync(shard, to, plan.Add(learner, operation), cancellationToken, request.Force).ConfigureAwait(false);
            if (!added.Done)
            {
                // Another call for the same replacement may have come first. Then its learner is used.
                var now = await RecordOfAsync(shard).ConfigureAwait(false);
                if (now is not null && IsReplaced(now, plan.Leaves, to))
                    return new OrderResult(true, "");
                learner = now is null || (!plan.Lost.IsNone && Has(now, plan.Lost)) ? ReplicaId.None : ReplacementPlan.LearnerOn(now, to);
                if (learner.IsNone)
                    return added;
            }
        }

        var caughtUp = await CatchesUpAsync(shard, learner, to, progress, cancellationToken).ConfigureAwait(false);
        // A learner that did not catch up is removed: it blocks every other move of the shard, and its node may never be able to host it.
        var ended = caughtUp
            ? await ChangeAsync(shard, to, plan.Last(learner), cancellationToken, request.Force).ConfigureAwait(false)
            : await RemoveLearnerAsync(shard, to, learner, force: false, cancellationToken).ConfigureAwait(false);
        if ((caughtUp && ended.Done) || (!ended.Done && await RecordOfAsync(shard).ConfigureAwait(false) is { } newest && IsReplaced(newest, plan.Leaves, to)))
        {
            _replaced[shard.Shard] = (from, to, learner);
            return new OrderResult(true, "");
        }
        return caughtUp ? ended
            : NotDone($"the new replica on node {to} is gone, or made no progress for {_patience.TotalSeconds:0} s{(ended.Done ? " and was removed" : "")}");
    }

    /// <summary>The result of a replacement if it is decided before anything is changed; null if it has to be tried.</summary>
    /// <param name="shard">A shard that this node leads.</param>
    /// <param name="request">What is asked for.</param>
    public async Task<OrderResult?> ForeseeAsync(HostedShard shard, ReplacementRequest request) =>
        await RecordOfAsync(shard).ConfigureAwait(false) is { } record ? Foresee(record, request) : NotDone("this replica stopped");

    /// <summary>Removes the learner that a cancelled operation has added, if it is still one.</summary>
    public async Task<OrderResult> RemoveLearnerOfAsync(HostedShard shard, ulong operation, CancellationToken cancellationToken)
    {
        var learner = (await RecordOfAsync(shard).ConfigureAwait(false))?.Replicas.FirstOrDefault(replica => replica.Learner && replica.Operation == operation);
        return learner is null ? new OrderResult(true, "")
            : await RemoveLearnerAsync(shard, learner.NodeId, learner.ReplicaId, force: false, cancellationToken).ConfigureAwait(false);
    }

    /// <summary>The replica that an operation has added, by the shard's record; null if there is none.</summary>
    public static async Task<ReplicaRecord?> AddedByAsync(HostedShard shard, ulong operation) =>
        (await RecordOfAsync(shard).ConfigureAwait(false))?.Replicas.FirstOrDefault(replica => replica.Operation == operation);

    /// <summary>
    /// Called before a leader transfers so that the next one replaces its replica. Predicts the result from what is known here, because a needless transfer
    /// costs the shard's writers a pause. Null if there is no known obstacle.
    /// </summary>
    /// <param name="shard">A shard that this node leads.</param>
    /// <param name="request">The request to replace the replica on this node.</param>
    public async Task<OrderResult?> ForeseeOwnAsync(HostedShard shard, ReplacementRequest request)
    {
        if (await RecordOfAsync(shard).ConfigureAwait(false) is not { } record)
            return NotDone("this replica stopped");
        if (Foresee(record, request) is { } known)
            return known;
        var own = record.Replicas.First(replica => replica.NodeId == request.From).ReplicaId;
        // A learner that is still to be created has caught up when it becomes a voter.
        ReplicaChange last = request.To == request.From
            ? new ReplicaChange.Remove(own)
            : new ReplicaChange.Swap(own, ReplacementPlan.LearnerOn(record, request.To) is { IsNone: false } learner ? learner : ClusterInit.NewReplicaId());
        if (await _permissions.TryBeginAsync(shard, last, request.Force).ConfigureAwait(false) is { } reason)
            return NotDone(reason);
        _permissions.End(shard.Shard, last);
        return null;
    }

    // The result of a replacement if the record and the nodes already decide it; null if it has to be tried.
    private OrderResult? Foresee(ShardRecord record, ReplacementRequest request) =>
        WhyNotTo(request.To) is { } reason
            ? NotDone(reason)
            : ReplacementPlan.Foresee(record, request, _replicationFactor, _replaced.TryGetValue(record.ShardId, out var last) ? last : null);

    private static bool Has(ShardRecord record, ReplicaId id) => record.Replicas.Any(replica => replica.ReplicaId == id);

    // Whether another replica votes on a node, and the one that should leave has left (0: none should).
    private static bool IsReplaced(ShardRecord record, ReplicaId leaves, NodeId to) =>
        (leaves.IsNone || !Has(record, leaves)) && record.Replicas.Any(replica => replica.NodeId == to && !replica.Learner && replica.ReplicaId != leaves);

    private async Task<bool> IsGoneAsync(HostedShard shard, ReplicaId id) => await RecordOfAsync(shard).ConfigureAwait(false) is { } record && !Has(record, id);

    /// <summary>Why no new replica can be created on a node now; null if one can. Any thread.</summary>
    /// <param name="node">0: none is to be created.</param>
    public string? WhyNotTo(NodeId node) =>
        node.IsNone ? null
        : !_map.Snapshot.Nodes.ContainsKey(node) ? $"there is no node {node}"
        : IsAway(node) ? $"node {node} is not connected to node {_identity.Node}, which leads the shard; nothing was changed"
        : null;

    /// <summary>Asks a shard's leader for a replacement, and waits until it ends.</summary>
    /// <param name="peers">Connections to nodes.</param>
    /// <param name="asking">This node.</param>
    /// <param name="leader">The node that leads the shard.</param>
    /// <param name="request">What is asked for.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="RpcException">It was not completed. What was done is in the shard's record.</exception>
    /// <exception cref="ArgumentException">The leader's address is not valid.</exception>
    /// <exception cref="UriFormatException">The leader's address is not valid.</exception>
    public static async Task AskAsync(PeerTransport peers, NodeId asking, NodeRecord leader, ReplacementRequest request, CancellationToken cancellationToken)
    {
        using var channel = peers.ChannelTo(leader.NodeId, leader.PeerAddress);
        await new Internal.V1.Placement.PlacementClient(channel.Calls())
            .ReplaceReplicaAsync(ToMessage(asking, request), deadline: DateTime.UtcNow + CatchUpTimeMax, cancellationToken: cancellationToken)
            .ConfigureAwait(false);
    }

    public ValueTask DisposeAsync() => _loop.DisposeAsync();

    private static ReplaceReplicaRequest ToMessage(NodeId asking, ReplacementRequest request)
    {
        var message = new ReplaceReplicaRequest { Node = asking.Value, Shard = request.Shard.Value };
        if (!request.From.IsNone)
            message.FromNode = request.From.Value;
        if (!request.To.IsNone)
            message.ToNode = request.To.Value;
        if (!request.Lost.IsNone)
            message.Lost = request.Lost.Value;
        return message;
    }

    private static OrderResult NotDone(string reason) => new(false, reason);

    // A learner that has become a voter, because another call has completed the replacement, stays.
    private Task<OrderResult> RemoveLearnerAsync(HostedShard shard, NodeId node, ReplicaId learner, bool force, CancellationToken cancellationToken) =>
        ChangeAsync(shard, node, new ReplicaChange.Remove(learner), cancellationToken, force, isLearner: true);

    // Changes of one shard run one after another, whoever asks, because a leader makes one change at a time and refuses others meanwhile. A majority is checked
    // first, because a change that has begun blocks the shard's writes until the remaining voters have everything.
    private async Task<OrderResult> ChangeAsync(
        HostedShard shard, NodeId node, ReplicaChange change, CancellationToken cancellationToken, bool force = false, bool isLearner = false)
    {
        var turn = _turns.GetOrAdd(shard.Shard, static _ => new SemaphoreSlim(1));
        await turn.WaitAsync(cancellationToken).ConfigureAwait(false);
        try
        {
            if (isLearner && (await RecordOfAsync(shard).ConfigureAwait(false))?.Replicas.FirstOrDefault(
                replica => replica.ReplicaId == change.Leaves) is { Learner: false })
                return NotDone($"replica {change.Leaves} is now a voter");
            if (await _permissions.TryBeginAsync(shard, change, force).ConfigureAwait(false) is { } reason)
                return NotDone(reason);
            try
            {
                PlacementLog.Replaces(_log, shard.Shard, node, change.ToString());
                return await shard.Replica!.Orders.ChangeReplicasAsync(change).ConfigureAwait(false);
            }
            finally
            {
                _permissions.End(shard.Shard, change);
            }
        }
        finally
        {
            turn.Release();
        }
    }

    private bool IsAway(NodeId node) => node != _identity.Node && _peers.SessionOf(node) == 0;

    // Waits until a learner has caught up. False if its node is gone, or it made no progress for too long.
    private async Task<bool> CatchesUpAsync(
        HostedShard shard, ReplicaId learner, NodeId node, Action<ReplicaId, LeaderView> progress, CancellationToken cancellationToken)
    {
        var catchUp = new ReplacementPlan.CatchUp(learner, _patience, Now());
        for (var away = 0; away < AwayPollsMax; away = IsAway(node) ? away + 1 : 0)
        {
            var view = await shard.LookAsync().ConfigureAwait(false);
            if (view is not null)
                progress(learner, view);
            if (!shard.Replica!.IsServing)
                return true;
            if (catchUp.Look(view, Now()) is { } end)
                return end;
            await Task.Delay(PollInterval, cancellationToken).ConfigureAwait(false);
        }
        return false;
    }

    private TimeSpan Now() => TimeSpan.FromSeconds((double)_clock.GetTimestamp() / _clock.TimestampFrequency);

    private static async Task<ShardRecord?> RecordOfAsync(HostedShard shard) =>
        (await shard.LookAsync().ConfigureAwait(false))?.Record;

    // Several run concurrently, so that one whose learner cannot catch up delays no other.
    private Task TakeTurnAsync(CancellationToken stop)
    {
        var requests = _shards.All.Select(OwnRequest).OfType<ReplacementRequest>().ToList();
        // Nearly always. The call below wakes threads before it knows.
        if (requests.Count == 0)
            return Task.CompletedTask;
        return Parallel.ForEachAsync(
            requests, new ParallelOptions { MaxDegreeOfParallelism = RepairsMax, CancellationToken = stop },
            async (request, stop) => await AskLeaderAsync(request, stop).ConfigureAwait(false));
    }

    private ReplacementRequest? OwnRequest(HostedShard shard) => _map.Snapshot.Records.TryGetValue(shard.Shard, out var entry)
        ? ReplacementPlan.Own(entry.Record, _identity.Node, shard.ReplicaId, shard.IsLost, _replicationFactor)
        : null;

    private async Task AskLeaderAsync(ReplacementRequest request, CancellationToken stop)
    {
        var shard = request.Shard;
        if (_map.Snapshot.LeaderOf(shard) is not { } leader || leader.NodeId == _identity.Node)
            return;
        try
        {
            await AskAsync(_peers, _identity.Node, leader, request, stop).ConfigureAwait(false);
            _failures.Forget(shard);
        }
        catch (Exception) when (stop.IsCancellationRequested)
        {
            // The node stops.
        }
        catch (Exception failure)
        {
            // Retried in the next turn, and logged when the reason changes.
            var reason = failure is RpcException { Status.Detail: var detail } ? detail : failure.Message;
            if (_failures.MaySay(shard, reason))
                PlacementLog.NotReplaced(_log, shard, reason);
        }
    }
}
