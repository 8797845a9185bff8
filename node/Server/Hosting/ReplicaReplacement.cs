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
    private readonly TimeSpan _patience;
    private readonly ShardDirectory _map;
    private readonly ShardHost _shards;
    private readonly StayingVoters _voters;
    private readonly PeerTransport _peers;
    private readonly TimeProvider _clock;
    private readonly ILogger _log;
    private readonly ConcurrentDictionary<uint, string> _said = [];

    // One of each for a shard: who changes its replicas now, and what a call brought to its end last, which a call for the same finds done.
    private readonly ConcurrentDictionary<uint, SemaphoreSlim> _turns = [];
    private readonly ConcurrentDictionary<uint, (uint From, uint To, ulong Replica)> _replaced = [];
    private readonly BackgroundLoop _loop;

    /// <param name="identity">This node.</param>
    /// <param name="replicationFactor">Voters that a shard of this cluster is to have.</param>
    /// <param name="patience">A learner that gets no further for so long is removed.</param>
    /// <param name="map">Where the leaders are.</param>
    /// <param name="shards">The replicas here.</param>
    /// <param name="voters">Whether enough stay where one leaves.</param>
    /// <param name="peers">Connections to leaders.</param>
    /// <param name="clock">For the patience.</param>
    /// <param name="log">One line a step.</param>
    public ReplicaReplacement(
        NodeIdentity identity, int replicationFactor, TimeSpan patience, ShardDirectory map, ShardHost shards, StayingVoters voters, PeerTransport peers, TimeProvider clock, ILogger log)
    {
        _voters = voters;
        _patience = patience;
        _clock = clock;
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
    /// <param name="request">See admin.proto for its cases.</param>
    /// <param name="cancellationToken">Stops waiting; the shard's record keeps what was done.</param>
    public async Task<OrderResult> ReplaceAsync(HostedShard shard, ReplaceRequest request, CancellationToken cancellationToken)
    {
        if (await RecordOfAsync(shard).ConfigureAwait(false) is not { } record)
            return NotDone("this replica stopped");
        if (Foresee(record, request) is { } known)
            return known;
        var (from, to) = (request.FromNode, request.ToNode);
        var replicas = record.Replicas.ToList();
        var there = replicas.Find(replica => replica.Node == from);
        if (to == 0)
        {
            var left = await RemoveLearnerAsync(shard, from, there!.Replica, request.Force, cancellationToken).ConfigureAwait(false);
            return left.Done || await IsGoneAsync(shard, there.Replica).ConfigureAwait(false) ? new OrderResult(true, "") : left;
        }
        var lost = LostOf(there, request);
        if (lost != 0)
        {
            replicas.Remove(there!);
            there = null;
            if (replicas.Count(replica => !replica.Learner) >= _replicationFactor)
            {
                var removed = await ChangeAsync(shard, from, new ReplicaChange.Remove(lost), cancellationToken, request.Force).ConfigureAwait(false);
                return removed.Done || await IsGoneAsync(shard, lost).ConfigureAwait(false) ? new OrderResult(true, "") : removed;
            }
        }

        // Of nobody, a new one may come where one is missing.
        var old = there is { Learner: false } ? there : null;
        var leaves = old?.Replica ?? lost;
        var learner = LearnerOn(record, to);
        if (learner == 0)
        {
            // Left by a change that was broken off; its node may never come back.
            foreach (var orphan in replicas.Where(replica => replica.Learner && IsAway(replica.Node)).ToList())
            {
                if ((await RemoveLearnerAsync(shard, orphan.Node, orphan.Replica, force: false, cancellationToken).ConfigureAwait(false)).Done)
                    replicas.Remove(orphan);
            }
            if (old is null && replicas.Find(replica => replica.Learner) is { } other)
                return NotDone($"the learner on node {other.Node} is to vote there");
            learner = NewId();
            var added = await ChangeAsync(shard, to, new ReplicaChange.AddLearner(learner, to, lost), cancellationToken, request.Force).ConfigureAwait(false);
            if (!added.Done)
            {
                // Another call for the same may have come first: then its learner is the one.
                var now = await RecordOfAsync(shard).ConfigureAwait(false);
                if (now is not null && IsReplaced(now, leaves, to))
                    return new OrderResult(true, "");
                learner = now is null || (lost != 0 && Has(now, lost)) ? 0 : LearnerOn(now, to);
                if (learner == 0)
                    return added;
            }
        }

        var caughtUp = await CatchesUpAsync(shard, learner, to, cancellationToken).ConfigureAwait(false);
        ReplicaChange last = old is null ? new ReplicaChange.Promote(learner, _replicationFactor) : new ReplicaChange.Swap(old.Replica, learner);
        // Where it did not: it stands in the way of every other move of the shard, and its node may never be fit for it.
        var ended = caughtUp
            ? await ChangeAsync(shard, to, last, cancellationToken, request.Force).ConfigureAwait(false)
            : await RemoveLearnerAsync(shard, to, learner, force: false, cancellationToken).ConfigureAwait(false);
        if ((caughtUp && ended.Done) || (!ended.Done && await RecordOfAsync(shard).ConfigureAwait(false) is { } newest && IsReplaced(newest, leaves, to)))
        {
            _replaced[shard.Shard] = (from, to, learner);
            return new OrderResult(true, "");
        }
        return caughtUp ? ended : NotDone($"the new replica on node {to} went away, or got no further for {_patience.TotalSeconds:0} s{(ended.Done ? " and was removed" : "")}");
    }

    /// <summary>
    /// Before a leader hands over so that the next one replaces its replica: how the replacement would end by all that can be known here, as a hand-over for nothing
    /// costs the shard's writers a pause. Null: nothing is in its way.
    /// </summary>
    /// <param name="shard">A shard that this node leads.</param>
    /// <param name="request">Of the replica on this node.</param>
    public async Task<OrderResult?> ForeseeOwnAsync(HostedShard shard, ReplaceRequest request)
    {
        if (await RecordOfAsync(shard).ConfigureAwait(false) is not { } record)
            return NotDone("this replica stopped");
        if (Foresee(record, request) is { } known)
            return known;
        var own = record.Replicas.First(replica => replica.Node == request.FromNode).Replica;
        // A learner that is still to be made has caught up when it joins.
        ReplicaChange last = request.ToNode == request.FromNode
            ? new ReplicaChange.Remove(own)
            : new ReplicaChange.Swap(own, LearnerOn(record, request.ToNode) is var learner and not 0 ? learner : NewId());
        if (await _voters.TryBeginAsync(shard, last, request.Force).ConfigureAwait(false) is { } reason)
            return NotDone(reason);
        _voters.End(shard.Shard, last);
        return null;
    }

    // How a replacement ends as the record and the nodes are; null: it has to be tried.
    private OrderResult? Foresee(ShardRecord record, ReplaceRequest request)
    {
        var (from, to) = (request.FromNode, request.ToNode);
        if (WhyNotTo(to) is { } reason)
            return NotDone(reason);
        var there = record.Replicas.FirstOrDefault(replica => replica.Node == from);
        if (to == 0)
            return there is { Learner: true } ? null : NotDone($"node {from} has no learner of it");
        if (request.Lost != 0 && there is { Learner: false } && there.Replica != request.Lost)
            return new OrderResult(true, "another votes in its place");
        if (there is null && _replaced.TryGetValue(record.Shard, out var done) && (done.From, done.To) == (from, to) && record.Replicas.Any(replica => replica.Replica == done.Replica && !replica.Learner))
            return new OrderResult(true, "another call did it");
        var lost = LostOf(there, request);
        var voters = record.Replicas.Count(replica => !replica.Learner && replica.Replica != lost);
        if (lost == 0 && there is not { Learner: false } && (voters >= _replicationFactor || (from != 0 && from != to)))
            return NotDone($"node {from} has no voter of it");
        return record.Replicas.Any(replica => replica.Node == to && !replica.Learner && replica.Replica != lost) ? NotDone($"node {to} has a replica of the shard") : null;
    }

    // A lost replica counts for nothing, so its leaving first costs no safety; and a node has one replica of a shard at a time.
    private static ulong LostOf(ReplicaRecord? there, ReplaceRequest request) =>
        request.FromNode == request.ToNode && there is not null && (request.Lost == 0 ? !there.Learner : request.Lost == there.Replica) ? there.Replica : 0;

    private static ulong LearnerOn(ShardRecord record, uint node) => record.Replicas.FirstOrDefault(replica => replica.Node == node && replica.Learner)?.Replica ?? 0;

    private static bool Has(ShardRecord record, ulong id) => record.Replicas.Any(replica => replica.Replica == id);

    // Whether another votes on a node, and who was to leave has left (0: nobody was to).
    private static bool IsReplaced(ShardRecord record, ulong leaves, uint to) =>
        (leaves == 0 || !Has(record, leaves)) && record.Replicas.Any(replica => replica.Node == to && !replica.Learner && replica.Replica != leaves);

    private async Task<bool> IsGoneAsync(HostedShard shard, ulong id) => await RecordOfAsync(shard).ConfigureAwait(false) is { } record && !Has(record, id);

    /// <summary>Why no new replica can come up on a node now; null: one can. Any thread.</summary>
    /// <param name="node">0: none is to come up.</param>
    public string? WhyNotTo(uint node) =>
        node == 0 ? null
        : !_map.Snapshot.Nodes.ContainsKey(node) ? $"there is no node {node}"
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

    private static OrderResult NotDone(string reason) => new(false, reason);

    // One that votes by now, as another call has brought it to its end, stays.
    private Task<OrderResult> RemoveLearnerAsync(HostedShard shard, uint node, ulong learner, bool force, CancellationToken cancellationToken) =>
        ChangeAsync(shard, node, new ReplicaChange.Remove(learner), cancellationToken, force, isLearner: true);

    // One after another for each shard, whoever asks: a leader makes one change at a time, and refuses what comes meanwhile. A majority is asked for first, as a
    // change that is begun holds up the shard's writes until the voters that stay have everything.
    private async Task<OrderResult> ChangeAsync(
        HostedShard shard, uint node, ReplicaChange change, CancellationToken cancellationToken, bool force = false, bool isLearner = false)
    {
        var turn = _turns.GetOrAdd(shard.Shard, static _ => new SemaphoreSlim(1));
        await turn.WaitAsync(cancellationToken).ConfigureAwait(false);
        try
        {
            if (isLearner && (await RecordOfAsync(shard).ConfigureAwait(false))?.Replicas.FirstOrDefault(replica => replica.Replica == change.Leaves) is { Learner: false })
                return NotDone($"replica {change.Leaves:x} votes by now");
            if (await _voters.TryBeginAsync(shard, change, force).ConfigureAwait(false) is { } reason)
                return NotDone(reason);
            try
            {
                HostLog.Replaces(_log, shard.Shard, node, change.ToString());
                return await shard.Replica!.ChangeReplicasAsync(change).ConfigureAwait(false);
            }
            finally
            {
                _voters.End(shard.Shard, change);
            }
        }
        finally
        {
            turn.Release();
        }
    }

    private bool IsAway(uint node) => node != _identity.Node && _peers.SessionOf(node) == 0;

    // False: its node is gone, or it got no further for too long.
    private async Task<bool> CatchesUpAsync(HostedShard shard, ulong learner, uint node, CancellationToken cancellationToken)
    {
        var (seen, movedAt) = ((Acknowledged: 0UL, Stored: 0UL, Verified: 0UL), _clock.GetTimestamp());
        for (var away = 0; away < AwayPollsMax; away = IsAway(node) ? away + 1 : 0)
        {
            var status = await shard.StatusAsync(digest: false, detail: true).ConfigureAwait(false);
            var follower = status.Detail?.Followers.FirstOrDefault(follower => follower.Replica == learner);
            if (!shard.Replica!.IsServing || (follower is { State: "replicate" } && follower.Acknowledged.Change + LagChangesMax >= status.Committed.Change))
                return true;
            if (follower is not null && (follower.Acknowledged.Change, follower.SnapshotStored, follower.SnapshotVerified) is var now && now != seen)
                (seen, movedAt) = (now, _clock.GetTimestamp());
            if (_clock.GetElapsedTime(movedAt) >= _patience)
                return false;
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
        async (shard, stop) => await AskLeaderAsync(shard.Shard, shard.IsLost ? shard.ReplicaId : 0, stop).ConfigureAwait(false));

    // Lost, or a learner in the place of a lost one, in case the leader went away before it let it vote. A learner beside all voters is for its
    // leader to put in the place of one of them. Nothing here where one is missing: the controller of the placement finds it a node.
    private bool NeedsLeader(HostedShard shard)
    {
        if (!_map.Snapshot.Records.TryGetValue(shard.Shard, out var entry))
            return false;
        var here = entry.Record.Replicas.FirstOrDefault(replica => replica.Node == _identity.Node);
        if (here is null || entry.Record.Replicas.Count == 1 || here.Replica != shard.ReplicaId)
            return false;
        return shard.IsLost || (here.Learner && entry.Record.Replicas.Count(replica => !replica.Learner) < _replicationFactor);
    }

    private async Task AskLeaderAsync(uint shard, ulong lost, CancellationToken stop)
    {
        if (_map.Snapshot.LeaderOf(shard) is not { } leader || leader.Node == _identity.Node)
            return;
        try
        {
            await AskAsync(_peers, leader, new ReplaceRequest { Shard = shard, FromNode = _identity.Node, ToNode = _identity.Node, Lost = lost }, stop).ConfigureAwait(false);
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
