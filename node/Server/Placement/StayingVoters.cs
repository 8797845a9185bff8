// Whether a shard keeps a majority when a replica goes: asked before an operator's call quarantines a replica, drains a node or removes a voter. The
// shard's leader judges, as it alone knows who follows closely. Called on the thread pool; expected failures are values.
using Grpc.Core;
using KvCluster.Node.Hosting;
using KvCluster.Node.Map;
using KvCluster.Node.Runtime;
using KvCluster.Node.Transport;
using KvCluster.Replication.Protocol;
using KvCluster.V1;

namespace KvCluster.Node.Placement;

/// <summary>Asks the leaders of shards whether voters may go, and answers for the shards that this node leads.</summary>
internal sealed class StayingVoters(NodeIdentity identity, ShardDirectory map, ShardHost shards, PeerTransport peers, TimeProvider clock)
{
    /// <summary>How long a leader counts a voter out that it let go; longer than <see cref="UseTimeMax"/> and than a leader at rest takes to miss it.</summary>
    public static readonly TimeSpan GoneTime = TimeSpan.FromSeconds(30);

    /// <summary>How old a leader's word may be when a replica stops on it.</summary>
    public static readonly TimeSpan UseTimeMax = TimeSpan.FromSeconds(5);

    /// <summary>The same for a drain: until then every leader sees in the map that the node drains.</summary>
    public static readonly TimeSpan DrainTime = TimeSpan.FromSeconds(5);

    /// <summary>A leader may keep nobody out for longer on somebody's word.</summary>
    public static readonly TimeSpan KeptTimeMax = TimeSpan.FromMinutes(1);

    /// <summary>Shards named in one question; more are asked in turns. Bounds the message at about 60 KB.</summary>
    public const int ShardsMax = 10_000;

    /// <summary>A leader answers from memory; one that does not within this is not there.</summary>
    private static readonly TimeSpan AnswerTimeMax = TimeSpan.FromSeconds(5);

    private readonly StayingMajority _majority = new(
        identity.Node, node => peers.SessionOf(node) != 0, node => map.Snapshot.Nodes.TryGetValue(node, out var record) && record.Draining, clock);

    /// <summary>What a leader says of a voter that is to go.</summary>
    /// <param name="Shard">The shard.</param>
    /// <param name="Epoch">The leadership that said it.</param>
    /// <param name="Refusal">Why it must stay; null: a majority stays without it.</param>
    public readonly record struct Verdict(uint Shard, ulong Epoch, string? Refusal);

    /// <summary>Asks, of shards of which this node has replicas, whether these may go.</summary>
    /// <param name="asked">The shards.</param>
    /// <param name="keptTime">How long the leaders count them out on a yes.</param>
    /// <param name="cancellationToken">Gives up.</param>
    public async Task<IReadOnlyList<Verdict>> AskAsync(IReadOnlyCollection<uint> asked, TimeSpan keptTime, CancellationToken cancellationToken)
    {
        var verdicts = new List<Verdict>(asked.Count);
        foreach (var ofLeader in asked.GroupBy(shard => map.Snapshot.LeaderOf(shard)?.Node ?? 0))
        {
            foreach (var turn in ofLeader.Chunk(ShardsMax))
                verdicts.AddRange(await AskAsync(ofLeader.Key, turn, keptTime, cancellationToken).ConfigureAwait(false));
        }
        return verdicts;
    }

    /// <summary>Answers for a shard that this node leads.</summary>
    /// <param name="id">The shard.</param>
    /// <param name="node">The node whose voter is to go.</param>
    /// <param name="keptTime">How long it counts as gone on a yes.</param>
    public async Task<Verdict> JudgeAsync(uint id, uint node, TimeSpan keptTime)
    {
        if (shards.Find(id) is not { Replica: { IsServing: true } } shard)
            return new Verdict(id, 0, $"node {identity.Node} does not lead it; try again");
        var status = await shard.StatusAsync(digest: false, detail: true).ConfigureAwait(false);
        if (status.Detail?.Record is not { } record || !shard.Replica.IsServing)
            return new Verdict(id, 0, $"node {identity.Node} does not lead it any more; try again");
        return new Verdict(id, status.Epoch, _majority.TryLetGo(status, record, node, keptTime));
    }

    /// <summary>Lets a change of a shard's record begin, which this node leads: why those who vote after it are too few; null: it begins, and <see cref="End"/> must follow.</summary>
    /// <param name="shard">The shard.</param>
    /// <param name="change">A learner that joins by it has caught up.</param>
    /// <param name="force">It begins whatever stays.</param>
    public async Task<string?> TryBeginAsync(HostedShard shard, ReplicaChange change, bool force)
    {
        var status = await shard.StatusAsync(digest: false, detail: true).ConfigureAwait(false);
        return status.Detail?.Record is not { } record ? "this replica stopped" : _majority.TryBegin(status, record, change, force);
    }

    /// <summary>The outcome of a change that was begun is known, or this node does not lead the shard any more.</summary>
    public void End(uint shard, ReplicaChange change) => _majority.End(shard, change);

    private async Task<IEnumerable<Verdict>> AskAsync(uint leader, uint[] asked, TimeSpan keptTime, CancellationToken cancellationToken)
    {
        if (leader == identity.Node)
            return await Task.WhenAll(asked.Select(shard => JudgeAsync(shard, identity.Node, keptTime))).ConfigureAwait(false);
        if (leader == 0 || !map.Snapshot.Nodes.TryGetValue(leader, out var there))
            return asked.Select(static shard => new Verdict(shard, 0, "it has no leader who could say what would stay"));
        try
        {
            using var channel = peers.ChannelTo(leader, there.Address);
            var request = new MayStopRequest { Node = identity.Node, KeptMs = (uint)keptTime.TotalMilliseconds, Shards = { asked } };
            var answer = await new Admin.AdminClient(channel).MayStopAsync(request, deadline: DateTime.UtcNow + AnswerTimeMax, cancellationToken: cancellationToken).ConfigureAwait(false);
            var verdicts = answer.Verdicts.ToDictionary(static verdict => verdict.Shard);
            return asked.Select(shard => verdicts.TryGetValue(shard, out var verdict)
                ? new Verdict(shard, verdict.Epoch, verdict.Refusal.Length == 0 ? null : verdict.Refusal)
                : new Verdict(shard, 0, $"node {leader} does not say"));
        }
        catch (Exception failure) when (failure is RpcException or ArgumentException && !cancellationToken.IsCancellationRequested)
        {
            var reason = failure is RpcException { Status.Detail: var detail } ? detail : failure.Message;
            return asked.Select(shard => new Verdict(shard, 0, $"its leader on node {leader} does not say what would stay: {reason}"));
        }
    }
}
