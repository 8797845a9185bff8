using System.CommandLine;
using KvCluster.Client;

namespace KvCluster.Cli.Commands;

/// <summary>`kv get`, `kv put`, `kv delete`: one key.</summary>
internal static class KeyCommands
{
    private const int ValueBytesMax = 8 << 20;
    private const string IfEtagName = "--if-etag";
    private const string IfAbsentName = "--if-absent";
    private const string IfExistsName = "--if-exists";
    private const string IfValueName = "--if-value";

    private static readonly Argument<string> Key = new("KEY") { Description = "1 to 2,048 bytes of UTF-8." };
    private static readonly Option<string?> IfEtag = new(IfEtagName) { Description = "Only if the key's value was set by the change with this etag.", HelpName = "ETAG" };
    private static readonly Option<string?> Seen = new("--seen") { Description = "For --read session: an etag that put or delete printed; the answer has that change.", HelpName = "ETAG" };
    private static readonly Option<bool> Raw = new("--raw") { Description = "Print the bytes of the value and no line feed after them." };
    private static readonly Option<string?> Out = new("--out") { Description = "Write the bytes of the value to this file and nothing to standard output.", HelpName = "FILE" };
    private static readonly Option<bool> IfAbsent = new(IfAbsentName) { Description = "Only if the key does not exist." };
    private static readonly Option<bool> IfExists = new(IfExistsName) { Description = "Only if the key exists." };
    private static readonly Option<string?> IfValue = new(IfValueName) { Description = "Only if the key has exactly this value.", HelpName = "VALUE" };

    public static Command Get() => CliCommand.Create("get", "Print the value of a key.", [Key, Raw, Out, ReadOption.Mode, Seen], async (arguments, output, stop) =>
    {
        var file = ValueFileOf(arguments, output);
        var client = ClientOf(arguments);
        var key = Text.ToBytes(arguments.GetRequiredValue(Key));
        if (arguments.GetValue(Seen) is { } seen)
            client.Observe(new ShardPosition(await ShardOfAsync(client, key, stop), ParseEtag("--seen", seen)));
        var result = await OfKeyAsync(key, () => client.GetAsync(key, ReadOption.Of(arguments), stop));
        if (output.IsJson)
            output.Document(GetDocument.Of(key.Span, result));
        else if (result.Found && file is not null)
            ValueFile.Write("--out", file, result.Value.Span);
        else if (result.Found)
            PrintValue(output, result.Value.Span, arguments.GetValue(Raw));
        return result.Found ? ExitCodes.Done : throw new CliException(ExitCodes.NotFound, $"{Text.ForPeople(key.Span)} is not there.");
    });

    public static Command Put()
    {
        var value = new Argument<string>("VALUE") { Description = "Up to 8 MiB. @FILE reads it from a file, - from standard input; @@ at the beginning stands for one @." };
        return CliCommand.Create("put", "Set a key. Returns when the change is durable on a majority.", [Key, value, IfEtag, IfAbsent, IfExists, IfValue], async (arguments, output, stop) =>
        {
            var key = Text.ToBytes(arguments.GetRequiredValue(Key));
            var (option, condition) = ConditionOf(arguments);
            var bytes = await ValueFile.ReadArgumentAsync(arguments.GetRequiredValue(value), ValueBytesMax, stop);
            var client = ClientOf(arguments);
            var position = await OfKeyAsync(key, () => client.PutAsync(key, bytes, condition, stop), option);
            PrintPosition(output, position, existed: null);
            return ExitCodes.Done;
        });
    }

    public static Command Delete() => CliCommand.Create("delete", "Remove a key.", [Key, IfEtag, IfAbsent, IfExists, IfValue], async (arguments, output, stop) =>
    {
        var key = Text.ToBytes(arguments.GetRequiredValue(Key));
        var (option, condition) = ConditionOf(arguments);
        var client = ClientOf(arguments);
        var result = await OfKeyAsync(key, () => client.DeleteAsync(key, condition, stop), option);
        PrintPosition(output, result.Position, result.Existed);
        // Not on standard output: scripts take the etag from there.
        if (!output.IsJson)
            StandardError.Tell(result.Existed ? $"{Text.ForPeople(key.Span)} existed and was removed." : $"{Text.ForPeople(key.Span)} did not exist.");
        return ExitCodes.Done;
    });

    // Never disposed: the process ends with the command, and the system closes its connections. To end all calls in order takes a sixth of the whole time.
    private static KvClient ClientOf(ParseResult arguments) => Globals.ClientOf(arguments);

    /// <summary>A call for one key, whose failures name the key, and the option whose condition did not hold.</summary>
    /// <exception cref="CliException">It failed.</exception>
    private static async Task<T> OfKeyAsync<T>(ReadOnlyMemory<byte> key, Func<ValueTask<T>> call, string? conditionOption = null)
    {
        try
        {
            return await call();
        }
        catch (KvConditionFailedException) when (conditionOption is not null)
        {
            throw new CliException(ExitCodes.ConditionFailed, $"{conditionOption}: {Text.ForPeople(key.Span)} {ContradictionOf(conditionOption)}. Nothing was changed.");
        }
        catch (KvException failure)
        {
            var (exitCode, line) = Failures.Describe(failure);
            throw new CliException(exitCode, $"{Text.ForPeople(key.Span)}: {line}");
        }
    }

    private static string ContradictionOf(string conditionOption) => conditionOption switch
    {
        IfAbsentName => "exists",
        IfExistsName => "does not exist",
        IfEtagName => "has another etag or does not exist",
        _ => "has another value or does not exist",
    };

    /// <summary>Where the value is to be written instead of standard output; null: nowhere else.</summary>
    /// <exception cref="CliException">Options that exclude each other.</exception>
    private static string? ValueFileOf(ParseResult arguments, Output output)
    {
        var file = arguments.GetValue(Out);
        if (file is { Length: 0 })
            throw new CliException(ExitCodes.Usage, "--out names no file.");
        return output.IsJson && (file is not null || arguments.GetValue(Raw))
            ? throw new CliException(ExitCodes.Usage, $"{(file is null ? "--raw" : "--out")} writes the bytes of the value, so it excludes --output json.")
            : file;
    }

    private static async Task<uint> ShardOfAsync(KvClient client, ReadOnlyMemory<byte> key, CancellationToken stop) =>
        await client.FindShardAsync(key, stop) ?? throw new CliException(ExitCodes.Unavailable, "The shard map could not be had.");

    private static Etag ParseEtag(string option, string text) =>
        Etag.TryParse(text, null, out var etag) ? etag : throw new CliException(ExitCodes.Usage, $"{option} '{text}' is no etag: 36 characters like {default(Etag)}.");

    private static void PrintValue(Output output, ReadOnlySpan<byte> value, bool raw)
    {
        output.Bytes(value);
        if (!raw)
            output.Bytes("\n"u8);
    }

    private static void PrintPosition(Output output, ShardPosition position, bool? existed)
    {
        if (output.IsJson)
            output.Document(new { Shard = position.Shard, Etag = position.Etag.ToString(), Existed = existed });
        else
            output.Line(position.Etag.ToString());
    }

    private static (string? Option, KvCondition? Condition) ConditionOf(ParseResult arguments)
    {
        var conditions = new List<(string? Option, KvCondition? Condition)>();
        if (arguments.GetValue(IfEtag) is { } text)
            conditions.Add((IfEtagName, KvCondition.EtagEquals(ParseEtag(IfEtagName, text))));
        if (arguments.GetValue(IfAbsent))
            conditions.Add((IfAbsentName, KvCondition.Absent()));
        if (arguments.GetValue(IfExists))
            conditions.Add((IfExistsName, KvCondition.Exists()));
        if (arguments.GetValue(IfValue) is { } value)
            conditions.Add((IfValueName, KvCondition.ValueEquals(Text.ToBytes(value))));
        return conditions.Count <= 1
            ? conditions.SingleOrDefault()
            : throw new CliException(ExitCodes.Usage, $"{string.Join(" and ", conditions.Select(one => one.Option))} exclude each other: a command takes one condition.");
    }
}
