// Decides where this node's leaderships go. A drain transfers all of them, for an operator or when the node stops. The loop transfers shards back to their
// preferred node when it has come back, and continues to transfer while the node drains. Thread pool only. Failures are retried or reported.
using System.Collections.Concurrent;
using KvCluster.Node.Hosting;
using KvCluster.Node.Map;
using KvCluster.Node.Runtime;
using KvCluster.Node.Shards;
using KvCluster.Node.Shards.Loop;
using KvCluster.Node.Transport;
using KvCluster.Replication.Progress;
using KvCluster.Replication.Protocol;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Placement;

/// <summary>The result of a drain.</summary>
/// <param name="GivenAway">Number of leaderships transferred.</param>
/// <param name="Kept">Shards still led, and why.</param>
internal sealed record DrainResult(int GivenAway, IReadOnlyDictionary<ShardId, string> Kept);

/// <summary>Transfers leaderships of this node to others.</summary>
internal sealed class LeaderPlacement : IAsyncDisposable
{
    /// <summary>Concurrent transfers. Each spends some milliseconds waiting for syncs and the coordinator.</summary>
    private const int TransfersMax = 8;

    /// <summary>Attempts to transfer one shard to a node that came back. After that the shard stays where it is.</summary>
    private const int AttemptsMax = 5;

    private static readonly TimeSpan Interval = TimeSpan.FromSeconds(1);

    /// <summary>Pause between rounds of a drain. An election may bring a leadership here meanwhile.</summary>
    private static readonly TimeSpan DrainPause = TimeSpan.FromMilliseconds(50);

    /// <summary>Time that a node that came back has to catch up before it leads.</summary>
    private static readonly TimeSpan SettleTime = TimeSpan.FromSeconds(5);

    /// <summary>A follower that answered within this time is considered alive.</summary>
    private static readonly TimeSpan SilenceMax = TimeSpan.FromMilliseconds(600);

    private readonly NodeIdentity _identity;
    private readonly ShardDirectory _map;
    private readonly ShardHost _shards;
    private readonly PeerTransport _peers;
    private readonly TimeProvider _clock;
    private readonly ILogger _log;
    private readonly Dictionary<NodeId, Arrival> _arrivals = [];
    private readonly BackgroundLoop _loop;
    private volatile bool _draining;

    public LeaderPlacement(NodeIdentity identity, ShardDirectory map, ShardHost shards, PeerTransport peers, TimeProvider clock, ILogger log)
    {
        _identity = identity;
        _map = map;
        _shards = shards;
        _peers = peers;
        _clock = clock;
        _log = log;
        _loop = new BackgroundLoop("the placement of leaders", TakeTurnAsync, static () => CommonMoments.Until(Interval), shards.Threads.Timers, log);
    }

    /// <summary>Whether this node transfers its leaderships away and takes none.</summary>
    public bool Draining => _draining;

    /// <summary>Called with true when the node begins to drain, with false when it may lead again. Must not block.</summary>
    public Action<bool> DrainingChanged { get; set; } = static _ => { };

    /// <summary>Transfers a shard that this node leads to the replica on another node; 0: to the most advanced one.</summary>
    /// <returns>The node asked to lead, and the result.</returns>
    public async Task<(NodeId Node, OrderResult Result)> TransferAsync(HostedShard shard, NodeId toNode)
    {
        if (toNode == _identity.Node)
            return (toNode, new OrderResult(true, "it already leads"));
        var candidates = await CandidatesAsync(shard).ConfigureAwait(false);
        if (candidates.Where(candidate => toNode.IsNone || candidate.Node == toNode).MaxBy(candidate => candidate.Acknowledged) is not { } target)
            return (toNode, new OrderResult(false, toNode.IsNone ? "no other voter with a healthy disk follows closely"
                : $"node {toNode} has no voter of the shard that follows closely with a healthy disk"));
        var result = await shard.Replica!.Orders.TransferAsync(target.Replica).ConfigureAwait(false);
        return (target.Node, result);
    }

    /// <summary>Transfers every leadership away and takes none from here on.</summary>
    /// <param name="limit">How long to retry leaderships that could not be transferred.</param>
    /// <param name="patience">
    /// Give up when nothing could be transferred for this long, because nobody can take over; at once if the shards that are left have no other replica.
    /// </param>
    /// <param name="cancellationToken">Stops between two rounds; the node continues to drain.</param>
    public async Task<DrainResult> DrainAsync(TimeSpan limit, TimeSpan patience, CancellationToken cancellationToken)
    {
        if (!_draining)
            PlacementLog.Drains(_log, _identity.Node);
        _draining = true;
        DrainingChanged(true);
        var givenAway = 0;
        var kept = new ConcurrentDictionary<ShardId, string>();
        var begun = _clock.GetTimestamp();
        var moved = begun;
        do
        {
            kept.Clear();
            var (before, alone) = (givenAway, 0);
            await Parallel.ForEachAsync(
                Led(), new ParallelOptions { MaxDegreeOfParallelism = TransfersMax, CancellationToken = cancellationToken }, async (shard, _) =>
                {
                    var result = await GiveAwayAsync(shard).ConfigureAwait(false);
                    if (result.Done)
                    {
                        Interlocked.Increment(ref givenAway);
                        return;
                    }
                    kept[shard.Shard] = result.Reason;
                    if (await shard.LookAsync().ConfigureAwait(false) is { Record.Replicas.Count: 1 })
                        Interlocked.Increment(ref alone);
                }).ConfigureAwait(false);
            if (givenAway > before)
                moved = _clock.GetTimestamp();
            var led = Led().Count();
            if (led == 0 || (givenAway == before && (alone >= led || _clock.GetElapsedTime(moved) >= patience)))
                break;
            await Task.Delay(DrainPause, cancellationToken).ConfigureAwait(false);
        }
        while (_draining && _clock.GetElapsedTime(begun) < limit);
        PlacementLog.Drained(_log, _identity.Node, givenAway, kept.Count);
        return new DrainResult(givenAway, kept);
    }

    /// <summary>Ends a drain. The node may lead again, and the others transfer its preferred shards back.</summary>
    public void EndDrain()
    {
        _draining = false;
        DrainingChanged(false);
    }

    public ValueTask DisposeAsync() => _loop.DisposeAsync();

    private IEnumerable<HostedShard> Led() => _shards.All.Where(shard => shard.Replica is { IsServing: true });

    private bool IsDraining(NodeId node) => _map.Snapshot.Nodes.TryGetValue(node, out var record) && record.Draining;

    // To the candidate whose node leads the fewest shards, so that a drained node's leaderships spread.
    private async Task<OrderResult> GiveAwayAsync(HostedShard shard)
    {
        var leaders = _map.Snapshot.Routes.CountBy(route => route.LeaderId).ToDictionary();
        var candidates = await CandidatesAsync(shard).ConfigureAwait(false);
        return candidates.Where(candidate => !IsDraining(candidate.Node)).MinBy(candidate => leaders.GetValueOrDefault(candidate.Node)) is { } target
            ? await shard.Replica!.Orders.TransferAsync(target.Replica).ConfigureAwait(false)
            : new OrderResult(false, "no other voter with a healthy disk follows closely");
    }

    // Voters that replicate, have a healthy disk and were heard recently; a quiescent leader rarely hears from them. The core decides; this only chooses a
    // candidate, and the core waits until that follows closely.
    private async Task<IReadOnlyList<FollowerView>> CandidatesAsync(HostedShard shard)
    {
        if (await shard.LookAsync().ConfigureAwait(false) is not { } view)
            return [];
        var voters = view.Record.Replicas.Where(replica => !replica.Learner).Select(replica => replica.ReplicaId).ToHashSet();
        return [.. view.Followers.Where(follower =>
            voters.Contains(follower.Replica) && follower.State == FollowerState.Replicate && !follower.DiskImpaired
            && (view.IsQuiescent || follower.SilentUs < SilenceMax.TotalMicroseconds) && _peers.SessionOf(follower.Node) != 0)];
    }

    private async Task TakeTurnAsync(CancellationToken stop)
    {
        if (_draining)
        {
            foreach (var shard in Led())
                await GiveAwayAsync(shard).ConfigureAwait(false);
            return;
        }
        foreach (var node in _map.Snapshot.Nodes.Keys.Where(node => node != _identity.Node))
            await WelcomeAsync(node, stop).ConfigureAwait(false);
    }

    // Transfers leaderships to a node once per stream to it, so that what an operator moves afterwards stays.
    private async Task WelcomeAsync(NodeId node, CancellationToken stop)
    {
        var session = _peers.SessionOf(node);
        if (session == 0 || IsDraining(node))
        {
            _arrivals.Remove(node);
            return;
        }
        if (!_arrivals.TryGetValue(node, out var arrival) || arrival.Session != session)
            _arrivals[node] = arrival = new Arrival(session, _clock.GetTimestamp());
        if (arrival.IsWelcomed || _clock.GetElapsedTime(arrival.Since) < SettleTime)
            return;
        arrival.IsWelcomed = true;
        foreach (var shard in Led().Where(shard => BelongsTo(shard, node)))
        {
            if (stop.IsCancellationRequested || _draining || arrival.Attempts.GetValueOrDefault(shard.Shard) >= AttemptsMax)
                continue;
            arrival.Attempts[shard.Shard] = arrival.Attempts.GetValueOrDefault(shard.Shard) + 1;
            var (_, result) = await TransferAsync(shard, node).ConfigureAwait(false);
            // A replica that is still catching up is given the leadership in a later turn.
            arrival.IsWelcomed &= result.Done;
        }
        arrival.IsWelcomed |= arrival.Attempts.Count > 0 && arrival.Attempts.Values.All(attempts => attempts >= AttemptsMax);
    }

    private bool BelongsTo(HostedShard shard, NodeId node) =>
        _map.Snapshot.Records.TryGetValue(shard.Shard, out var entry) && ShardView.PreferredLeader(entry.Record).NodeId == node;

    /// <summary>A stream to another node, and the transfers to that node since it was opened.</summary>
    private sealed class Arrival(long session, long since)
    {
        public long Session { get; } = session;

        public long Since { get; } = since;

        public Dictionary<ShardId, int> Attempts { get; } = [];

        public bool IsWelcomed { get; set; }
    }
}
