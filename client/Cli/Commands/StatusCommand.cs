using System.CommandLine;
using System.Globalization;
using KvCluster.Client;
using Spectre.Console;

namespace KvCluster.Cli.Commands;

/// <summary>`kv status`: nodes, shards, leaders, and how far each replica is behind.</summary>
internal static class StatusCommand
{
    private static readonly Option<bool> Digest = new("--digest") { Description = "Also compute a digest of every replica's tree, which reads all data. "
        + "Replicas with the same content have the same digest." };

    private static readonly Option<uint?> Shard = new(
        "--shard") { Description = "Show only this shard, with its leases, the leader's view of its followers, and the latest decisions.", HelpName = "SHARD" };

    public static Command Create() => CliCommand.CreateReader(
        "status", "Show nodes, shards and leaders, and how far each replica is behind.", [Digest, Shard], async (arguments, output, stop) =>
        {
            await using var client = Globals.ClientOf(arguments, arguments.GetValue(Digest) ? Globals.CallLimitOfWholeReplicas : null);
            var shard = arguments.GetValue(Shard);
            var status = await client.Admin.GetStatusAsync(arguments.GetValue(Digest), shard, stop);
            if (shard is not null && status.Nodes.All(node => node.Replicas.Count == 0 && node.Error.Length == 0))
                throw new CliException(ExitCodes.Usage, $"No node has a replica of shard {shard}.");
            if (output.IsJson)
            {
                output.Document(ToDocument(status, NewestOfShards(status)));
                return ExitCodes.Done;
            }
            Print(output, status, arguments.GetValue(Digest));
            if (shard is not null)
                ShardDetail.Print(output, status);
            return ExitCodes.Done;
        });

    private static Fields ToDocument(ClusterStatus status, Dictionary<uint, Etag> newest) => new Fields
    {
        { "cluster", status.Cluster },
        { "nodes", status.Nodes.Select(node => new Fields
        {
            { "node", node.Node },
            { "address", node.Address },
            { "version", node.Version },
            { "format_levels", LevelsCommand.ToDocument(node.FormatLevels) },
            { "contract_levels", LevelsCommand.ToDocument(node.ContractLevels) },
            { "error", OrNull(node.Error) },
            { "replicas", node.Replicas.Select(replica => new Fields
            {
                { "shard", replica.Shard },
                { "start", Text.FromBytes(replica.Start.Span) },
                { "end", Text.FromBytes(replica.End.Span) },
                { "role", replica.Role },
                { "epoch", replica.Epoch },
                { "leader", replica.Leader },
                { "last", replica.Last.ToString() },
                { "durable", replica.Durable.ToString() },
                { "committed", replica.Committed.ToString() },
                { "applied", replica.Applied.ToString() },
                { "lag", Lag(replica, newest) },
                { "keys", replica.Keys },
                { "data_bytes", replica.DataBytes },
                { "data_allocated_bytes", replica.DataAllocatedBytes },
                { "journal_bytes", replica.JournalBytes },
                { "digest", replica.Digest.IsEmpty ? null : Convert.ToHexStringLower(replica.Digest.Span) },
                { "digest_etag", replica.Digest.IsEmpty ? null : replica.DigestEtag.ToString() },
                { "failure", OrNull(replica.Failure) },
                { "lacks_space", OrNull(replica.LacksSpace) },
                { "detail", replica.Detail is null ? null : ShardDetail.ToDocument(replica.Detail) },
            }) },
        }) },
    };

    private static Dictionary<uint, Etag> NewestOfShards(ClusterStatus status) => status.Nodes
        .SelectMany(node => node.Replicas)
        .GroupBy(replica => replica.Shard)
        .ToDictionary(shard => shard.Key, shard => shard.Max(replica => replica.Committed));

    // In changes, whose counter continues across epochs.
    private static ulong Lag(ReplicaStatus replica, Dictionary<uint, Etag> newest) =>
        newest[replica.Shard].Change > replica.Applied.Change ? newest[replica.Shard].Change - replica.Applied.Change : 0;

    private static void Print(Output output, ClusterStatus status, bool digest)
    {
        var table = new Table().Border(TableBorder.Ascii2).AddColumns("node", "shard", "range", "role", "applied");
        foreach (var number in (string[])["lag", "keys", "data MB", "allocated MB", "journal MB"])
            table.AddColumn(new TableColumn(number).RightAligned());
        if (digest)
            table.AddColumn("digest");
        var newest = NewestOfShards(status);
        foreach (var node in status.Nodes)
        {
            if (node.Error.Length > 0)
                table.AddRow([Number(node.Node), "", Markup.Escape(node.Error)]);
            foreach (var replica in node.Replicas)
                table.AddRow([.. CellsOf(node, replica, Lag(replica, newest), digest)]);
        }

        output.Line($"cluster {status.Cluster}");
        output.Table(table);
        foreach (var hint in Hints(status))
            output.Line(hint);
    }

    /// <summary>Lines about nodes whose version tells no roles that this program knows.</summary>
    internal static IEnumerable<string> Hints(ClusterStatus status) => status.Nodes
        .Where(static node => node.Replicas.Any(static replica => replica.Role == ReplicaStatus.Unknown))
        .Select(static node => $"node {node.Node} runs version {node.Version}, whose roles this kv does not know; the kv of that version shows them");

    private static IEnumerable<string> CellsOf(NodeStatus node, ReplicaStatus replica, ulong lag, bool digest)
    {
        yield return Number(node.Node);
        yield return Number(replica.Shard);
        yield return Markup.Escape($"[{Text.FromBytes(replica.Start.Span)}, {(replica.End.IsEmpty ? "end" : Text.FromBytes(replica.End.Span))})");
        yield return Markup.Escape(replica switch
        {
            { Failure.Length: > 0 } => $"{replica.Role}: {replica.Failure}",
            { LacksSpace.Length: > 0 } => $"{replica.Role}, cannot be rebuilt: {replica.LacksSpace}",
            _ => replica.Role,
        });
        yield return replica.Applied.ToString();
        yield return Number(lag);
        yield return replica.Keys.ToString("N0", CultureInfo.InvariantCulture);
        yield return Megabytes(replica.DataBytes);
        yield return Megabytes(replica.DataAllocatedBytes);
        yield return Megabytes(replica.JournalBytes);
        if (digest)
            yield return replica.Digest.IsEmpty ? "" : Convert.ToHexStringLower(replica.Digest.Span[..8]);
    }

    private static string Number(ulong number) => number.ToString(CultureInfo.InvariantCulture);

    private static string Megabytes(ulong bytes) => (bytes / 1e6).ToString("N1", CultureInfo.InvariantCulture);

    private static string? OrNull(string text) => text.Length == 0 ? null : text;
}
