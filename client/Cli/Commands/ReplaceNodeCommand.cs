using System.CommandLine;
using KvCluster.Cli.Replacing;

namespace KvCluster.Cli.Commands;

/// <summary>`kv admin replace-node`: all replicas of a node are moved to another one, or to those that the cluster chooses.</summary>
internal static class ReplaceNodeCommand
{
    private const double WaitSeconds = 600;
    private const double WaitSecondsMax = 86_400;

    private static readonly Argument<uint> Old = new("OLD") { Description = "Node that is to have no replicas any more. It need not run." };
    private static readonly Argument<uint?> New = new("NEW")
    {
        Description = "Node that gets them (default: the cluster chooses one for each).",
        Arity = ArgumentArity.ZeroOrOne,
    };

    private static readonly Option<bool> Plan = new("--plan") { Description = "Only print what would be done." };
    private static readonly Option<double> Wait = Globals.SecondsOption("--wait", "Wait at most this long. What was begun goes on.", WaitSeconds);

    public static Command Create() => CliCommand.Create(
        "replace-node",
        "Move all replicas of a node to another one, and wait until it is done. "
        + "The node gets none again until placement --stay. If it is interrupted or a shard refuses, the same command "
        + "continues.",
        [Old, New, Plan, Wait],
        async (arguments, output, stop) =>
        {
            var (from, to, wait) = (arguments.GetValue(Old), arguments.GetValue(New), arguments.GetValue(Wait));
            if (!(wait >= 0 && wait <= WaitSecondsMax))
                throw new CliException(ExitCodes.Usage, $"--wait must be from 0 to {WaitSecondsMax} seconds.");
            if (arguments.GetValue(Plan))
                Interruption.NothingChanges();
            await using var client = Globals.ClientOf(arguments);
            // Both at once, because each takes some seconds where a node stands still.
            var (placing, looking) = (client.Admin.PlaceAsync(cancellationToken: stop), client.Admin.GetStatusAsync(cancellationToken: stop));
            await Task.WhenAll(placing, looking);
            var placement = await placing;
            var plan = NodeReplacementPlan.Of(await looking, placement, from, to);
            // If nothing can be moved, the node is not marked as leaving either.
            if (arguments.GetValue(Plan) || (plan.Moves.Count > 0 && plan.Moves.All(static move => move.Refusal.Length > 0)))
                return PrintPlan(output, plan);
            if (plan.Moves.Count == 0)
                return Print(output, from, []);
            var replacement = new NodeReplacement(client.Admin, plan, TimeSpan.FromSeconds(wait), StandardError.Tell);
            try
            {
                return Print(output, from, await replacement.RunAsync(placement.Leaving.ContainsKey(from), stop));
            }
            catch (OperationCanceledException) when (stop.IsCancellationRequested)
            {
                throw new CliException(ExitCodes.OutcomeUnknown, $"interrupted; the replicas of node {from} go on leaving it. The same command waits for them; "
                    + $"kv admin placement --stay {from} ends it.");
            }
        });

    private static int PrintPlan(Output output, NodeReplacementPlan plan)
    {
        var stay = plan.Moves.Count(static move => move.Refusal.Length > 0);
        if (output.IsJson)
            output.Document(new Fields
            {
                { "from", plan.From },
                { "plan", true },
                { "replicas", plan.Moves.Select(static move => new Fields
                {
                    { "shard", move.Shard }, { "to", move.To }, { "moved", false }, { "reason", OrNull(move.Refusal) },
                }) },
            });
        else if (plan.Moves.Count == 0)
            output.Line($"node {plan.From} has no replicas");
        else
            foreach (var move in plan.Moves)
                output.Line($"shard {move.Shard}: "
                    + $"{(move.Refusal.Length > 0 ? $"stays on node {plan.From}: {move.Refusal}" : $"from node {plan.From} to {NameOf(move.To)}")}");
        return stay == 0 ? ExitCodes.Done
            : throw new CliException(ExitCodes.Unavailable, $"{stay} of {plan.Moves.Count} replicas cannot leave node {plan.From} now. Nothing was changed.");
    }

    private static int Print(Output output, uint from, IReadOnlyList<MoveOutcome> outcomes)
    {
        var refused = outcomes.Count(static one => one.Refusal.Length > 0);
        if (output.IsJson)
            output.Document(new Fields
            {
                { "from", from },
                { "plan", false },
                { "replicas", outcomes.Select(static one => new Fields
                {
                    { "shard", one.Shard }, { "to", one.To }, { "moved", one.Refusal.Length == 0 }, { "reason", OrNull(one.Refusal) },
                }) },
            });
        else
            foreach (var one in outcomes)
                output.Line($"shard {one.Shard}: {(one.Refusal.Length > 0 ? $"not moved: {one.Refusal}" : $"moved from node {from} to {NameOf(one.To)}")}");
        if (refused > 0)
        {
            throw new CliException(
                ExitCodes.Unavailable,
                $"{refused} of {outcomes.Count} replicas remain on node {from}. It stays marked as leaving, so the cluster tries again by itself; "
                + "the same command shows what is left.");
        }
        if (!output.IsJson)
            output.Line($"node {from} has no replicas{(outcomes.Count > 0 ? $", and gets none until kv admin placement --stay {from}" : "")}");
        return ExitCodes.Done;
    }

    private static string NameOf(uint? to) => to is { } node ? $"node {node}" : "a node that the cluster chooses";

    private static string? OrNull(string text) => text.Length == 0 ? null : text;
}
