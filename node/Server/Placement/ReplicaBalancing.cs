// Moves replicas to nodes that joined and away from nodes that leave, and finds a node where a shard lacks a voter. Every node runs this loop; the one that
// holds the key `controller` acts. It asks the leader of one shard at a time for one replacement, which goes through a learner. It only proposes: a controller
// that lost its lease while it waits does no harm, and the next one continues from the shards' records. Thread pool only. Failures are retried or reported.
using Google.Rpc;
using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Map;
using KvCluster.Node.Runtime;
using KvCluster.Node.Transport;
using KvCluster.Replication.Protocol;
using KvCluster.ServiceDefaults.Logs;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Placement;

/// <summary>Keeps replicas where operators want them, and balanced over the nodes.</summary>
internal sealed class ReplicaBalancing : IAsyncDisposable
{
    /// <summary>Interval between turns while replicas are being moved, so that moves follow one another quickly.</summary>
    private static readonly TimeSpan MovingInterval = TimeSpan.FromSeconds(1);

    /// <summary>Interval otherwise. Asking the coordinator costs an idle node more than anything else, and a lease outlives three such turns.</summary>
    private static readonly TimeSpan RestingInterval = TimeSpan.FromSeconds(3);

    private static readonly TimeSpan LeaseTime = TimeSpan.FromSeconds(10);

    /// <summary>Pause after a failed move, to let the cause pass.</summary>
    private static readonly TimeSpan PauseAfterFailure = TimeSpan.FromSeconds(5);

    /// <summary>How long a failed move comes last, so that a shard without a leader, or a node with a full disk, delays no other move.</summary>
    private static readonly TimeSpan PassedOverTime = TimeSpan.FromMinutes(5);

    private readonly ICoordinator _coordinator;
    private readonly CoordinatorKeys _keys;
    private readonly NodeIdentity _identity;
    private readonly int _replicationFactor;
    private readonly TimeSpan _patience;
    private readonly ShardDirectory _map;
    private readonly PeerTransport _peers;
    private readonly TimeProvider _clock;
    private readonly ILogger _log;
    private readonly BackgroundLoop _loop;
    private readonly Dictionary<NodeId, long> _awaySince = [];
    private readonly Dictionary<NodeId, long> _removedSince = [];
    private readonly List<(ReplicaMove Move, long At)> _failed = [];
    private bool _hasMoves;
    private long _failedAt;
    private Task<bool> _moving = Task.FromResult(true);
    private long _lease;
    private readonly OncePerReason _failures = new();
    private (ShardId Shard, NodeId FromNode, NodeId ToNode) _told;

    /// <param name="coordinator">Provides the controller's key and the operators' settings.</param>
    /// <param name="keys">The cluster's keys.</param>
    /// <param name="identity">This node.</param>
    /// <param name="replicationFactor">Number of voters that each shard of the cluster should have.</param>
    /// <param name="patience">A learner whose node is away for this long is given up, and a node that left is removed.</param>
    /// <param name="map">The shards' records and leaders.</param>
    /// <param name="peers">The connected nodes, and connections to leaders.</param>
    /// <param name="clock">For pauses and the patience; its timers end the pauses.</param>
    /// <param name="log">Receives one line per move.</param>
    public ReplicaBalancing(
        ICoordinator coordinator, CoordinatorKeys keys, NodeIdentity identity, int replicationFactor, TimeSpan patience,
        ShardDirectory map, PeerTransport peers, TimeProvider clock, ILogger log)
    {
        _patience = patience;
        _coordinator = coordinator;
        _keys = keys;
        _identity = identity;
        _replicationFactor = replicationFactor;
        _map = map;
        _peers = peers;
        _clock = clock;
        _log = log;
        _loop = new BackgroundLoop(
            "the placement of replicas", TakeTurnAsync, () => CommonMoments.Until(_hasMoves ? MovingInterval : RestingInterval), clock, log);
    }

    /// <summary>Changes the placement record and returns the result. Any thread.</summary>
    /// <returns>If there is no answer, why nothing was changed.</returns>
    /// <exception cref="CoordinatorUnavailableException">The coordinator does not answer. Nothing was changed.</exception>
    /// <exception cref="ChangeUnknownException">The coordinator failed during the change.</exception>
    public async Task<(PlaceResponse? Answer, string Refusal)> PlaceAsync(PlaceRequest request, CancellationToken cancellationToken)
    {
        var known = await KnownNodesAsync(cancellationToken).ConfigureAwait(false);
        // Node 0 is unknown too.
        if (request.LeaveIds.Concat(request.StayIds).Where(node => !known.Contains(node)).Select(static node => (NodeId?)node).FirstOrDefault() is { } unknown)
            return (null, $"there is no node {unknown}");
        while (true)
        {
            var (record, revision) = await ReadAsync(cancellationToken).ConfigureAwait(false);
            var changed = Apply(request, record, known);
            var staying = known.Count(node => !changed.LeavingIds.Contains(node));
            if (changed.Leaving.Count > 0 && staying < _replicationFactor)
                return (null, $"only {staying} nodes would remain, but every shard has {_replicationFactor} replicas");
            if (changed.Equals(record))
                return (Describe(changed, known), "");
            var (isSet, unset) =
                await _coordinator.SetForOperatorAsync(_keys.Placement, revision, RecordText.Format(changed), cancellationToken).ConfigureAwait(false);
            if (unset is not null)
                return (null, unset);
            if (isSet)
                return (Describe(changed, known), "");
        }
    }

    public async ValueTask DisposeAsync()
    {
        await _loop.DisposeAsync().ConfigureAwait(false);
        await _moving.ConfigureAwait(false);
        if (await _coordinator.RevokeSoonAsync(_lease).ConfigureAwait(false) is { } reason)
            PlacementLog.NotMoved(_log, $"this node remains the placement controller until its lease expires ({reason})");
    }

    private static PlacementRecord Apply(PlaceRequest request, PlacementRecord record, IReadOnlySet<NodeId> known)
    {
        IEnumerable<NodeId> leaving = request.HasStayUpTo ? known.Where(node => node.Value > request.StayUpTo) : record.LeavingIds;
        return new PlacementRecord
        {
            Paused = request.HasPaused ? request.Paused : record.Paused,
            Leaving = { leaving.Union(request.LeaveIds).Except(request.StayIds).Order().Select(static node => node.Value) },
        };
    }

    // A node that left and is gone is not shown: its removal is complete.
    private PlaceResponse Describe(PlacementRecord record, IReadOnlySet<NodeId> known)
    {
        var replicas = _map.Snapshot.Records.Values.SelectMany(entry => entry.Record.Replicas).CountBy(replica => replica.NodeId).ToDictionary();
        return new PlaceResponse
        {
            Paused = record.Paused,
            Leaving =
            {
                record.LeavingIds.Where(known.Contains)
                    .Select(node => new LeavingNode { NodeId = node, Replicas = (uint)replicas.GetValueOrDefault(node) })
            }
        };
    }

    // Nodes that are registered or have a replica. A node that left and has none is not part of the cluster any more.
    private async Task<IReadOnlySet<NodeId>> KnownNodesAsync(CancellationToken cancellationToken)
    {
        var registered = await _coordinator.ListAsync(_keys.Nodes, cancellationToken).ConfigureAwait(false);
        var known = HoldersOf(_map.Snapshot);
        foreach (var entry in registered.Entries)
        {
            if (CoordinatorKeys.TryParseId(entry.Key, _keys.Nodes, out var node))
                known.Add(new(node));
        }
        return known;
    }

    private async Task<(PlacementRecord Record, long Revision)> ReadAsync(CancellationToken cancellationToken)
    {
        var read = await _coordinator.GetAsync(_keys.Placement, cancellationToken).ConfigureAwait(false);
        return (read.Value is null ? new PlacementRecord() : RecordText.Parse<PlacementRecord>(read.Value), read.ModRevision);
    }

    private async Task TakeTurnAsync(CancellationToken stop)
    {
        try
        {
            // The lease is kept alive while a replica moves.
            if (!await ControlsAsync(stop).ConfigureAwait(false) || !_moving.IsCompleted)
                return;
            if (!await _moving.ConfigureAwait(false))
            {
                _failedAt = _failedAt == 0 ? _clock.GetTimestamp() : _failedAt;
                if (_clock.GetElapsedTime(_failedAt) < PauseAfterFailure)
                    return;
            }
            _failedAt = 0;
            var move = await NextAsync(stop).ConfigureAwait(false);
            _hasMoves = move is not null;
            if (move is not null)
                _moving = MoveAsync(move, stop);
        }
        catch (Exception failure) when (failure is CoordinatorUnavailableException or CoordinatorAlarmException or CoordinatorRecordException)
        {
            // Retried in the next turn, and logged once per reason.
            Say(failure.Message);
        }
    }

    // Whether this process holds the key `controller`. Takes it if nobody does.
    private async Task<bool> ControlsAsync(CancellationToken stop)
    {
        if (_lease != 0 && await _coordinator.KeepAliveAsync(_lease, stop).ConfigureAwait(false))
            return true;
        _lease = 0;
        var read = await _coordinator.GetAsync(_keys.Controller, stop).ConfigureAwait(false);
        if (read.Value is not null)
            return false;
        var lease = await _coordinator.GrantLeaseAsync(LeaseTime, stop).ConfigureAwait(false);
        var record = RecordText.Format(new ControllerRecord { NodeId = _identity.Node, Incarnation = _identity.Incarnation });
        var set = await _coordinator.SetUntilSettledAsync(_keys.Controller, 0, record, lease, stop).ConfigureAwait(false);
        if (set.Outcome != SetOutcome.Won)
        {
            await _coordinator.RevokeAsync(lease, stop).ConfigureAwait(false);
            return false;
        }
        _lease = lease;
        PlacementLog.Controls(_log, _identity.Node);
        return true;
    }

    private async Task<ReplicaMove?> NextAsync(CancellationToken stop)
    {
        var (placement, revision) = await ReadAsync(stop).ConfigureAwait(false);
        var snapshot = _map.Snapshot;
        await ForgetRemovedAsync(placement, revision, snapshot, stop).ConfigureAwait(false);
        var connected = snapshot.Nodes.Keys.Where(node => node == _identity.Node || _peers.SessionOf(node) != 0).ToHashSet();
        var present = connected.Where(node => !snapshot.Nodes[node].Draining).ToHashSet();
        var moves = MoveSelection.InOrder(
            snapshot.Records.Values.Select(entry => entry.Record), present, GoneOf(snapshot, connected), placement.LeavingIds.ToHashSet(), _replicationFactor);
        if (placement.Paused)
            moves = moves.Where(move => MoveSelection.IsRepair(move, snapshot.Records[move.Shard].Record, _replicationFactor));
        _failed.RemoveAll(failed => _clock.GetElapsedTime(failed.At) >= PassedOverTime);
        return moves.FirstOrDefault(
            move => !_failed.Exists(failed => failed.Move.Shard == move.Shard || (!move.ToNode.IsNone && failed.Move.ToNode == move.ToNode)))
            ?? moves.FirstOrDefault();
    }

    // Nodes with replicas that were not connected for too long, as far as this process knows.
    private HashSet<NodeId> GoneOf(ShardDirectorySnapshot snapshot, HashSet<NodeId> connected) =>
        LongIn(_awaySince, HoldersOf(snapshot).Where(node => !connected.Contains(node)).ToHashSet());

    // A node that left and is gone for long is removed. If its id comes back, it is a new node and may have replicas; one that was only restarted may not.
    private async Task ForgetRemovedAsync(PlacementRecord record, long revision, ShardDirectorySnapshot snapshot, CancellationToken stop)
    {
        var holders = HoldersOf(snapshot);
        var removed = LongIn(_removedSince, record.LeavingIds.Where(node => !snapshot.Nodes.ContainsKey(node) && !holders.Contains(node)).ToHashSet());
        if (removed.Count == 0)
            return;
        // This process's map may be old, so the coordinator is asked for the nodes that it knows.
        removed.ExceptWith(await KnownNodesAsync(stop).ConfigureAwait(false));
        if (removed.Count == 0)
            return;
        var changed = new PlacementRecord { Paused = record.Paused, Leaving = { record.LeavingIds.Except(removed).Select(static node => node.Value) } };
        var set = await _coordinator.SetUntilSettledAsync(_keys.Placement, revision, RecordText.Format(changed), 0, stop).ConfigureAwait(false);
        if (set.Outcome != SetOutcome.Won)
            return;
        foreach (var node in removed)
            PlacementLog.Removed(_log, node);
    }

    private static HashSet<NodeId> HoldersOf(ShardDirectorySnapshot snapshot) =>
        snapshot.Records.Values.SelectMany(entry => entry.Record.Replicas).Select(replica => replica.NodeId).ToHashSet();

    // Returns those of the nodes that were passed in every turn for as long as the patience.
    private HashSet<NodeId> LongIn(Dictionary<NodeId, long> since, HashSet<NodeId> nodes)
    {
        foreach (var other in since.Keys.Except(nodes).ToList())
            since.Remove(other);
        foreach (var node in nodes)
            since.TryAdd(node, _clock.GetTimestamp());
        return [.. nodes.Where(node => _clock.GetElapsedTime(since[node]) >= _patience)];
    }

    // Moving the leader's own replica takes two turns: asked to remove itself it transfers, and the next leader removes it.
    private async Task<bool> MoveAsync(ReplicaMove move, CancellationToken stop)
    {
        if (_map.Snapshot.LeaderOf(move.Shard) is not { } leader)
            return Fails(move, $"shard {move.Shard} has no leader");
        if (_told != (move.Shard, move.FromNode, move.ToNode))
            Tell(move);
        _told = (move.Shard, move.FromNode, move.ToNode);
        try
        {
            await ReplacementExecution.AskAsync(_peers, _identity.Node, leader, new ReplacementRequest(move.Shard, move.FromNode, move.ToNode), stop)
                .ConfigureAwait(false);
            if (move is { FromNode.IsNone: false, ToNode.IsNone: false })
                PlacementLog.Moved(_log, move.Shard, move.FromNode, move.ToNode);
            _failures.Forget();
            _told = default;
            return true;
        }
        catch (RpcException failure) when (leader.NodeId == move.FromNode && failure.GetRpcStatus()?.GetDetail<ErrorInfo>()?.Reason == "NOT_LEADER")
        {
            return true;
        }
        catch (Exception) when (stop.IsCancellationRequested)
        {
            return false;
        }
        catch (Exception failure)
        {
            // Whatever the failure is, it is retried after a pause. What was done is in the shard's record.
            return Fails(move, failure is RpcException call ? call.Status.Detail : failure.Message);
        }
    }

    private void Tell(ReplicaMove move)
    {
        if (move.FromNode.IsNone)
            PlacementLog.Adds(_log, move.Shard, move.ToNode, move.Reason);
        else if (move.ToNode.IsNone)
            PlacementLog.Removes(_log, move.Shard, move.FromNode, move.Reason);
        else
            PlacementLog.Moves(_log, move.Shard, move.FromNode, move.ToNode, move.Reason);
    }

    private bool Fails(ReplicaMove move, string reason)
    {
        _failed.Add((move, _clock.GetTimestamp()));
        Say(reason);
        return false;
    }

    private void Say(string reason)
    {
        if (_failures.MaySay(reason))
            PlacementLog.NotMoved(_log, reason);
    }
}
