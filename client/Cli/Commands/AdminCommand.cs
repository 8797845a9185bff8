using System.CommandLine;
using System.Diagnostics;
using KvCluster.Client;

namespace KvCluster.Cli.Commands;

/// <summary>`kv admin`: what operators ask for.</summary>
internal static class AdminCommand
{
    private static readonly Argument<uint> Shard = new("shard") { Description = "The shard's id." };
    private static readonly Argument<uint> Node = new("node") { Description = "The node's id." };
    private static readonly Option<uint?> ToNode = new("--to") { Description = "The node that is to lead (default: the one that has most of the journal).", HelpName = "NODE" };
    private static readonly Option<bool> Off = new("--off") { Description = "The node may lead again." };

    private static readonly Option<uint> FromNode = new("--from") { Description = "The node whose replica leaves for good.", Required = true, HelpName = "NODE" };
    private static readonly Option<uint?> ToNodeOfReplica = new("--to") { Description = "The node that gets the new one (default: the same, where it is rebuilt). 0: none, the replica is a learner and leaves.", HelpName = "NODE" };
    private static readonly Option<string> Reason = new("--reason") { Description = "For logs and status.", DefaultValueFactory = _ => "an operator asked for it", HelpName = "TEXT" };

    private static readonly Option<bool> ForceReplace = new("--force") { Description = "Also where those that stay are not seen to follow closely: the shard's writes pause while it is tried." };
    private static readonly Option<bool> ForceQuarantine = new("--force") { Description = "Also where no majority stays: the shard serves nothing then, and what only this replica had is out of reach." };
    private static readonly Option<bool> ForceDrain = new("--force") { Description = "Also where a shard has no majority once the node stops: it serves nothing until the node is back." };

    private static readonly Option<bool> Pause = new("--pause") { Description = "Move no replica from here on." };
    private static readonly Option<bool> Resume = new("--resume") { Description = "Move replicas again." };
    private static readonly Option<uint[]> Leave = new("--leave") { Description = "A node that is to have no replicas any more; may be given more than once.", HelpName = "NODE" };
    private static readonly Option<uint[]> Stay = new("--stay") { Description = "A node that may have replicas again; may be given more than once.", HelpName = "NODE" };
    private static readonly Option<uint?> StayUpTo = new("--stay-up-to") { Description = "Nodes with greater ids leave, the others stay.", HelpName = "NODE" };
    private const int WaitSecondsMax = 86_400;

    private static readonly Option<double?> Wait = new("--wait") { Description = "Wait until no replica lies on a node that leaves.", HelpName = "SECONDS" };

    private static readonly TimeSpan PlacementInterval = TimeSpan.FromMilliseconds(500);

    /// <summary>A drain waits for followers that are behind.</summary>
    private static readonly TimeSpan DrainLimit = TimeSpan.FromMinutes(1);

    public static Command Create() => new("admin", "Commands for operators.") { Checkpoint(), Transfer(), Drain(), Replace(), Quarantine(), Placement() };

    private static Command Replace() => CliCommand.Create("replace", "Put a new replica of a shard in the place of another.", [Shard, FromNode, ToNodeOfReplica, ForceReplace], async (arguments, output, stop) =>
    {
        await using var client = Globals.ClientOf(arguments, Globals.CallLimitOfWholeReplicas);
        var (shard, from) = (arguments.GetValue(Shard), arguments.GetValue(FromNode));
        var to = arguments.GetValue(ToNodeOfReplica) ?? from;
        await client.ReplaceAsync(shard, from, to, arguments.GetValue(ForceReplace), stop);
        if (output.IsJson)
            output.Document(new { Shard = shard, From = from, To = to });
        else
            output.Line(to == 0 ? $"shard {shard} has no learner on node {from} any more" : $"shard {shard} has a new replica on node {to}");
        return ExitCodes.Done;
    });

    private static Command Quarantine() => CliCommand.Create("quarantine", "Take a node's replica of a shard out of service; it is rebuilt from its peers.", [Shard, Node, Reason, ForceQuarantine], async (arguments, output, stop) =>
    {
        await using var client = Globals.ClientOf(arguments);
        var (shard, node) = (arguments.GetValue(Shard), arguments.GetValue(Node));
        await client.QuarantineAsync(shard, node, arguments.GetRequiredValue(Reason), arguments.GetValue(ForceQuarantine), stop);
        if (output.IsJson)
            output.Document(new { Shard = shard, Node = node });
        else
            output.Line($"node {node} has taken its replica of shard {shard} out of service");
        return ExitCodes.Done;
    });

    private static Command Placement() => CliCommand.Create("placement", "Say on which nodes replicas may lie, and see how far that is.", [Pause, Resume, Leave, Stay, StayUpTo, Wait], async (arguments, output, stop) =>
    {
        if (arguments.GetValue(Pause) && arguments.GetValue(Resume))
            throw new CliException(ExitCodes.Usage, "--pause and --resume exclude each other.");
        if (arguments.GetValue(Leave)!.Intersect(arguments.GetValue(Stay)!).Select(node => (uint?)node).FirstOrDefault() is { } both)
            throw new CliException(ExitCodes.Usage, $"Node {both} cannot both leave and stay.");
        if (arguments.GetValue(Wait) is { } wait && !(wait >= 0 && wait <= WaitSecondsMax))
            throw new CliException(ExitCodes.Usage, $"--wait takes seconds from 0 to {WaitSecondsMax}.");
        await using var client = Globals.ClientOf(arguments);
        bool? paused = arguments.GetValue(Pause) ? true : arguments.GetValue(Resume) ? false : null;
        var status = await client.PlaceAsync(paused, arguments.GetValue(Leave), arguments.GetValue(Stay), arguments.GetValue(StayUpTo), stop);
        if (arguments.GetValue(Wait) is { } seconds)
            status = await LeftAsync(client, status, TimeSpan.FromSeconds(seconds), stop);
        if (output.IsJson)
            output.Document(new { status.Paused, Leaving = status.Leaving.OrderBy(node => node.Key).Select(node => new { Node = node.Key, Replicas = node.Value }) });
        else
            output.Line((status.Paused ? "replicas stay where they are" : "replicas move where they are to lie") + string.Concat(status.Leaving.OrderBy(node => node.Key).Select(node => $"; node {node.Key} leaves and has {node.Value}")));
        return arguments.GetValue(Wait) is null || status.Leaving.Values.All(replicas => replicas == 0)
            ? ExitCodes.Done
            : throw new CliException(ExitCodes.Unavailable, "Nodes that leave still have replicas; they go on moving.");
    });

    private static async Task<PlacementStatus> LeftAsync(KvClient client, PlacementStatus status, TimeSpan limit, CancellationToken stop)
    {
        var waited = Stopwatch.StartNew();
        while (status.Leaving.Values.Any(replicas => replicas > 0) && waited.Elapsed < limit)
        {
            await Task.Delay(PlacementInterval, stop);
            status = await client.PlaceAsync(cancellationToken: stop);
        }
        return status;
    }

    private static Command Transfer() => CliCommand.Create("transfer", "Hand a shard's leadership to another node.", [Shard, ToNode], async (arguments, output, stop) =>
    {
        await using var client = Globals.ClientOf(arguments);
        var shard = arguments.GetValue(Shard);
        var leader = await client.TransferAsync(shard, TransferTarget(arguments), stop);
        if (output.IsJson)
            output.Document(new { Shard = shard, Leader = leader });
        else
            output.Line($"node {leader} leads shard {shard}");
        return ExitCodes.Done;
    });

    // For the server 0 is "whoever has most", for a person a node that does not exist.
    private static uint TransferTarget(ParseResult arguments) => arguments.GetValue(ToNode) switch
    {
        0 => throw new CliException(ExitCodes.Usage, "There is no node 0."),
        var node => node ?? 0,
    };

    private static Command Drain() => CliCommand.Create("drain", "Have a node give its leaderships away and take none.", [Node, Off, ForceDrain], async (arguments, output, stop) =>
    {
        await using var client = Globals.ClientOf(arguments, DrainLimit);
        var node = arguments.GetValue(Node);
        var off = arguments.GetValue(Off);
        var drained = await client.DrainAsync(node, !off, arguments.GetValue(ForceDrain), stop);
        if (output.IsJson)
            output.Document(new { Node = node, Draining = !off, drained.GivenAway, Kept = drained.Kept.Select(kept => new { Shard = kept.Key, Reason = kept.Value }) });
        else
            output.Line(off ? $"node {node} may lead again" : $"node {node} gave {drained.GivenAway} leaderships away");
        return drained.Kept.Count == 0
            ? ExitCodes.Done
            : throw new CliException(ExitCodes.Unavailable, $"Node {node} still leads {string.Join(", ", drained.Kept.Select(kept => $"shard {kept.Key}: {kept.Value}"))}.");
    });

    private static Command Checkpoint() => CliCommand.Create("checkpoint", "Have every replica write a checkpoint.", [], async (arguments, output, stop) =>
    {
        await using var client = Globals.ClientOf(arguments, Globals.CallLimitOfWholeReplicas);
        var replicas = await client.CheckpointAsync(stop);
        if (output.IsJson)
            output.Document(new { Replicas = replicas.Select(one => new { one.Node, one.Shard, Etag = one.Covers.ToString(), one.DataBytes, Error = one.Error.Length == 0 ? null : one.Error }) });
        else
            foreach (var one in replicas)
                output.Line(one.Error.Length == 0 ? $"node {one.Node} shard {one.Shard}: {one.DataBytes} bytes, covers {one.Covers}" : $"node {one.Node} shard {one.Shard}: failed: {one.Error}");
        var failed = replicas.Count(one => one.Error.Length > 0);
        return failed == 0 ? ExitCodes.Done : throw new CliException(ExitCodes.Unavailable, $"{failed} of {replicas.Count} checkpoints failed.");
    });
}
