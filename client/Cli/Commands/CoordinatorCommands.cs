using System.CommandLine;
using System.Globalization;
using KvCluster.Admin.V1;

namespace KvCluster.Cli.Commands;

/// <summary>`kv admin coordinator`: what to do when the coordinator's data is lost.</summary>
internal static class CoordinatorCommands
{
    private static readonly Option<bool> PlanOnly = new("--plan") { Description = "Only show what would be written, from which nodes, and what is missing." };
    private static readonly Option<uint[]> Without = new("--without") { Description = "Do not wait for this node, which is gone or stopped. "
        + "If it returns, its replicas are rebuilt. Can be given more than once.", HelpName = "NODE" };

    /// <summary>Nodes have seconds to answer, twice, and after three minutes a recovery ends by itself.</summary>
    private static readonly TimeSpan CallLimit = TimeSpan.FromMinutes(4);

    public static Command Create() => new("coordinator", "Commands for when the coordinator's data is lost.") { Recover() };

    private static Command Recover() => CliCommand.Create(
        "recover",
        "Rebuild the coordinator's records from the nodes, when its data was lost or restored "
        + "from an old copy. The endpoint is the port for nodes (listen-peers) of any node, or, where nodes still run, any "
        + "endpoint.",
        [PlanOnly, Without],
        async (arguments, output, stop) =>
        {
            if (Connection.Of(arguments).Gateway)
                throw new CliException(
                    ExitCodes.Usage,
                    "coordinator recover does not go through a router: leave out --gateway, and give --endpoint the port for "
                    + "nodes (listen-peers) of a node.");
            await using var client = Globals.ClientOf(arguments, CallLimit);
            var request = new RecoverRequest { PlanOnly = arguments.GetValue(PlanOnly), Without = { arguments.GetValue(Without) ?? [] } };
            var found = await LongCall.EndAsync(
                client.RecoverCoordinatorAsync(request, CallLimit, stop),
                request.PlanOnly ? "the nodes are asked" : "the nodes are asked and the records rebuilt");
            if (output.IsJson)
                output.Document(ToDocument(found));
            else
                Describe(found, output);
            return found.Refusals.Count == 0
                ? ExitCodes.Done
                : throw new CliException(
                    ExitCodes.Unavailable,
                    $"Nothing was changed, because the records cannot be rebuilt: {found.Refusals[0]}"
                    + (found.Refusals.Count > 1 ? string.Create(CultureInfo.InvariantCulture, $" ({found.Refusals.Count} reasons in all).") : "."));
        });

    private static void Describe(RecoverResponse found, Output output)
    {
        foreach (var node in found.Nodes)
            output.Line($"node {node.Node}: {(node.Answered ? "answers" : node.Error.Length > 0 ? $"does not answer ({node.Error})" : "is named gone")}");
        foreach (var shard in found.Shards)
        {
            var source = shard.Source == 0 ? "the coordinator" : FormattableString.Invariant($"node {shard.Source}");
            var leader = shard.Leader == 0 ? "no leader runs, so one will be elected" : FormattableString.Invariant($"node {shard.Leader} leads and goes on");
            var missing = shard.Missing.Count == 0 ? "" : $", missing on {Nodes(shard.Missing)}";
            output.Line(FormattableString.Invariant($"shard {shard.Shard}: record from {source}; {leader}; voters on {Nodes(shard.Intact)}{missing}"));
        }
        foreach (var refusal in found.Refusals)
            output.Line($"refused: {refusal}");
        if (found.Applied)
            output.Line(FormattableString.Invariant($"the coordinator has the records of {found.Shards.Count} shards (recovery {found.Recovery})"));
        else if (found.Refusals.Count == 0)
            output.Line("nothing was changed; the same command without --plan writes this");
    }

    private static string Nodes(IReadOnlyCollection<uint> nodes) =>
        nodes.Count == 0 ? "no node" : string.Join(", ", nodes.Select(static node => FormattableString.Invariant($"{node}")));

    private static Fields ToDocument(RecoverResponse found) => new Fields
    {
        { "applied", found.Applied },
        { "recovery", found.Recovery },
        { "nodes", found.Nodes.Select(static node => new Fields
        {
            { "node", node.Node },
            { "answered", node.Answered },
            { "error", node.Error.Length == 0 ? null : node.Error },
            { "starts", node.Starts },
        }) },
        { "shards", found.Shards.Select(static shard => new Fields
        {
            { "shard", shard.Shard },
            { "source", shard.Source == 0 ? (uint?)null : shard.Source },
            { "leader", shard.Leader == 0 ? (uint?)null : shard.Leader },
            { "intact", shard.Intact },
            { "missing", shard.Missing },
            { "generation", shard.Generation },
            { "epoch", shard.Epoch },
        }) },
        { "refusals", found.Refusals },
    };
}
