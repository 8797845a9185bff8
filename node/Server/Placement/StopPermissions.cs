// Checks whether a shard keeps a majority when a replica stops or leaves, before an operator's call quarantines a replica, drains a node or removes a voter.
// The shard's leader decides, because only it knows which replicas follow closely. Called on the thread pool; expected failures are values.
using Grpc.Core;
using KvCluster.Internal.V1;
using KvCluster.Node.Hosting;
using KvCluster.Node.Map;
using KvCluster.Node.Runtime;
using KvCluster.Node.Transport;
using KvCluster.Replication.Protocol;

namespace KvCluster.Node.Placement;

/// <summary>Asks the leaders of shards whether voters may stop, and answers for the shards that this node leads.</summary>
internal sealed class StopPermissions(NodeIdentity identity, ShardDirectory map, ShardHost shards, PeerTransport peers, TimeProvider clock)
{
    /// <summary>
    /// How long a leader excludes a voter that it released. Longer than <see cref="UseTimeMax"/> and than a quiescent leader takes to miss it.
    /// </summary>
    public static readonly TimeSpan GoneTime = TimeSpan.FromSeconds(30);

    /// <summary>How old a leader's answer may be when a replica stops because of it.</summary>
    public static readonly TimeSpan UseTimeMax = TimeSpan.FromSeconds(5);

    /// <summary>The same as GoneTime for a drain. After this every leader sees in the map that the node drains.</summary>
    public static readonly TimeSpan DrainTime = TimeSpan.FromSeconds(5);

    /// <summary>The longest time for which a leader excludes a replica at a caller's request.</summary>
    public static readonly TimeSpan KeptTimeMax = TimeSpan.FromMinutes(1);

    /// <summary>Shards named in one request; more are asked in several. Bounds the message to about 60 KB.</summary>
    public const int ShardsMax = 10_000;

    /// <summary>
    /// A leader answers from memory. One that does not answer within this time is considered gone, so that an operator has an answer within five seconds.
    /// </summary>
    private static readonly TimeSpan AnswerTimeMax = TimeSpan.FromSeconds(3);

    private readonly MajorityAfterStop _majority = new(
        identity.Node, node => peers.SessionOf(node) != 0, node => map.Snapshot.Nodes.TryGetValue(node, out var record) && record.Draining, clock);

    /// <summary>A leader's answer about a voter that wants to stop.</summary>
    /// <param name="Shard">The shard.</param>
    /// <param name="Epoch">The epoch of the leader that answered.</param>
    /// <param name="Refusal">Why it must stay; null if a majority remains without it.</param>
    public readonly record struct Verdict(ShardId Shard, ulong Epoch, string? Refusal);

    /// <summary>Asks whether this node's replicas of some shards may stop.</summary>
    /// <param name="asked">The shards.</param>
    /// <param name="keptTime">How long the leaders exclude them if they may.</param>
    /// <param name="cancellationToken">Cancels the request.</param>
    public async Task<IReadOnlyList<Verdict>> AskAsync(IReadOnlyCollection<ShardId> asked, TimeSpan keptTime, CancellationToken cancellationToken)
    {
        var verdicts = new List<Verdict>(asked.Count);
        foreach (var ofLeader in asked.GroupBy(shard => map.Snapshot.LeaderOf(shard)?.NodeId ?? NodeId.None))
        {
            foreach (var turn in ofLeader.Chunk(ShardsMax))
                verdicts.AddRange(await AskAsync(ofLeader.Key, turn, keptTime, cancellationToken).ConfigureAwait(false));
        }
        return verdicts;
    }

    /// <summary>Answers for a shard that this node leads.</summary>
    /// <param name="id">The shard.</param>
    /// <param name="node">The node whose voter wants to stop.</param>
    /// <param name="keptTime">How long the voter counts as gone if it may stop.</param>
    public async Task<Verdict> JudgeAsync(ShardId id, NodeId node, TimeSpan keptTime)
    {
        if (shards.Find(id) is not { Replica: { IsServing: true } } shard)
            return new Verdict(id, 0, $"node {identity.Node} does not lead it; try again");
        if (await shard.LookAsync().ConfigureAwait(false) is not { } view || !shard.Replica.IsServing)
            return new Verdict(id, 0, $"node {identity.Node} no longer leads it; try again");
        return new Verdict(id, view.Epoch, _majority.TryLetGo(view, node, keptTime));
    }

    /// <summary>
    /// Lets a change of the record of a shard that this node leads begin. Returns why its voters would be too few; null if it begins, and <see cref="End"/>
    /// must follow.
    /// </summary>
    /// <param name="shard">The shard.</param>
    /// <param name="change">The change. A learner that becomes a voter by it has caught up.</param>
    /// <param name="force">The change begins even without a majority.</param>
    public async Task<string?> TryBeginAsync(HostedShard shard, ReplicaChange change, bool force) =>
        await shard.LookAsync().ConfigureAwait(false) is { } view ? _majority.TryBegin(view, change, force) : "this replica stopped";

    /// <summary>The outcome of a change that was begun is known, or this node no longer leads the shard.</summary>
    public void End(ShardId shard, ReplicaChange change) => _majority.End(shard, change);

    private async Task<IEnumerable<Verdict>> AskAsync(NodeId leader, ShardId[] asked, TimeSpan keptTime, CancellationToken cancellationToken)
    {
        if (leader == identity.Node)
            return await Task.WhenAll(asked.Select(shard => JudgeAsync(shard, identity.Node, keptTime))).ConfigureAwait(false);
        if (leader.IsNone || !map.Snapshot.Nodes.TryGetValue(leader, out var there))
            return asked.Select(static shard => new Verdict(shard, 0, "it has no leader that could tell whether a majority would remain"));
        try
        {
            using var channel = peers.ChannelTo(leader, there.PeerAddress);
            var request = new MayStopRequest
            {
                NodeId = identity.Node, KeptMs = (uint)keptTime.TotalMilliseconds, Shards = { asked.Select(static shard => shard.Value) }
            };
            var answer = await new Internal.V1.Placement.PlacementClient(channel.Calls())
                .MayStopAsync(request, deadline: DateTime.UtcNow + AnswerTimeMax, cancellationToken: cancellationToken).ConfigureAwait(false);
            var verdicts = answer.Verdicts.ToDictionary(static verdict => verdict.ShardId);
            return asked.Select(shard => verdicts.TryGetValue(shard, out var verdict)
                ? new Verdict(shard, verdict.Epoch, verdict.Stop == MayStopVerdict.Types.Stop.May ? null : verdict.Refusal)
                : new Verdict(shard, 0, $"node {leader} gave no answer for it"));
        }
        catch (Exception failure) when (failure is RpcException or ArgumentException or UriFormatException && !cancellationToken.IsCancellationRequested)
        {
            var reason = failure is RpcException { Status.Detail: var detail } ? detail : failure.Message;
            return asked.Select(shard => new Verdict(shard, 0, $"its leader on node {leader} did not tell whether a majority would remain: {reason}"));
        }
    }
}
