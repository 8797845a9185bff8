using System.Globalization;
using KvCluster.Admin.V1;
using KvCluster.Internal.V1;
using KvCluster.Node.Runtime;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Coordination;

/// <summary>
/// The levels in force in a cluster, and the only way to raise them (deploy/UPGRADING.md). They are in the cluster's record, so from the change of that record
/// on no program without them starts as a node. A process uses those that were in force when it started: each of its streams was checked against them, and its
/// journal has their version. Until the nodes have been restarted, some use the levels before, which the programs of all of them support too. Any thread.
/// </summary>
/// <param name="coordinator">The coordinator. Its guard keeps the change from another store than the one that was read.</param>
/// <param name="keys">The cluster's keys.</param>
/// <param name="log">Receives a line when this node has raised the levels.</param>
internal sealed partial class ClusterLevels(ICoordinator coordinator, CoordinatorKeys keys, ILogger log)
{
    /// <summary>Returns the levels in force and what each node supports, after raising them if asked to.</summary>
    /// <returns>If there is no answer, why nothing was changed.</returns>
    /// <exception cref="CoordinatorUnavailableException">The coordinator does not answer. Nothing was changed.</exception>
    /// <exception cref="ChangeUnknownException">The coordinator failed during the change.</exception>
    public async Task<(LevelsResponse? Answer, string Refusal)> AskAsync(LevelsRequest request, CancellationToken cancellationToken)
    {
        while (true)
        {
            var held = await coordinator.ListAsync(keys.Root, cancellationToken).ConfigureAwait(false);
            if (held.Entries.FirstOrDefault(entry => entry.Key == keys.Cluster) is not { Value: { } text, ModRevision: var revision })
                return (null, "the coordinator has no record of the cluster, so its data is lost; rebuild it from the nodes: kv admin coordinator recover");
            var record = RecordText.Parse<ClusterRecord>(text);
            var nodes = NodesIn(held);
            if (!request.Raise)
                return (Describe(record, record, nodes), "");
            if (coordinator.Guard is { } guard && RecoveryNumber.Of(record) != guard.Recovery)
                return (null, CoordinatorGuard.WhyNotChanged);
            var (format, contract, refusal) = Highest(record.FormatLevel, record.ContractLevel, nodes);
            if (refusal is not null)
                return (null, refusal);
            var raised = record.Clone();
            (raised.FormatLevel, raised.ContractLevel) = (format, contract);
            if (raised.Equals(record))
                return (Describe(record, record, nodes), "");
            // It does not matter which of two calls at once has written the record, because both want the same.
            var (isSet, unset) = await coordinator.SetForOperatorAsync(keys.Cluster, revision, RecordText.Format(raised), cancellationToken)
                .ConfigureAwait(false);
            if (unset is not null)
                return (null, unset);
            if (!isSet)
                continue;
            Raised(log, format, contract, record.FormatLevel, record.ContractLevel);
            return (Describe(raised, record, nodes), "");
        }
    }

    /// <summary>Why a record is older than another one of the same cluster, judged by its levels, which never become lower; null if it is not.</summary>
    /// <param name="record">The record in the coordinator.</param>
    /// <param name="known">The one that a node goes by. A recovery that did not hear of a raised level may rebuild the record without it, so only those of the
    /// same recovery are compared.</param>
    public static string? WhyOlder(ClusterRecord record, ClusterRecord known) =>
        record.ClusterId == known.ClusterId
            && record.Recovery == known.Recovery && (record.FormatLevel < known.FormatLevel || record.ContractLevel < known.ContractLevel)
            ? string.Create(CultureInfo.InvariantCulture, $"its record of the cluster has format level {record.FormatLevel} and contract level "
                + $"{record.ContractLevel}, but they were raised to {known.FormatLevel} and {known.ContractLevel}, so it was restored from an older copy")
            : null;

    /// <summary>The highest levels that all nodes support; those in force if no node supports more.</summary>
    /// <param name="format">The format level in force.</param>
    /// <param name="contract">The contract level in force.</param>
    /// <param name="nodes">All nodes.</param>
    /// <returns>If there is a refusal, some nodes support more, but not all, or that is not known.</returns>
    internal static (uint Format, uint Contract, string? Refusal) Highest(uint format, uint contract, IReadOnlyCollection<LevelsOfNode> nodes)
    {
        var known = nodes.Where(static node => node.Levels is not null).Select(static node => (Node: node, Levels: ProgramLevels.Read(node.Levels))).ToList();
        var best = (Format: known.Select(static one => one.Levels.Format.Max)
            .Append(format).Max(), Contract: known.Select(static one => one.Levels.Contract.Max).Append(contract).Max());
        if (best == (format, contract))
            return (format, contract, null);
        var unknown = nodes.Where(static node => node.Levels is null).ToList();
        if (unknown.Count > 0)
            return (format, contract, $"it is not known of all nodes what they support: {string.Join("; ", unknown.Select(DescribeUnknown))}");
        var raised = (
            Format: Math.Max(format, known.Min(static one => one.Levels.Format.Max)),
            Contract: Math.Max(contract, known.Min(static one => one.Levels.Contract.Max)));
        var (toFormat, toContract) = raised == (format, contract) ? best : raised;
        var lacking = known.Where(one => one.Levels.WhyNot(toFormat, toContract) is not null).Select(static one => Describe(one.Node)).ToList();
        return lacking.Count == 0
            ? (toFormat, toContract, null)
            : (format, contract, string.Create(CultureInfo.InvariantCulture, $"not all nodes support format level {toFormat} and contract level {toContract}: "
                + $"{string.Join("; ", lacking)}. Upgrade them first"));
    }

    // A node that is not registered and has no replica is no part of the cluster. If it returns with a program that lacks a level in force, it does not start.
    private List<LevelsOfNode> NodesIn(CoordinatorList held)
    {
        var registered = Of<NodeRecord>(held, keys.Nodes).ToDictionary(static node => node.NodeId);
        var placed = Of<ShardRecord>(held, keys.Shards).SelectMany(static shard => shard.Replicas).Select(static replica => replica.NodeId);
        return [.. registered.Keys.Union(placed).Order().Select(node => registered.TryGetValue(node, out var record)
            ? new LevelsOfNode
            {
                Node = node.Value, Version = record.Version, Levels = record.Levels,
                FormatInUse = record.FormatLevel, ContractInUse = record.ContractLevel
            }
            : new LevelsOfNode { Node = node.Value })];
    }

    private static IEnumerable<T> Of<T>(CoordinatorList held, string prefix)
        where T : Google.Protobuf.IMessage, new() =>
        held.Entries.Where(entry => CoordinatorKeys.TryParseId(entry.Key, prefix, out _)).Select(static entry => RecordText.Parse<T>(entry.Value!));

    private static LevelsResponse Describe(ClusterRecord record, ClusterRecord before, List<LevelsOfNode> nodes) => new()
    {
        Format = record.FormatLevel,
        Contract = record.ContractLevel,
        FormatBefore = before.FormatLevel,
        ContractBefore = before.ContractLevel,
        Nodes = { nodes },
    };

    private static string DescribeUnknown(LevelsOfNode node) => node.Version.Length == 0
        ? FormattableString.Invariant($"node {node.Node} is not registered. Start it, or have its replicas moved to other nodes, first")
        : FormattableString.Invariant($"node {node.Node} (version {OneLine.Of(node.Version)}) does not say so. Upgrade it first");

    private static string Describe(LevelsOfNode node) =>
        string.Create(CultureInfo.InvariantCulture, $"node {node.Node} (version {OneLine.Of(node.Version)}) supports the format levels "
            + $"{node.Levels.Format?.Min ?? 0} to {node.Levels.Format?.Max ?? 0} and the contract levels {node.Levels.Contract?.Min ?? 0} to "
            + $"{node.Levels.Contract?.Max ?? 0}");

    [LoggerMessage(49, LogLevel.Warning, "An operator raised the levels in force to format level {Format} and contract level {Contract}, from {FormatBefore} "
        + "and {ContractBefore}. Programs without them cannot be nodes of the cluster any more")]
    private static partial void Raised(ILogger log, uint format, uint contract, uint formatBefore, uint contractBefore);
}
