using System.CommandLine;
using System.Diagnostics;
using KvCluster.Client;

namespace KvCluster.Cli.Commands;

/// <summary>`kv admin`: the commands for operators.</summary>
internal static class AdminCommand
{
    private static readonly Argument<uint> Shard = new("SHARD") { Description = "Id of the shard." };
    private static readonly Argument<uint> Node = new("NODE") { Description = "Id of the node." };
    private static readonly Option<uint?> ToNode =
        new("--to") { Description = "Node that is to lead (default: the voter that has most of the journal).", HelpName = "NODE" };
    private static readonly Option<bool> Off = new("--off") { Description = "End the drain: the node may lead again." };

    private static readonly Option<string> Reason = new("--reason") { Description = "Reason for the log and the status, at most 1,000 characters.",
        DefaultValueFactory = _ => "requested by an operator", HelpName = "TEXT" };

    private static readonly Option<bool> ForceQuarantine = new(
        "--force") { Description = "Quarantine even if no majority remains. The shard then serves nothing, and what only this replica has cannot be reached." };
    private static readonly Option<bool> ForceDrain =
        new("--force") { Description = "Drain even if a shard has no majority without the node. While the node is stopped, such a shard serves nothing." };

    private static readonly Option<bool> Pause = new("--pause") { Description = "Stop moving replicas. Moves in progress continue." };
    private static readonly Option<bool> Resume = new("--resume") { Description = "Resume moving replicas." };
    private static readonly Option<uint[]> Leave =
        new("--leave") { Description = "Move all replicas away from this node. Can be given more than once.", HelpName = "NODE" };
    private static readonly Option<uint[]> Stay =
        new("--stay") { Description = "Let this node have replicas again. Can be given more than once.", HelpName = "NODE" };
    private static readonly Option<uint?> StayUpTo = new("--stay-up-to") { Description = "Nodes with greater ids leave; the others stay.", HelpName = "NODE" };
    private static readonly Option<bool> SkipIfSilent = new("--skip-if-silent") { Description = "Succeed without a change if no node or router answers, for "
        + "scripts that run before there is a cluster. It then says so." };
    private const int WaitSecondsMax = 86_400;

    private static readonly Option<double?> Wait = Globals.SecondsOption("--wait", "Wait at most this long until the nodes that leave have no replicas.");

    private static readonly TimeSpan PlacementInterval = TimeSpan.FromMilliseconds(500);

    /// <summary>Longer than for other calls, because a drain waits for followers that are behind.</summary>
    private static readonly TimeSpan DrainLimit = TimeSpan.FromMinutes(1);

    public static Command Create() => new("admin", "Commands for operators.") { Checkpoint(),
        Transfer(), Drain(), OperationCommands.Replace(), ReplaceNodeCommand.Create(), OperationCommands.List(), OperationCommands.Cancel(), Quarantine(),
        Placement(), LevelsCommand.Create(), CoordinatorCommands.Create() };

    private static Command Quarantine() => CliCommand.Create(
        "quarantine", "Take a node's replica of a shard out of service for good. A new one is built from its peers.", [Shard, Node, Reason, ForceQuarantine],
        async (arguments, output, stop) =>
        {
            await using var client = Globals.ClientOf(arguments);
            var (shard, node) = (arguments.GetValue(Shard), arguments.GetValue(Node));
            await client.Admin.QuarantineAsync(shard, node, arguments.GetRequiredValue(Reason), arguments.GetValue(ForceQuarantine), stop);
            if (output.IsJson)
                output.Document(new Fields { { "shard", shard }, { "node", node } });
            else
                output.Line($"the replica of shard {shard} on node {node} is out of service");
            return ExitCodes.Done;
        });

    private static Command Placement() => CliCommand.Create(
        "placement", "Show or change which nodes may have replicas. Without options, only show it.", [Pause, Resume, Leave, Stay, StayUpTo, Wait, SkipIfSilent],
        async (arguments, output, stop) =>
        {
            if (arguments.GetValue(Pause) && arguments.GetValue(Resume))
                throw new CliException(ExitCodes.Usage, "--pause and --resume exclude each other.");
            if (arguments.GetValue(Leave)!.Intersect(arguments.GetValue(Stay)!).Select(node => (uint?)node).FirstOrDefault() is { } both)
                throw new CliException(ExitCodes.Usage, $"Node {both} is given to both --leave and --stay.");
            if (arguments.GetValue(Wait) is { } wait && !(wait >= 0 && wait <= WaitSecondsMax))
                throw new CliException(ExitCodes.Usage, $"--wait must be from 0 to {WaitSecondsMax} seconds.");
            if (arguments.GetValue(SkipIfSilent) && Connection.Of(arguments).Gateway)
                throw new CliException(ExitCodes.Usage, "--skip-if-silent and --gateway exclude each other.");
            await using var client = Globals.ClientOf(arguments);
            PlacementStatus status;
            try
            {
                bool? paused = arguments.GetValue(Pause) ? true : arguments.GetValue(Resume) ? false : null;
                status = await client.Admin.PlaceAsync(paused, arguments.GetValue(Leave), arguments.GetValue(Stay), arguments.GetValue(StayUpTo), stop);
            }
            catch (KvUnavailableException failure) when (arguments.GetValue(SkipIfSilent))
            {
                // With a shard map there is a cluster, which could not do what it was asked for.
                if (await client.FindShardAsync(ReadOnlyMemory<byte>.Empty, stop) is not null)
                    throw;
                return Skipped(string.Join(", ", Connection.Of(arguments).Endpoints), failure, output);
            }
            if (arguments.GetValue(Wait) is { } seconds)
                status = await LeftAsync(client, status, TimeSpan.FromSeconds(seconds), stop);
            if (output.IsJson)
                output.Document(new Fields
                {
                    { "paused", status.Paused },
                    { "leaving", status.Leaving.OrderBy(node => node.Key).Select(node => new Fields { { "node", node.Key }, { "replicas", node.Value } }) },
                });
            else
                output.Line((status.Paused ? "moves of replicas are paused" : "replicas move automatically")
                    + string.Concat(status.Leaving.OrderBy(node => node.Key).Select(node => node.Value == 0
                        ? $"; node {node.Key} has left and can be removed"
                        : $"; node {node.Key} is leaving, {node.Value} replicas remain")));
            return arguments.GetValue(Wait) is null || status.Leaving.Values.All(replicas => replicas == 0)
                ? ExitCodes.Done
                : throw new CliException(
                    ExitCodes.Unavailable, "Nodes that are leaving still have replicas. The moves continue; the same command waits again.");
        });

    private static int Skipped(string endpoint, KvUnavailableException failure, Output output)
    {
        if (output.IsJson)
            output.Document(new Fields { { "paused", null }, { "leaving", Array.Empty<Fields>() }, { "skipped", failure.Message } });
        else
            output.Line($"no cluster answers at {endpoint}, so nothing was changed and nothing is waited for: {failure.Message}");
        return ExitCodes.Done;
    }

    private static async Task<PlacementStatus> LeftAsync(KvClient client, PlacementStatus status, TimeSpan limit, CancellationToken stop)
    {
        var waited = Stopwatch.StartNew();
        while (status.Leaving.Values.Any(replicas => replicas > 0) && waited.Elapsed < limit)
        {
            await Task.Delay(PlacementInterval, stop);
            status = await client.Admin.PlaceAsync(cancellationToken: stop);
        }
        return status;
    }

    private static Command Transfer() =>
        CliCommand.Create("transfer", "Transfer the leadership of a shard to another node.", [Shard, ToNode], async (arguments, output, stop) =>
        {
            await using var client = Globals.ClientOf(arguments);
            var shard = arguments.GetValue(Shard);
            var leader = await client.Admin.TransferAsync(shard, TransferTarget(arguments), stop);
            if (output.IsJson)
                output.Document(new Fields { { "shard", shard }, { "leader", leader } });
            else
                output.Line($"the leadership of shard {shard} was transferred to node {leader}");
            return ExitCodes.Done;
        });

    private static uint? TransferTarget(ParseResult arguments) => arguments.GetValue(ToNode) switch
    {
        0 => throw new CliException(ExitCodes.Usage, "--to 0: there is no node 0; ids start at 1."),
        var node => node,
    };

    private static Command Drain() => CliCommand.Create(
        "drain", "Transfer all leaderships of a node to others. It takes none until --off, or until it is restarted.", [Node, Off, ForceDrain],
        async (arguments, output, stop) =>
        {
            await using var client = Globals.ClientOf(arguments, DrainLimit);
            var node = arguments.GetValue(Node);
            var off = arguments.GetValue(Off);
            var drained = await LongCall.EndAsync(
                client.Admin.DrainAsync(node, !off, arguments.GetValue(ForceDrain), stop), $"node {node} transfers its leaderships");
            if (output.IsJson)
                output.Document(new Fields
                {
                    { "node", node },
                    { "draining", !off },
                    { "given_away", drained.GivenAway },
                    { "kept", drained.Kept.Select(kept => new Fields { { "shard", kept.Key }, { "reason", kept.Value } }) },
                });
            else
                output.Line(off ? $"node {node} may lead again" : $"node {node} transferred {drained.GivenAway} leaderships and takes none");
            return drained.Kept.Count == 0
                ? ExitCodes.Done
                : throw new CliException(ExitCodes.Unavailable, $"Node {node} still leads {drained.Kept.Count} shards: "
                    + $"{string.Join("; ", drained.Kept.Select(kept => $"shard {kept.Key}: {kept.Value}"))}. It takes no new leaderships; "
                    + "the same command tries again.");
        });

    private static Command Checkpoint() => CliCommand.Create("checkpoint", "Write a checkpoint of every replica.", [], async (arguments, output, stop) =>
    {
        await using var client = Globals.ClientOf(arguments, Globals.CallLimitOfWholeReplicas);
        var replicas = await LongCall.EndAsync(client.Admin.CheckpointAsync(stop), "the nodes write checkpoints");
        if (output.IsJson)
            output.Document(new Fields
            {
                { "replicas", replicas.Select(one => new Fields
                {
                    { "node", one.Node },
                    { "shard", one.Shard },
                    { "etag", one.Covers.ToString() },
                    { "data_bytes", one.DataBytes },
                    { "error", one.Error.Length == 0 ? null : one.Error },
                }) },
            });
        else
            foreach (var one in replicas)
                output.Line(one.Error.Length == 0 ? $"node {one.Node}, shard {one.Shard}: {one.DataBytes} bytes, covers {one.Covers}"
                    : $"node {one.Node}{(one.Shard is { } shard ? $", shard {shard}" : "")}: failed: {one.Error}");
        var failed = replicas.Count(one => one.Error.Length > 0);
        return failed == 0 ? ExitCodes.Done : throw new CliException(ExitCodes.Unavailable, $"{failed} of {replicas.Count} checkpoints failed.");
    });
}
