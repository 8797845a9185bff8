using System.CommandLine;
using KvCluster.Client;

namespace KvCluster.Cli.Commands;

/// <summary>`kv get`, `kv put`, `kv delete`: one key.</summary>
internal static class KeyCommands
{
    private const int ValueBytesMax = 8 << 20;

    private static readonly Argument<string> Key = new("KEY") { Description = "1 to 2,048 bytes of UTF-8." };
    private static readonly Option<string?> IfEtag = new("--if-etag") { Description = "Only if the key's value was set by the change with this etag.", HelpName = "ETAG" };
    private static readonly Option<string?> Seen = new("--seen") { Description = "For --read session: an etag that put or delete printed; the answer has that change.", HelpName = "ETAG" };
    private static readonly Option<bool> IfAbsent = new("--if-absent") { Description = "Only if the key does not exist." };
    private static readonly Option<bool> IfExists = new("--if-exists") { Description = "Only if the key exists." };
    private static readonly Option<string?> IfValue = new("--if-value") { Description = "Only if the key has exactly this value.", HelpName = "VALUE" };

    public static Command Get() => CliCommand.Create("get", "Print the value of a key.", [Key, ReadOption.Mode, Seen], async (arguments, output, stop) =>
    {
        await using var client = Globals.ClientOf(arguments);
        var key = Text.ToBytes(arguments.GetRequiredValue(Key));
        if (arguments.GetValue(Seen) is { } seen)
            client.Observe(new ShardPosition(await ShardOfAsync(client, key, stop), ParseEtag("--seen", seen)));
        var result = await client.GetAsync(key, ReadOption.Of(arguments), stop);
        if (output.IsJson)
            output.Document(GetDocument.Of(key.Span, result));
        else if (result.Found)
            PrintValue(output, result.Value.Span);
        return result.Found ? ExitCodes.Done : throw new CliException(ExitCodes.NotFound, $"{Text.ForPeople(key.Span)} is not there.");
    });

    public static Command Put()
    {
        var value = new Argument<string>("VALUE") { Description = "Up to 8 MiB; - reads it from standard input." };
        return CliCommand.Create("put", "Set a key. Returns when the change is durable on a majority.", [Key, value, IfEtag, IfAbsent, IfExists, IfValue], async (arguments, output, stop) =>
        {
            var text = arguments.GetRequiredValue(value);
            var bytes = text == "-" ? await StandardInput.ReadToEndAsync(ValueBytesMax, stop) : Text.ToBytes(text);
            var condition = ConditionOf(arguments);
            await using var client = Globals.ClientOf(arguments);
            var position = await client.PutAsync(Text.ToBytes(arguments.GetRequiredValue(Key)), bytes, condition, stop);
            PrintPosition(output, position, existed: null);
            return ExitCodes.Done;
        });
    }

    public static Command Delete() => CliCommand.Create("delete", "Remove a key.", [Key, IfEtag, IfAbsent, IfExists, IfValue], async (arguments, output, stop) =>
    {
        var condition = ConditionOf(arguments);
        await using var client = Globals.ClientOf(arguments);
        var key = arguments.GetRequiredValue(Key);
        var result = await client.DeleteAsync(Text.ToBytes(key), condition, stop);
        PrintPosition(output, result.Position, result.Existed);
        return ExitCodes.Done;
    });

    private static async Task<uint> ShardOfAsync(KvClient client, ReadOnlyMemory<byte> key, CancellationToken stop) =>
        await client.FindShardAsync(key, stop) ?? throw new CliException(ExitCodes.Unavailable, "The shard map could not be had.");

    private static Etag ParseEtag(string option, string text) =>
        Etag.TryParse(text, null, out var etag) ? etag : throw new CliException(ExitCodes.Usage, $"{option} '{text}' is no etag: 36 characters like {default(Etag)}.");

    private static void PrintValue(Output output, ReadOnlySpan<byte> value)
    {
        output.Bytes(value);
        output.Bytes("\n"u8);
    }

    private static void PrintPosition(Output output, ShardPosition position, bool? existed)
    {
        if (output.IsJson)
            output.Document(new { Shard = position.Shard, Etag = position.Etag.ToString(), Existed = existed });
        else
            output.Line(position.Etag.ToString());
    }

    private static KvCondition? ConditionOf(ParseResult arguments)
    {
        var conditions = new List<KvCondition>();
        if (arguments.GetValue(IfEtag) is { } text)
            conditions.Add(KvCondition.EtagEquals(ParseEtag("--if-etag", text)));
        if (arguments.GetValue(IfAbsent))
            conditions.Add(KvCondition.Absent());
        if (arguments.GetValue(IfExists))
            conditions.Add(KvCondition.Exists());
        if (arguments.GetValue(IfValue) is { } value)
            conditions.Add(KvCondition.ValueEquals(Text.ToBytes(value)));
        return conditions.Count <= 1 ? conditions.SingleOrDefault() : throw new CliException(ExitCodes.Usage, "At most one of --if-etag, --if-absent, --if-exists, --if-value.");
    }
}
