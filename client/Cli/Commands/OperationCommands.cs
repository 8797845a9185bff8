using System.CommandLine;
using System.Globalization;
using KvCluster.Client;

namespace KvCluster.Cli.Commands;

/// <summary>`kv admin replace`, `operations` and `cancel`: what goes on without its caller.</summary>
internal static class OperationCommands
{
    private static readonly Argument<uint> Shard = new("SHARD") { Description = "Id of the shard." };
    private static readonly Argument<string> Id = new("ID") { Description = "Id of the operation, as kv admin operations prints it." };
    private static readonly Option<uint> FromNode = new("--from") { Description = "Node whose replica is removed.", Required = true, HelpName = "NODE" };
    private static readonly Option<uint?> ToNode = new("--to") { Description = "Node of the new replica (default: the same node, where it is rebuilt). "
        + "0 removes a learner without a replacement.", HelpName = "NODE" };
    private static readonly Option<bool> Force = new("--force") { Description = "Replace even if the remaining replicas are not seen to follow closely. "
        + "Writes to the shard pause while the change is tried." };

    public static Command Replace() => CliCommand.Create("replace", "Replace a replica of a shard with a new one, on the same node or another, and wait until "
        + "it is done. If interrupted, the operation goes on.", [Shard, FromNode, ToNode, Force], async (
        arguments, output, stop) =>
    {
        await using var client = Globals.ClientOf(arguments, Globals.CallLimitOfWholeReplicas);
        var (shard, from) = (arguments.GetValue(Shard), arguments.GetValue(FromNode));
        var to = arguments.GetValue(ToNode) ?? from;
        var (started, progress) = (default(KvAdminOperation), "");
        KvAdminOperation ended;
        try
        {
            ended = await client.Admin.ReplaceAsync(shard, from, to == 0 ? null : to, arguments.GetValue(Force), Tell, stop);
        }
        catch (OperationCanceledException) when (started is not null && stop.IsCancellationRequested)
        {
            throw new OperationGoesOnException(started.Id);
        }
        if (output.IsJson)
            output.Document(new Fields { { "shard", shard }, { "from", from }, { "to", to }, { "operation", ended.Id } });
        else
            output.Line(to == 0 ? $"the learner of shard {shard} on node {from} was removed" : $"shard {shard} has a new replica on node {to}");
        return ExitCodes.Done;

        // On standard error, which is not part of the result.
        void Tell(KvAdminOperation operation)
        {
            started = operation;
            if (operation.State == KvOperationState.Running && operation.Progress != progress)
                StandardError.Tell($"operation {operation.Id}: {progress = operation.Progress}{BytesOf(operation)}");
        }
    });

    public static Command List() =>
        CliCommand.CreateReader("operations", "Show the operations that run, and those that ended some time ago.", [], async (arguments, output, stop) =>
        {
            await using var client = Globals.ClientOf(arguments);
            var found = await client.Admin.ListOperationsAsync(stop);
            if (output.IsJson)
                output.Document(new Fields
                {
                    { "operations", found.Operations.Select(ToDocument) },
                    { "silent", found.Silent.Select(node => new Fields { { "node", node.Key }, { "error", node.Value } }) }
                });
            else
                foreach (var operation in found.Operations)
                    output.Line(Describe(operation));
            return found.Silent.Count == 0
                ? ExitCodes.Done
                : throw new CliException(ExitCodes.Unavailable, "Operations are missing, because nodes did not answer: "
                    + $"{string.Join("; ", found.Silent.Select(node => $"node {node.Key}: {node.Value}"))}.");
        });

    public static Command Cancel() =>
        CliCommand.Create("cancel", "Cancel an operation. A replica that it has begun to build is removed.", [Id], async (arguments, output, stop) =>
        {
            await using var client = Globals.ClientOf(arguments, Globals.CallLimitOfWholeReplicas);
            var operation = await client.Admin.CancelOperationAsync(arguments.GetRequiredValue(Id), stop);
            if (output.IsJson)
                output.Document(ToDocument(operation));
            else
                output.Line(Describe(operation));
            return operation.State == KvOperationState.Cancelled ? ExitCodes.Done
                : throw new CliException(ExitCodes.Unavailable, $"Operation {operation.Id} was not cancelled: it had ended before.");
        });

    private static string Describe(KvAdminOperation operation) =>
        $"{operation.Id}  {StatusReading.TextOf(operation.State)}  shard {operation.Shard}, {Change(operation)}"
            + (operation.Progress.Length > 0 ? $": {operation.Progress}{BytesOf(operation)}" : operation.Reason.Length > 0 ? $": {operation.Reason}" : "");

    private static string Change(KvAdminOperation operation) => operation switch
    {
        { FromNode: { } from, ToNode: { } to } when from == to => $"rebuild the replica on node {to}",
        { FromNode: { } from, ToNode: { } to } => $"move the replica from node {from} to node {to}",
        { ToNode: { } to } => $"add a replica on node {to}",
        _ => $"remove the learner on node {operation.FromNode}",
    };

    private static string BytesOf(KvAdminOperation operation) =>
        operation is { DoneBytes: { } done, TotalBytes: { } total } ? string.Create(CultureInfo.InvariantCulture, $" ({done} of {total} bytes)") : "";

    private static Fields ToDocument(KvAdminOperation operation) => new Fields
    {
        { "id", operation.Id },
        { "kind", "replace" },
        { "shard", operation.Shard },
        { "from", operation.FromNode },
        { "to", operation.ToNode },
        { "state", StatusReading.TextOf(operation.State) },
        { "reason", operation.Reason.Length == 0 ? null : operation.Reason },
        { "progress", operation.Progress.Length == 0 ? null : operation.Progress },
        { "done_bytes", operation.DoneBytes },
        { "total_bytes", operation.TotalBytes },
        { "node", operation.Node },
        { "started", operation.Started },
        { "ended", operation.Ended },
    };
}
