using System.CommandLine;

namespace KvCluster.Cli.Commands;

/// <summary>`kv admin`: what operators ask for.</summary>
internal static class AdminCommand
{
    public static Command Create() => new("admin", "Commands for operators.") { Checkpoint() };

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
