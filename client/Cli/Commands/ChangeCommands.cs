using System.CommandLine;
using System.Globalization;

namespace KvCluster.Cli.Commands;

/// <summary>The commands that change a key without its value: `kv incr` and `kv touch`; and `kv rm`, which also removes ranges.</summary>
internal static class ChangeCommands
{
    private static readonly Argument<string> Key = new("KEY") { Description = "The key: 1 to 2,048 bytes of UTF-8." };

    public static Command Increment()
    {
        var by = new Argument<long>("BY") { Description = "What is added; negative to subtract.", DefaultValueFactory = _ => 1 };
        return CliCommand.Create(
            "incr", "Add to the number that is the value of a key, and print the number afterwards. An absent key counts as 0.", [Key, by, .. KeyForm.All],
            async (arguments, output, stop) =>
            {
                await using var client = Globals.ClientOf(arguments);
                var result = await client.IncrementAsync(
                    KeyForm.Of(arguments, arguments.GetRequiredValue(Key)), arguments.GetValue(by), cancellationToken: stop);
                if (output.IsJson)
                    output.Document(new Fields
                    {
                        { "number", Text.Number(result.Number) }, { "shard", result.Position.Shard }, { "etag", result.Position.Etag.ToString() },
                    });
                else
                    output.Line(result.Number.ToString(CultureInfo.InvariantCulture));
                return ExitCodes.Done;
            });
    }

    public static Command Touch()
    {
        var ttl = Globals.SecondsOption("--ttl", "How long the key lives from now. Without it the key does not expire any more.");
        return CliCommand.Create(
            "touch", "Set when a key expires, without sending its value. The exit code is 1 if the key does not exist.", [Key, ttl, .. KeyForm.All],
            async (arguments, output, stop) =>
            {
                await using var client = Globals.ClientOf(arguments);
                var key = KeyForm.Of(arguments, arguments.GetRequiredValue(Key));
                var result = await client.TouchAsync(key, TimeToLive.Of(arguments, ttl), cancellationToken: stop);
                if (output.IsJson)
                    output.Document(new Fields
                    {
                        { "shard", result.Position.Shard }, { "etag", result.Position.Etag.ToString() }, { "existed", result.Existed },
                    });
                else if (result.Existed)
                    output.Line(result.Position.Etag.ToString());
                return result.Existed ? ExitCodes.Done : throw new CliException(ExitCodes.NotFound, $"{Text.ForPeople(key.Span)} does not exist.");
            });
    }

    public static Command Remove()
    {
        var key = new Argument<string?>("KEY") { Description = "The key that is removed.", Arity = ArgumentArity.ZeroOrOne };
        var prefix = new Option<string?>("--prefix") { Description = "Remove all keys with this prefix.", HelpName = "PREFIX" };
        var start = new Option<string?>("--start") { Description = "Remove all keys from this one on, inclusive.", HelpName = "KEY" };
        var end = new Option<string?>("--end") { Description = "Remove all keys up to this one, exclusive.", HelpName = "KEY" };
        var all = new Option<bool>("--all") { Description = "Remove all keys of the cluster." };
        return CliCommand.Create(
            "rm", "Remove a key, or all keys of a range at once, and print how many there were.", [key, prefix, start, end, all, .. KeyForm.All],
            async (arguments, output, stop) =>
            {
                var isPart = new[] { prefix, start, end }.Any(option => arguments.GetValue(option) is { Length: > 0 });
                if (new[] { arguments.GetValue(key) is not null, isPart, arguments.GetValue(all) }.Count(static given => given) != 1)
                    throw new CliException(ExitCodes.Usage, "rm takes one of a KEY, a range by --prefix, --start and --end, and --all. Nothing was removed.");
                await using var client = Globals.ClientOf(arguments);
                var (removed, position) = arguments.GetValue(key) is { } one
                    ? await RemoveKeyAsync(client, KeyForm.Of(arguments, one), stop)
                    : await RemoveRangeAsync(client, BytesOf(prefix), BytesOf(start), BytesOf(end), stop);
                if (output.IsJson)
                    output.Document(new Fields { { "removed", removed }, { "shard", position.Shard }, { "etag", position.Etag.ToString() } });
                else
                    output.Line(removed.ToString(CultureInfo.InvariantCulture));
                return ExitCodes.Done;

                ReadOnlyMemory<byte> BytesOf(Option<string?> option) => KeyForm.Of(arguments, arguments.GetValue(option) ?? "");
            });
    }

    private static async Task<(ulong Removed, Client.ShardPosition Position)> RemoveRangeAsync(
        Client.KvClient client, ReadOnlyMemory<byte> prefix, ReadOnlyMemory<byte> start, ReadOnlyMemory<byte> end, CancellationToken stop)
    {
        var result = await client.DeleteRangeAsync(new Client.KvRange { All = true, Prefix = prefix, Start = start, End = end }, cancellationToken: stop);
        return (result.Deleted, result.Position);
    }

    private static async Task<(ulong Removed, Client.ShardPosition Position)> RemoveKeyAsync(
        Client.KvClient client, ReadOnlyMemory<byte> key, CancellationToken stop)
    {
        var result = await client.DeleteAsync(key, cancellationToken: stop);
        return (result.Existed ? 1u : 0, result.Position);
    }
}
