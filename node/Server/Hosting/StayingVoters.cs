// Whether a shard keeps a majority when a replica goes: asked before an operator's call quarantines a replica, drains a node or removes a voter. The
// shard's leader judges, as it alone knows who follows closely. Called on the thread pool; expected failures are values.
using Grpc.Core;
using KvCluster.Node.Transport;
using KvCluster.V1;

namespace KvCluster.Node.Hosting;

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

    /// <summary>A follower that was heard by then follows closely.</summary>
    private static readonly TimeSpan SilenceMax = TimeSpan.FromSeconds(3);

    /// <summary>Likewise while the leader rests: three of its beats.</summary>
    private static readonly TimeSpan SilenceMaxAtRest = TimeSpan.FromSeconds(15);

    private readonly Lock _gate = new();

    // Voters that were let go a moment ago and may still answer. An entry counts in its epoch only: its replica stops in no later one.
    private readonly Dictionary<(uint Shard, ulong Replica), (ulong Epoch, long Until)> _letGo = [];

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
        if (record.Replicas.FirstOrDefault(replica => replica.Node == node) is not { Learner: false } leaving)
            return new Verdict(id, status.Epoch, null);
        var voters = VotersOf(record);
        lock (_gate)
        {
            // It stays in the record and counts there, so the others must be a majority with it in the count.
            var follow = CountClose(status, voter => voter != leaving.Replica && voters.Contains(voter), countsDraining: false);
            var refusal = follow * 2 > voters.Count ? null : $"of its {voters.Count} voters only {follow} others follow closely and are to stay, which is no majority";
            if (refusal is null && keptTime > TimeSpan.Zero)
                _letGo[(id, leaving.Replica)] = (status.Epoch, clock.GetTimestamp() + (long)(keptTime.TotalSeconds * clock.TimestampFrequency));
            return new Verdict(id, status.Epoch, refusal);
        }
    }

    /// <summary>For a change of a shard's record that this node leads: why those who stay are too few; null: a majority of them follows closely.</summary>
    /// <param name="shard">The shard.</param>
    /// <param name="leaves">The replica that leaves the record.</param>
    /// <param name="joins">Voters that join in the same change; they have caught up.</param>
    public async Task<string?> WhyNoMajorityAsync(HostedShard shard, ulong leaves, int joins)
    {
        var status = await shard.StatusAsync(digest: false, detail: true).ConfigureAwait(false);
        if (status.Detail?.Record is not { } record)
            return "this replica stopped";
        var voters = VotersOf(record);
        if (!voters.Remove(leaves))
            return null;
        var stay = voters.Count + joins;
        int follow;
        lock (_gate)
            follow = joins + CountClose(status, voters.Contains, countsDraining: true);
        return follow * 2 > stay ? null : $"of the {stay} voters that would stay, only {follow} follow closely";
    }

    private static HashSet<ulong> VotersOf(ShardRecord record) => [.. record.Replicas.Where(static replica => !replica.Learner).Select(static replica => replica.Replica)];

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

    // The leader, if it stays, and its followers that are there. A node that drains is about to stop.
    private int CountClose(ReplicaStatus status, Func<ulong, bool> stays, bool countsDraining)
    {
        var silenceMax = status.Detail.Rests ? SilenceMaxAtRest : SilenceMax;
        var followers = status.Detail.Followers.Where(follower =>
            follower.State == "replicate" && follower.SilentUs < silenceMax.TotalMicroseconds && peers.SessionOf(follower.Node) != 0);
        return followers.Select(follower => (follower.Replica, follower.Node)).Append((status.Replica, identity.Node))
            .Count(voter => stays(voter.Item1) && (countsDraining || !Drains(voter.Item2)) && !WasLetGo(status, voter.Item1));
    }

    private bool Drains(uint node) => map.Snapshot.Nodes.TryGetValue(node, out var record) && record.Draining;

    private bool WasLetGo(ReplicaStatus status, ulong replica)
    {
        var key = (status.Route.Shard, replica);
        if (!_letGo.TryGetValue(key, out var gone))
            return false;
        if (gone.Epoch == status.Epoch && clock.GetTimestamp() < gone.Until)
            return true;
        _letGo.Remove(key);
        return false;
    }
}
