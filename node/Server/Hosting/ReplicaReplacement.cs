// Replaces replicas: as the shard's leader for whoever asks, and for this node's own lost ones by asking the leader. A change under way that is
// interrupted is taken up where it stands by asking again: the shard's record says how far it got. Thread pool only.
using System.Collections.Concurrent;
using System.Security.Cryptography;
using Grpc.Core;
using KvCluster.Node.Shards;
using KvCluster.Node.Transport;
using KvCluster.Replication;
using KvCluster.V1;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Hosting;

/// <summary>Brings new replicas up in the place of others.</summary>
internal sealed class ReplicaReplacement : IAsyncDisposable
{
    /// <summary>A learner that lacks no more changes than this has caught up: the rest takes milliseconds.</summary>
    private const ulong LagChangesMax = 1_000;

    /// <summary>Of this node's replicas at a time, each a copy of a shard over the network.</summary>
    private const int RepairsMax = 4;

    private static readonly TimeSpan PollInterval = TimeSpan.FromMilliseconds(100);

    /// <summary>So often in a row the node of a new replica may not be connected, ten seconds, as in a restart; then nobody waits for it.</summary>
    private const int AwayPollsMax = 100;

    private static readonly TimeSpan RepairInterval = TimeSpan.FromSeconds(1);

    /// <summary>A new replica has this long to get all of the shard before the leader is asked again.</summary>
    private static readonly TimeSpan CatchUpTimeMax = TimeSpan.FromHours(1);

    private readonly NodeIdentity _identity;
    private readonly int _replicationFactor;
    private readonly ShardDirectory _map;
    private readonly ShardHost _shards;
    private readonly PeerTransport _peers;
    private readonly ILogger _log;
    private readonly ConcurrentDictionary<uint, string> _said = [];
    private readonly BackgroundLoop _loop;

    /// <param name="identity">This node.</param>
    /// <param name="replicationFactor">Voters that a shard of this cluster is to have.</param>
    /// <param name="map">Where the leaders are.</param>
    /// <param name="shards">The replicas here.</param>
    /// <param name="peers">Connections to leaders.</param>
    /// <param name="log">One line a step.</param>
    public ReplicaReplacement(NodeIdentity identity, int replicationFactor, ShardDirectory map, ShardHost shards, PeerTransport peers, ILogger log)
    {
        _replicationFactor = replicationFactor;
        _identity = identity;
        _map = map;
        _shards = shards;
        _peers = peers;
        _log = log;
        _loop = new BackgroundLoop("the repair of replicas", TakeTurnAsync, static () => CommonMoments.Until(RepairInterval), log);
    }

    /// <summary>As the leader of a shard: puts a new replica on a node, has it catch up, and lets it vote in the place of another.</summary>
    /// <param name="shard">A shard that this node leads.</param>
    /// <param name="fromNode">The node whose replica leaves for good.</param>
    /// <param name="toNode">Where the new one comes to lie; the same node: its replica is lost, and leaves first.</param>
    /// <param name="cancellationToken">Stops waiting; the shard's record keeps what was done.</param>
    public async Task<OrderResult> ReplaceAsync(HostedShard shard, uint fromNode, uint toNode, CancellationToken cancellationToken)
    {
        if (WhyNotTo(toNode) is { } reason)
            return new OrderResult(false, reason);
        if (await RecordOfAsync(shard).ConfigureAwait(false) is not { } record)
            return new OrderResult(false, "this replica stopped");
        var old = record.Replicas.FirstOrDefault(replica => replica.Node == fromNode && !replica.Learner);
        var learner = record.Replicas.FirstOrDefault(replica => replica.Node == toNode && replica.Learner)?.Replica ?? 0;
        // The voter in whose place a learner comes may have left already; beside all voters it would be one too many.
        if (old is null && (learner == 0 || record.Replicas.Count(replica => !replica.Learner) >= _replicationFactor))
            return new OrderResult(false, $"node {fromNode} has no voter of it");
        if (learner == 0)
        {
            // Left by a change that was broken off; its node may never come back.
            foreach (var orphan in record.Replicas.Where(replica => replica.Learner && IsAway(replica.Node)))
                await ChangeAsync(shard, orphan.Node, new ReplicaChange.Remove(orphan.Replica)).ConfigureAwait(false);
            if (fromNode == toNode)
                return await RebuildAsync(shard, old!.Replica, toNode, cancellationToken).ConfigureAwait(false);
            learner = NewId();
            var added = await ChangeAsync(shard, toNode, new ReplicaChange.AddLearner(learner, toNode)).ConfigureAwait(false);
            if (!added.Done)
                return added;
        }
        if (!await CatchUpAsync(shard, learner, toNode, cancellationToken).ConfigureAwait(false))
        {
            await ChangeAsync(shard, toNode, new ReplicaChange.Remove(learner)).ConfigureAwait(false);
            return new OrderResult(false, $"node {toNode} went away before its new replica had all of it, and does not get one");
        }
        return await ChangeAsync(shard, toNode, old is null ? new ReplicaChange.Promote(learner) : new ReplicaChange.Swap(old.Replica, learner)).ConfigureAwait(false);
    }

    /// <summary>Why no new replica can come up on a node now; null: one can. Any thread.</summary>
    public string? WhyNotTo(uint node) =>
        !_map.Snapshot.Nodes.ContainsKey(node) ? $"there is no node {node}"
        : IsAway(node) ? $"node {node} is not connected with node {_identity.Node}, which leads the shard; nothing was changed"
        : null;

    /// <summary>Asks a shard's leader for a replacement, and waits for its end.</summary>
    /// <exception cref="RpcException">It was not done; what was, is in the shard's record.</exception>
    /// <exception cref="ArgumentException">The leader's address is none.</exception>
    /// <exception cref="UriFormatException">Likewise.</exception>
    public static async Task AskAsync(PeerTransport peers, NodeRecord leader, ReplaceRequest request, CancellationToken cancellationToken)
    {
        using var channel = peers.ChannelTo(leader.Node, leader.Address);
        await new Admin.AdminClient(channel).ReplaceAsync(request, deadline: DateTime.UtcNow + CatchUpTimeMax, cancellationToken: cancellationToken).ConfigureAwait(false);
    }

    public ValueTask DisposeAsync() => _loop.DisposeAsync();

    // A lost replica counts for nothing, so its leaving first costs no safety; and a node has one replica of a shard at a time.
    private async Task<OrderResult> RebuildAsync(HostedShard shard, ulong lost, uint node, CancellationToken cancellationToken)
    {
        var removed = await ChangeAsync(shard, node, new ReplicaChange.Remove(lost)).ConfigureAwait(false);
        if (!removed.Done)
            return removed;
        var learner = NewId();
        var added = await ChangeAsync(shard, node, new ReplicaChange.AddLearner(learner, node)).ConfigureAwait(false);
        if (!added.Done)
            return added;
        return await CatchUpAsync(shard, learner, node, cancellationToken).ConfigureAwait(false)
            ? await ChangeAsync(shard, node, new ReplicaChange.Promote(learner)).ConfigureAwait(false)
            : new OrderResult(false, $"node {node} went away before its new replica had all of it");
    }

    private async Task<OrderResult> ChangeAsync(HostedShard shard, uint node, ReplicaChange change)
    {
        HostLog.Replaces(_log, shard.Shard, node, change.ToString());
        return await shard.Replica!.ChangeReplicasAsync(change).ConfigureAwait(false);
    }

    private bool IsAway(uint node) => node != _identity.Node && _peers.SessionOf(node) == 0;

    // False: its node is gone.
    private async Task<bool> CatchUpAsync(HostedShard shard, ulong learner, uint node, CancellationToken cancellationToken)
    {
        for (var away = 0; away < AwayPollsMax; away = IsAway(node) ? away + 1 : 0)
        {
            var status = await shard.StatusAsync(digest: false, detail: true).ConfigureAwait(false);
            var follower = status.Detail?.Followers.FirstOrDefault(follower => follower.Replica == learner);
            if (!shard.Replica!.IsServing || (follower is { State: "replicate" } && follower.Acknowledged.Change + LagChangesMax >= status.Committed.Change))
                return true;
            await Task.Delay(PollInterval, cancellationToken).ConfigureAwait(false);
        }
        return false;
    }

    private static async Task<ShardRecord?> RecordOfAsync(HostedShard shard) =>
        (await shard.StatusAsync(digest: false, detail: true).ConfigureAwait(false)).Detail?.Record;

    private static ulong NewId() => BitConverter.ToUInt64(RandomNumberGenerator.GetBytes(sizeof(ulong))) | 1;

    // Several at a time: one whose learner cannot catch up holds up no other.
    private Task TakeTurnAsync(CancellationToken stop) => Parallel.ForEachAsync(
        _shards.All.Where(NeedsLeader), new ParallelOptions { MaxDegreeOfParallelism = RepairsMax, CancellationToken = stop },
        async (shard, stop) => await AskLeaderAsync(shard.Shard, stop).ConfigureAwait(false));

    // Lost, or a learner in the place of a lost one, in case the leader went away before it let it vote. A learner beside all voters is for its
    // leader to put in the place of one of them.
    private bool NeedsLeader(HostedShard shard)
    {
        if (!_map.Snapshot.Records.TryGetValue(shard.Shard, out var entry))
            return false;
        var here = entry.Record.Replicas.FirstOrDefault(replica => replica.Node == _identity.Node);
        if (here is null || entry.Record.Replicas.Count == 1 || here.Replica != shard.ReplicaId)
            return false;
        return here.Learner ? entry.Record.Replicas.Count(replica => !replica.Learner) < _replicationFactor : shard.IsLost;
    }

    private async Task AskLeaderAsync(uint shard, CancellationToken stop)
    {
        if (_map.Snapshot.LeaderOf(shard) is not { } leader || leader.Node == _identity.Node)
            return;
        try
        {
            await AskAsync(_peers, leader, new ReplaceRequest { Shard = shard, FromNode = _identity.Node, ToNode = _identity.Node }, stop).ConfigureAwait(false);
            _said.TryRemove(shard, out _);
        }
        catch (Exception) when (stop.IsCancellationRequested)
        {
            // The node stops.
        }
        catch (Exception failure)
        {
            // Asked again in the next turn; told when the reason changes.
            var reason = failure is RpcException { Status.Detail: var detail } ? detail : failure.Message;
            if (_said.GetValueOrDefault(shard) != reason)
                HostLog.NotReplaced(_log, shard, reason);
            _said[shard] = reason;
        }
    }
}
