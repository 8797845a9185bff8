// Which records to put into a coordinator that has lost its own, computed from what the nodes say. Pure. The rules, and why they are enough, are in README.md
// beside this file. Whatever they do not cover is refused.
using System.Globalization;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Runtime;

namespace KvCluster.Node.CoordinatorRecovery;

/// <summary>The records to put, or why none may be put.</summary>
internal sealed class RecoveryPlan
{
    /// <summary>
    /// How far epochs and generations are raised above all that are known. The lost coordinator may have assigned more of them; each cost
    /// it a transaction, so it was never a million.
    /// </summary>
    public const ulong Gap = 1UL << 20;

    private RecoveryPlan(IReadOnlyList<string> refusals) => Refusals = refusals;

    /// <summary>Why nothing may be put, one line each; empty if the plan can be applied.</summary>
    public IReadOnlyList<string> Refusals { get; }

    /// <summary>The number of this recovery, greater than that of any record seen.</summary>
    public ulong Number { get; private init; }

    /// <summary>The cluster's record, which is put last; null if it is not known.</summary>
    public ClusterRecord? Cluster { get; private init; }

    /// <summary>The shards, ordered by start.</summary>
    public IReadOnlyList<PlannedShard> Shards { get; private init; } = [];

    /// <summary>The counts of starts: what each node that answered has, and the last that is known of one that is absent.</summary>
    public IReadOnlyDictionary<NodeId, NodeStarts> Starts { get; private init; } = new Dictionary<NodeId, NodeStarts>();

    /// <summary>
    /// How long to wait before the records are put: the longest lease that a replica of a shard without a running leader has granted. A leader that was not
    /// reached may hold it.
    /// </summary>
    public ulong WaitMs { get; private init; }

    /// <summary>Computes the plan.</summary>
    /// <param name="found">What the nodes say, and what the coordinator has.</param>
    /// <param name="id">Random and not 0. Tells this recovery from another one of the same number.</param>
    public static RecoveryPlan Of(RecoveryFindings found, ulong id)
    {
        var refusals = new List<string>();
        var cluster = NewestCluster(found, refusals);
        if (cluster is null)
            return new RecoveryPlan(refusals);
        var number = 1 + NumbersOf(found, id).Max();
        RequireAnswers(found, refusals);
        RequireSameStore(found, refusals);
        RequireNewestDirectories(found, refusals);
        // A node that took part in the last recovery and has not joined it yet is as good as any.
        var absent = found.Without.Concat(found.Reports.Where(report => report.Cluster.Recovery < cluster.Recovery && cluster.Absent.Contains(report.Node))
            .Select(static report => new NodeId(report.Node))).ToHashSet();
        var shards = ShardsOf(found)
            .Select(shard => ShardRecordRecovery.Of(shard, found, absent, new RecoveryNumber(number, id), refusals)).OfType<PlannedShard>()
            .OrderBy(static shard => shard.Record.Start.Memory, Comparer<ReadOnlyMemory<byte>>.Create(static (x, y) => x.Span.SequenceCompareTo(y.Span)))
            .ToList();
        RequireAllKeys(shards, refusals);
        cluster = cluster.Clone();
        (cluster.Recovery, cluster.RecoveryId) = (number, id);
        // Some nodes may not have heard of a raised level yet, of which others have data already. Older programs would drop what is put here.
        (cluster.FormatLevel, cluster.ContractLevel) = LevelsOf(found);
        cluster.Absent.Clear();
        cluster.Absent.AddRange(absent.Select(static node => node.Value).Order());
        return new RecoveryPlan(refusals)
        {
            Number = number,
            Cluster = cluster,
            Shards = shards,
            Starts = StartsOf(found, absent),
            WaitMs = shards.Where(static shard => shard.Leader.IsNone).Select(static shard => shard.LeaseLongestMs).DefaultIfEmpty(0UL).Max(),
        };
    }

    // A node that is bound to another recovery has promised to act on no earlier one.
    private static IEnumerable<ulong> NumbersOf(RecoveryFindings found, ulong id) =>
        found.Reports.Select(static report => report.Bound).Append(found.HeldClaim).OfType<RecoveryClaim>()
                .Where(claim => claim.RecoveryId != id).Select(static claim => claim.Recovery)
            .Concat(found.Reports.Select(static report => report.Cluster?.Recovery ?? 0))
            .Concat(found.Reports.SelectMany(static report => report.Shards).Select(static record => record.Recovery))
            .Concat(found.Reports.SelectMany(static report => report.Replicas).Select(static replica => replica.Recovery))
            .Concat(found.HeldShards.Select(static record => record.Recovery)).Append(found.HeldCluster?.Recovery ?? 0);

    private static (uint Format, uint Contract) LevelsOf(RecoveryFindings found)
    {
        var records = found.Reports.Select(static report => report.Cluster).Append(found.HeldCluster).OfType<ClusterRecord>().ToList();
        return (
            Math.Max(ProgramLevels.FormatOfRecoveries, records.Max(static record => record.FormatLevel)), records.Max(static record => record.ContractLevel));
    }

    private static IEnumerable<ShardId> ShardsOf(RecoveryFindings found) =>
        found.Reports.SelectMany(static report => report.Shards.Select(static record => record.ShardId)
                .Concat(report.Replicas.Select(static replica => new ShardId(replica.Shard))))
            .Concat(found.TrustedShards.Select(static record => record.ShardId)).Distinct().Order();

    private static ClusterRecord? NewestCluster(RecoveryFindings found, List<string> refusals)
    {
        foreach (var report in found.Reports.Where(static report => report.Cluster is null || report.Starts is null))
            refusals.Add(string.Create(CultureInfo.InvariantCulture, $"node {report.Node} does not know the cluster's record, because its data directory was "
                + $"last used by an earlier version; start it once with this version while the coordinator has its data, or name it with --without "
                + $"{report.Node}"));
        foreach (var twice in found.Reports.GroupBy(static report => report.Node).Where(static reports => reports.Count() > 1))
            refusals.Add(FormattableString.Invariant($"two processes answer as node {twice.Key}; stop the one with the older data directory"));
        if (refusals.Count > 0)
            return null;
        if (found.Reports.Count == 0)
        {
            refusals.Add("no node answered, so nothing is known of the cluster");
            return null;
        }
        var newest = found.Reports.MaxBy(static report => report.Cluster.Recovery)!;
        foreach (var other in found.Reports.Where(other => !IsSame(other.Cluster, newest.Cluster)))
            refusals.Add(string.Create(CultureInfo.InvariantCulture, $"node {other.Node} belongs to another cluster or lineage than node {newest.Node} "
                + $"({TextOf(other.Cluster)}, and {TextOf(newest.Cluster)}); give the endpoint of a node of the right one. "
                + $"If the later one was created by mistake after the coordinator's data was lost, {Undo(found)}"));
        // Two nodes that have joined different recoveries with one number have acted on records of which the other knows nothing.
        foreach (var other in found.Reports.Where(
            other => other.Cluster.Recovery == newest.Cluster.Recovery && other.Cluster.RecoveryId != newest.Cluster.RecoveryId))
            refusals.Add(string.Create(CultureInfo.InvariantCulture, $"nodes {newest.Node} and {other.Node} have joined two recoveries with the number "
                + $"{newest.Cluster.Recovery}, made in two stores; decide which of the two goes on, stop the nodes of the other, and name them with "
                + $"--without"));
        if (found.HeldCluster is { } held && !IsSame(held, newest.Cluster))
            refusals.Add(string.Create(CultureInfo.InvariantCulture, $"the coordinator has another cluster of this name ({TextOf(held)}), but the nodes are of "
                + $"{TextOf(newest.Cluster)}. If it was created by mistake after the coordinator's data was lost, {Undo(found)}"));
        return refusals.Count == 0 ? newest.Cluster : null;
    }

    private static string TextOf(ClusterRecord cluster) => FormattableString.Invariant($"{cluster.ClusterId}, created {cluster.Created?.ToDateTime():u}");

    // Yet another one could be created before the nodes of the right one wait for the recovery.
    private static string Undo(RecoveryFindings found) =>
        $"stop its nodes and move their data directories away, delete its keys (etcdctl del --prefix {found.Keys}), and run this again before any node starts "
        + "with an empty directory; a node that has no directory of the right cluster stays stopped, and is named with --without";

    private static bool IsSame(ClusterRecord one, ClusterRecord other) => one.ClusterId == other.ClusterId && one.Lineage.Equals(other.Lineage);

    // A majority of the newest set that happens to be known is not enough: after two changes of the replicas it need not share a node with the present one.
    private static void RequireAnswers(RecoveryFindings found, List<string> refusals)
    {
        var answered = found.Reports.Select(static report => new NodeId(report.Node)).ToHashSet();
        var named = found.Named.ToHashSet();
        foreach (var missing in named.Where(node => !answered.Contains(node) && !found.Without.Contains(node)).Order())
        {
            var why = found.Silent.TryGetValue(missing, out var error) ? $" ({OneLine.Of(error)})" : "";
            refusals.Add(
                FormattableString.Invariant($"node {missing} does not answer{why}; start it, or, if it is gone for good, name it with --without {missing}"));
        }
        foreach (var gone in found.Without.Order())
        {
            if (answered.Contains(gone))
                refusals.Add(FormattableString.Invariant($"node {gone} is named by --without, but it answers; leave out --without {gone}, or stop the node"));
            else if (!named.Contains(gone) && !found.Reports.Any(report => report.Shards.Any(record => record.Replicas.Any(replica => replica.NodeId == gone))))
                refusals.Add(FormattableString.Invariant($"node {gone} is named by --without, but no node knows of it; leave out --without {gone}"));
            else if (found.Reports.FirstOrDefault(report => report.Hears.Contains(gone.Value)) is { } hearing)
                refusals.Add(string.Create(CultureInfo.InvariantCulture, $"node {gone} is named by --without, and does not answer the node that asked, but "
                    + $"node {hearing.Node} hears it, so it runs; stop it, or have it answer and leave out --without {gone}"));
        }
    }

    // A node that still has the cluster's coordinator, or reaches another one than the rest, may act on records that nobody here knows.
    private static void RequireSameStore(RecoveryFindings found, List<string> refusals)
    {
        var alone = WhyAskingNodeIsAlone(found);
        if (alone is not null)
            refusals.Add(alone);
        foreach (var report in found.Reports)
        {
            var why = report.Coordinator is not { } state ? "does not say what its coordinator has, because its program is older; upgrade it"
                : state.Error.Length > 0
                ? $"cannot tell whether its coordinator has lost the cluster ({OneLine.Of(state.Error)}); see that it reaches the coordinator"
                : state.Cluster == found.HeldClusterText && state.ClusterRevision == found.HeldClusterRevision ? null
                : alone is not null ? null
                : state.Cluster.Length > 0 && found.HeldClusterText.Length == 0
                ? "has a coordinator with a record of the cluster, which is therefore not lost; have all nodes use that one"
                : "has another coordinator than the node that asked; have all nodes use the same one";
            if (why is not null)
                refusals.Add(FormattableString.Invariant($"node {report.Node} {why}, or stop the node and name it with --without {report.Node}"));
            else if (report.Unbound.Length > 0)
                refusals.Add(FormattableString.Invariant($"node {report.Node} does not take part: {OneLine.Of(report.Unbound)}; run this again"));
        }
    }

    // The node that asked is the one with the wrong coordinator if the others, two at least, find the cluster in theirs. Otherwise nobody here knows which is
    // right.
    private static string? WhyAskingNodeIsAlone(RecoveryFindings found)
    {
        var held = (found.HeldClusterText, found.HeldClusterRevision);
        var stores = found.Reports.Where(static report => report.Coordinator is { Error.Length: 0 })
            .ToLookup(static report => (report.Coordinator.Cluster, report.Coordinator.ClusterRevision), static report => report.Node);
        return stores[held].ToList() is [var asking]
            && stores.Where(store => store.Key != held).ToList() is [var others] && others.Key.Cluster.Length > 0 && others.Count() > 1
            ? string.Create(CultureInfo.InvariantCulture, $"node {asking}, which was asked, has another coordinator than the nodes "
                + $"{string.Join(", ", others)}, which all find the cluster in theirs; give node {asking} that one and restart it")
            : null;
    }

    // What others have heard of a node's starts tells an old copy of its directory, whose promises are out of date. So does a coordinator that was restored.
    private static void RequireNewestDirectories(RecoveryFindings found, List<string> refusals)
    {
        foreach (var report in found.Reports)
        {
            var known = KnownStart(found, new NodeId(report.Node))?.Starts ?? 0;
            if (known > report.Starts.Starts)
                refusals.Add(string.Create(CultureInfo.InvariantCulture, $"node {report.Node} runs on an old copy of its data directory: "
                    + $"its last start there is {report.Starts.Starts}, and {known} is known; start it with its newest directory, or stop it and name it with "
                    + $"--without {report.Node}"));
        }
    }

    // The last start that others, or the coordinator, know of.
    private static NodeStarts? KnownStart(RecoveryFindings found, NodeId node) => found.Reports.Where(report => report.Node != node.Value)
        .SelectMany(static report => report.Nodes).Where(other => other.NodeId == node)
        .Select(static other => new NodeStarts { Starts = other.Incarnation >> 32, Incarnation = other.Incarnation })
        .Append(HeldStartsOf(found, node)).OfType<NodeStarts>().MaxBy(static start => start.Starts);

    // Without the cluster's record, a recovery that ended early has left them.
    private static NodeStarts? HeldStartsOf(RecoveryFindings found, NodeId node) => found.HeldCluster is null ? null : found.HeldStarts.GetValueOrDefault(node);

    // An absent node has the last start that anybody knows of, so that an older copy of its directory is still found. Nothing depends on whether it had more:
    // its replicas are marked.
    private static Dictionary<NodeId, NodeStarts> StartsOf(RecoveryFindings found, HashSet<NodeId> absent)
    {
        var starts = found.Reports.ToDictionary(static report => new NodeId(report.Node), static report => report.Starts);
        foreach (var node in absent.Where(node => !starts.ContainsKey(node)))
        {
            if (KnownStart(found, node) is { Starts: > 0 } known)
                starts[node] = known;
        }
        return starts;
    }

    private static void RequireAllKeys(List<PlannedShard> shards, List<string> refusals)
    {
        // Each shard that cannot be planned has its own refusal.
        if (refusals.Count > 0)
            return;
        var end = Google.Protobuf.ByteString.Empty;
        for (var index = 0; index < shards.Count; index++)
        {
            var record = shards[index].Record;
            if (!record.Start.Equals(end) || (index > 0 && end.IsEmpty))
                refusals.Add(string.Create(CultureInfo.InvariantCulture, $"the records found do not cover every key once: "
                    + $"shard {record.Shard} does not begin where the one before it ends; a shard's record is missing on all nodes that answered"));
            end = record.End;
        }
        if (shards.Count == 0 || !end.IsEmpty)
            refusals.Add("the records found do not cover every key: that of the last shard is missing on all nodes that answered");
    }
}

/// <summary>A shard's record as it is to be put.</summary>
/// <param name="Record">The record.</param>
/// <param name="Source">The node whose copy it is built from; none: the coordinator.</param>
/// <param name="Leader">The node whose replica leads and goes on; none if no replica was found to lead.</param>
/// <param name="Intact">The nodes whose voters are there.</param>
/// <param name="Missing">The nodes whose voters are not.</param>
/// <param name="LeaseLongestMs">The longest lease that one of its replicas has granted.</param>
internal sealed record PlannedShard(
    ShardRecord Record, NodeId Source, NodeId Leader, IReadOnlyList<NodeId> Intact, IReadOnlyList<NodeId> Missing, ulong LeaseLongestMs);
